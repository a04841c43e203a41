"""The sources whose pictures are made of what Debian and npm packages carry."""

from __future__ import annotations

from fpet.data.clip_art import load_clip_art
from fpet.data.emoji import load_emoji
from fpet.data.hebrew import HEBREW
from fpet.data.icons import load_icons
from fpet.data.source import Source
from fpet.data.thai import THAI

PACKAGED: dict[str, Source] = {
    "emoji": Source("natural", "12 kinds of emoji, tested on an artist never seen", load_emoji),
    "clip-art": Source("natural", "7 kinds of clip art", load_clip_art),
    "icons": Source("specialised", "20 meanings of desktop icons, tested on other themes", load_icons),
    "hebrew": Source("specialised", "27 Hebrew letters, tested on typefaces never seen", HEBREW.load),
    "thai": Source("specialised", "44 Thai consonants, tested on typefaces never seen", THAI.load),
}
