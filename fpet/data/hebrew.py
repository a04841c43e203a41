"""The letters of the Hebrew alphabet, with the five final forms, in the typefaces of four Debian packages."""

from __future__ import annotations

import unicodedata

from fpet.data.typefaces import Alphabet

LETTERS = {
    unicodedata.name(chr(code)).removeprefix("HEBREW LETTER ").lower(): chr(code) for code in range(0x5D0, 0x5EB)
}
HEBREW = Alphabet(
    "hebrew",
    LETTERS,
    ("culmus", "culmus-fancy", "fonts-sil-ezra", "fonts-ldco"),
    {
        "train": (
            "Aharoni CLM",
            "Nachlieli CLM",
            "Drugulin CLM",
            "Taamey Ashkenaz",
            "Ezra SIL",
            "Frank Ruehl CLM",
            "Taamey Frank CLM",
            "Keter YG",
            "Hadasim CLM",
            "Yehuda CLM",
            "Ozrad CLM",
            "Ktav Yad CLM",
            "Anka CLM",
            "Hillel CLM",
            "Journal CLM",
            "Shmulik CLM",
            "Comix No2 CLM",
            "Daniel",
            "Josef",
            "Kimchi",
            "Sayphan",
            "Skechers",
            "Strokes",
            "Noam",
            "HarSinai",
        ),
        "val": ("Simple CLM", "Gladia CLM", "Trashim CLM", "Miso", "Neo", "YamSuf", "ECO"),
        "test": (
            "David CLM",
            "Taamey David CLM",
            "Miriam CLM",
            "Miriam Mono CLM",
            "Shofar",
            "Keter Aram Tsova",
            "Stam Ashkenaz CLM",
            "Stam Sefarad CLM",
            "Dorian CLM",
            "Gan CLM",
            "Ellinia CLM",
            "Horev CLM",
            "Makabi YG",
            "Amit",
            "Hidekel",
            "Lilach",
            "Mixer",
            "PatchSans",
            "PatchSerif",
            "PatchStencil",
            "Sticks",
        ),
    },
)
