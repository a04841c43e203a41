"""What must not be seen in pre-training: clothing, shoes, bags and hats, and digits.

The backbone is tested on Fashion-MNIST and on handwritten digits, so neither their classes nor anything that is
drawn like them may be among the classes it is trained on.
"""

from __future__ import annotations

import re

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
_FOLDERS = ("symbols/money", "signs_and_symbols/money", "symbols/alphabets", "computer/buttons", "flags/signal")
# Hundreds of nearly equal figures drawn by a program, which would only take the place of others.
_REPETITIVE = ("shapes/stars",)
_EMOJI_SUBGROUPS = frozenset({"clothing", "keycap", "alphanum", "time", "face-hat", "skin-tone"})
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
    return not _WORDS.isdisjoint(re.split(r"[^a-z0-9]+|(?<=[a-z])(?=\d)|_", lower)) or "shirt" in lower


def excluded_emoji(short_name: str, subgroup: str) -> bool:
    """Whether an emoji shows clothing, a bag, a hat, a digit or a clock face."""
    words = re.split(r"[^a-z0-9]+", short_name.lower())
    return subgroup in _EMOJI_SUBGROUPS or short_name in _EMOJI_NAMES or not _WORDS.isdisjoint(words)
