"""What must not be seen in pre-training: the classes of the data sets that the backbone is tested on.

They are clothing, shoes, bags and hats; digits; animals, plants, food, places, vehicles, weather, sports and other
recreation, and tools, which are clip art and emoji; and twenty icons. Neither they nor anything that is drawn like them
may be among the classes that it is trained on. Other scripts, and scenes that a program draws, it does not meet anyway.
"""

from __future__ import annotations

import re

from pretraining.symbol_words import SYMBOL_WORDS

_CLOTHING = """
    apparel apron bag bags baggage backpack backpacker bikini blazer blouse boot boots briefcase briefs cap cardigan
    cloth clothes clothing coat coats costume dress dresses fedora fedoras footwear glove gloves gown handbag hat hats
    heel heels helmet helmets hood hoodie jacket jackets jean jeans jersey jumper kilt kimono lingerie loafer luggage
    mitten mittens necktie pant pants pantyhose parka pouch pullover purse robe sandal sandals sari satchel scarf
    shirt shirts shoe shoes shopping shorts skate skates skirt slipper slippers sneaker sneakers sock socks sombrero
    stocking suit suitcase sweater swimsuit tee thongs tote trainers trousers tshirt turban tuxedo underwear uniform
    vest wardrobe wear
""".split()  # noqa: SIM905
_DIGITS = """
    1234 alphanum calendar calender calculator card cards clock clocks counter countdown date dial dice digit digits
    digital eight five four keycap led math nine number numbers numeral one roadsigns seven sheet six speed sudoku ten
    three time two watch zero
""".split()  # noqa: SIM905
_WORDS = frozenset(_CLOTHING + _DIGITS)
_CLIP_ART = ("animals", "buildings", "food", "plants", "recreation", "tools", "transportation", "unsorted")
_STAMPS = (
    "animals",
    "clothes",
    "food",
    "hobbies",
    "household",
    "military",
    "naturalforces",
    "plants",
    "sports",
    "town",
    "vehicles",
)
_FOLDERS = ("symbols/money", "signs_and_symbols/money", "symbols/alphabets", "computer/buttons", "flags/signal")
_ICONS = """
    audio-input-microphone camera-photo computer document-open document-print document-save drive-harddisk edit-copy
    edit-cut edit-find edit-paste edit-undo fileopen fileprint filesave find gohome go-home harddisk hdd input-keyboard
    input-mouse keyboard list-add microphone mouse preferences-desktop-keyboard printer process-stop reload stop
    terminal trash undo user-trash utilities-terminal view-refresh weather
""".split()  # noqa: SIM905
# Hundreds of nearly equal figures drawn by a program, which would only take the place of others.
_REPETITIVE = ("shapes/stars",)
_EMOJI_CATEGORIES = frozenset({"Activities", "Animals & Nature", "Food & Drink", "Travel & Places"})
_EMOJI_SUBGROUPS = frozenset(
    {
        "alphanum",
        "cat-face",
        "clothing",
        "face-hat",
        "keycap",
        "monkey-face",
        "musical-instrument",
        "person-activity",
        "person-sport",
        "skin-tone",
        "time",
        "tool",
    }
)
_EMOJI_NAMES = frozenset(
    {
        "100",
        "underage",
        "kimono",
        "8ball",
        "date",
        "calendar",
        "spiral_calendar_pad",
        "clock1",
        "slot_machine",
        "game_die",
        "ice_skate",
        "roller_skate",
        "running_shirt_with_sash",
        "martial_arts_uniform",
        "briefcase",
        "luggage",
        "baggage_claim",
        "left_luggage",
        "shopping_trolley",
        "rescue_worker_s_helmet",
    }
)


def excluded_path(path: str) -> bool:
    """Whether a picture's path (relative to its collection) names clothing, a bag, a hat, or something numbered."""
    lower = path.lower()
    if any(folder in lower for folder in _FOLDERS + _REPETITIVE):
        return True
    return not _WORDS.isdisjoint(_words(lower)) or "shirt" in lower


def excluded_clip_art(path: str) -> bool:
    """Whether a path in the collection of clip art is of an excluded category, an icon, or names what is excluded or
    what such a category shows: there are trees among the symbols of maps."""
    words = _words(path.rpartition("/")[2])
    return path.startswith(_below(_CLIP_ART)) or excluded_icon(path) or not SYMBOL_WORDS.isdisjoint(words)


def excluded_stamp(path: str) -> bool:
    """Whether a path among the stamps is of an excluded category, or names what is excluded."""
    return path.startswith(_below(_STAMPS)) or excluded_path(path)


def excluded_icon(name: str) -> bool:
    """Whether an icon "<folder>/.../<name>" is one of the twenty, a variant of it, or names what is excluded."""
    return name.rpartition("/")[2].startswith(tuple(_ICONS)) or excluded_path(name)


def excluded_emoji(short_name: str, category: str, subgroup: str) -> bool:
    """Whether an emoji is of an excluded group, or shows clothing, a bag, a hat, a digit or a clock face."""
    words = re.split(r"[^a-z0-9]+", short_name.lower())
    if category in _EMOJI_CATEGORIES or subgroup in _EMOJI_SUBGROUPS:
        return True
    return short_name in _EMOJI_NAMES or not _WORDS.isdisjoint(words)


def excluded_symbol(name: str) -> bool:
    """Whether a name in an icon set ("arrow-left") is of one of the kinds, or of the twenty icons, or has a digit."""
    words = name.split("-")
    return (
        bool(re.search(r"\d", name)) or not (_WORDS | SYMBOL_WORDS).isdisjoint(words) or name.startswith(tuple(_ICONS))
    )


def _words(path: str) -> list[str]:
    """The words of a path in lower case; digits behind a word are one of their own."""
    return re.split(r"[^a-z0-9]+|(?<=[a-z])(?=\d)", path.lower())


def _below(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder}/" for folder in folders)
