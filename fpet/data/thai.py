"""The 44 consonants of Thai in the typefaces of the Thai Linux Working Group, as Debian has them."""

from __future__ import annotations

import unicodedata

from fpet.data.typefaces import Alphabet

_VOWELS = {"\u0e24", "\u0e26"}  # Ru and Lu stand among the consonants
LETTERS = {
    unicodedata.name(chr(code)).removeprefix("THAI CHARACTER ").lower(): chr(code)
    for code in range(0xE01, 0xE2F)
    if chr(code) not in _VOWELS
}
# Tlwg Typewriter and Tlwg Typo are left out: their consonants are those of Tlwg Mono and Tlwg Typist.
THAI = Alphabet(
    "thai",
    LETTERS,
    (
        "fonts-arundina",
        "fonts-tlwg-garuda-ttf",
        "fonts-tlwg-kinnari-ttf",
        "fonts-tlwg-laksaman-ttf",
        "fonts-tlwg-loma-ttf",
        "fonts-tlwg-mono-ttf",
        "fonts-tlwg-norasi-ttf",
        "fonts-tlwg-purisa-ttf",
        "fonts-tlwg-sawasdee-ttf",
        "fonts-tlwg-typist-ttf",
        "fonts-tlwg-umpush-ttf",
        "fonts-tlwg-waree-ttf",
    ),
    {
        "train": ("Garuda", "Norasi", "Loma", "Waree", "Arundina Sans", "Arundina Serif", "Tlwg Mono"),
        "val": ("Laksaman", "Kinnari"),
        "test": ("Purisa", "Sawasdee", "Tlwg Typist", "Umpush", "Arundina Sans Mono"),
    },
)
