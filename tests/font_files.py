"""Small TrueType fonts, written table by table (OpenType 1.9), for tests that need families of their own."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

_EM = 1000
Points = Sequence[tuple[int, int]]


def write_font(path: Path, family: str, glyphs: Mapping[str, Points]) -> Path:
    """Writes a font whose characters are polygons of at least three points, in 1/1000 em, clockwise; y is upwards."""
    characters = sorted(glyphs)
    outlines = [b"", *(_outline(glyphs[character]) for character in characters)]  # the first: missing characters
    offsets = [0]
    for outline in outlines:
        offsets.append(offsets[-1] + len(outline))
    count = len(outlines)
    lefts = [min(x for x, _ in glyphs[character]) for character in characters]
    tables = {
        b"OS/2": struct.pack(">HhHHh", 0, _EM, 400, 5, 0) + bytes(68),
        b"cmap": _cmap(characters),
        b"glyf": b"".join(outlines),
        b"head": struct.pack(">4I2H16x4h2H3h", 0x10000, 0x10000, 0, 0x5F0F3CF5, 0, _EM, 0, 0, _EM, _EM, 0, 8, 2, 1, 0),
        b"hhea": struct.pack(">I3hH", 0x10000, _EM, 0, 0, _EM) + bytes(22) + struct.pack(">H", count),
        b"hmtx": b"".join(struct.pack(">Hh", _EM, left) for left in (0, *lefts)),
        b"loca": struct.pack(f">{len(offsets)}I", *offsets),
        b"maxp": struct.pack(">I14H", 0x10000, count, 64, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0),
        b"name": _names({1: family, 2: "Regular"}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_file(tables))
    return path


def _file(tables: Mapping[bytes, bytes]) -> bytes:
    start = 12 + 16 * len(tables)
    directory, body = b"", b""
    for tag, table in sorted(tables.items()):
        directory += tag + struct.pack(">3I", 0, start + len(body), len(table))
        body += table + bytes(-len(table) % 4)
    return struct.pack(">I4H", 0x10000, len(tables), 128, 3, 16) + directory + body


def _outline(points: Points) -> bytes:
    xs, ys = zip(*points, strict=True)
    steps = b""
    for values in (xs, ys):
        steps += b"".join(
            struct.pack(">h", value - before) for before, value in zip((0, *values), values, strict=False)
        )
    header = struct.pack(">5h2H", 1, min(xs), min(ys), max(xs), max(ys), len(points) - 1, 0)
    outline = header + bytes([1] * len(points)) + steps
    return outline + bytes(-len(outline) % 4)


def _cmap(characters: Sequence[str]) -> bytes:
    codes = [*(ord(character) for character in characters), 0xFFFF]
    shifts = [(glyph + 1 - code) % 0x10000 for glyph, code in enumerate(codes[:-1])] + [1]
    body = struct.pack(f">{len(codes)}HH{len(codes)}H", *codes, 0, *codes)
    body += struct.pack(f">{len(codes)}H{len(codes)}H", *shifts, *[0] * len(codes))
    segments = struct.pack(">7H", 4, 14 + len(body), 0, 2 * len(codes), 0, 0, 0) + body
    return struct.pack(">2H2HI", 0, 1, 3, 1, 12) + segments


def _names(names: Mapping[int, str]) -> bytes:
    records, text = b"", b""
    for number, name in sorted(names.items()):
        encoded = name.encode("utf-16-be")
        records += struct.pack(">6H", 3, 1, 0x409, number, len(encoded), len(text))
        text += encoded
    return struct.pack(">3H", 0, len(names), 6 + len(records)) + records + text
