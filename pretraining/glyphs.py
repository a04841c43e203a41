"""Characters of many typefaces: one class per character, one image per typeface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

# Upper case comes first: of two characters that a typeface draws alike, only the first is kept. Letters whose two
# cases, or whose counterparts in another script, differ only in size are listed once. No digits, and neither
# letters that are digits in most typefaces (Cyrillic Ze and small Be).
_LATIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghijmnqrtyÆŒÞßæœðøÇÑÅÉ"
_GREEK = "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθλμξπσφψω"
_CYRILLIC = "БДЖИЙЛЦЧШЩЪЫЭЮЯвдЄЉЊЂ"
_SYMBOLS = "&@#%$€£¥§¶!?*+=~{}[(<>/\\^©†‡÷×±∞∑√∂∫≈≠≤◊¿"  # noqa: RUF001
_KANA = (
    "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふほまみむめもやゆよらりるれろわをん"
    "アイウオカキクケコサシスセソタチツテトナヌネノハヒフホマミムメモヤユヨラリルレロワヲン"
)
CHARACTERS = _LATIN + _GREEK + _CYRILLIC + _SYMBOLS + _KANA
_PIXELS = 96  # size at which a character is drawn before it is fitted to the stored square
_MISSING = "\U0010fffe"  # a code point that no typeface has: drawn as the box for missing characters


def typefaces(raw: Path) -> list[Path]:
    """One font file per family below `raw/fonts-*`, the upright regular one where there is one, sorted."""
    families: dict[str, tuple[int, Path]] = {}
    for path in sorted(raw.glob("fonts-*/usr/share/fonts/**/*")):
        if path.suffix.lower() not in {".ttf", ".otf", ".ttc"} or not path.is_file():
            continue
        try:
            family, style = ImageFont.truetype(path, 16).getname()
        except OSError as error:
            print(f"skipped {path.name}: {error}", flush=True)
            continue
        rank = 0 if (style or "").lower() in {"regular", "book", "normal", "roman", "medium"} else 1
        known = families.get(family or path.stem)
        if known is None or rank < known[0]:
            families[family or path.stem] = (rank, path)
    return sorted(path for _, path in families.values())


def draw_all(typeface: Path, size: int) -> Iterator[tuple[str, Image.Image]]:
    """Yields (character, alpha mask "L" of size x size) for each of CHARACTERS that the typeface has."""
    font = ImageFont.truetype(typeface, _PIXELS, layout_engine=ImageFont.Layout.BASIC)
    seen = {_mask(font, _MISSING, size).tobytes(), Image.new("L", (size, size)).tobytes()}
    for character in CHARACTERS:
        mask = _mask(font, character, size)
        if (content := mask.tobytes()) not in seen:
            seen.add(content)
            yield character, mask


def _mask(font: ImageFont.FreeTypeFont, character: str, size: int) -> Image.Image:
    """The character's ink, centred in a square with a margin of one eighth."""
    left, top, right, bottom = font.getbbox(character)
    width, height = int(right - left), int(bottom - top)
    if not (0 < width <= 6 * _PIXELS and 0 < height <= 6 * _PIXELS):
        return Image.new("L", (size, size))
    side = round(max(width, height) * 4 / 3)
    mask = Image.new("L", (side, side))
    origin = ((side - width) / 2 - left, (side - height) / 2 - top)
    ImageDraw.Draw(mask).text(origin, character, fill=255, font=font)
    return mask.resize((size, size), Image.Resampling.BOX, reducing_gap=2.0)
