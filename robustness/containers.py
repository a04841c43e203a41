"""Mutations that keep the container of a format whole, lengths and checksums included, so that its inside is read."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Sequence
from random import Random

from robustness.mutate import mutate, mutate_json

_PNG = b"\x89PNG\r\n\x1a\n"
_RIFF = struct.Struct("<4sI4s")
_CHUNK = struct.Struct("<4sI")
_START_OF_SCAN = 0xDA
_METADATA = "__metadata__"

# A kind and its content: a chunk of PNG or RIFF, a segment of JPEG, a member of a zip archive.
_Part = tuple[bytes, bytes]


def mutate_image(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    """One or two parts of a PNG, JPEG or WebP; any bytes of another format."""
    if data.startswith(_PNG):
        return _PNG + b"".join(map(_png_chunk, _mutate_parts(random, _png_chunks(data), donors)))
    if data.startswith(b"\xff\xd8"):
        segments, scan = _jpeg_segments(data)
        return b"\xff\xd8" + b"".join(map(_jpeg_segment, _mutate_parts(random, segments, donors))) + scan
    if data.startswith(b"RIFF"):
        chunks = b"".join(map(_riff_chunk, _mutate_parts(random, _riff_chunks(data), donors)))
        return _RIFF.pack(b"RIFF", (4 + len(chunks)) % 2**32, data[8:12]) + chunks
    return mutate(random, data, donors)


def mutate_safetensors(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    """The description of the tensors, the JSON in the metadata, or the tensors' bytes."""
    length = int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8 : 8 + length]), data[8 + length :]
    choice = random.random()
    if choice < 0.6 and header.get(_METADATA):
        key = random.choice(sorted(header[_METADATA]))
        header[_METADATA][key] = mutate_json(random, header[_METADATA][key])
    elif choice > 0.9:
        tensors = mutate(random, tensors, donors)
    text = json.dumps(header) if choice < 0.6 or choice > 0.9 else mutate_json(random, json.dumps(header))
    encoded = text.encode("utf-8", "replace")
    return len(encoded).to_bytes(8, "little") + encoded + tensors


def mutate_zip(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    """One or two members of an archive; of an archive that is none any more, any bytes."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name.encode(), archive.read(name)) for name in archive.namelist()]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        names = set()
        for name, content in _mutate_parts(random, members, donors):
            if name not in names:  # zipfile warns of a name that comes twice
                archive.writestr(name.decode("latin-1"), content)
            names.add(name)
    return buffer.getvalue()


def _mutate_parts(random: Random, parts: list[_Part], donors: Sequence[bytes]) -> list[_Part]:
    for _ in range(random.choice((1, 1, 2))):
        if not parts:
            return parts
        at = random.randrange(len(parts))
        kind, content = parts[at]
        match random.randrange(8):
            case 0:
                parts.insert(random.randrange(len(parts) + 1), (kind, content))
            case 1:
                del parts[at]
            case 2:
                parts.insert(random.randrange(len(parts)), parts.pop(at))
            case 3:
                parts[at] = random.choice(parts)[0], content
            case _:
                parts[at] = kind, mutate(random, content, [content, *donors])
    return parts


def _png_chunks(data: bytes) -> list[_Part]:
    chunks, at = [], len(_PNG)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += length + 12
    return chunks


def _png_chunk(chunk: _Part) -> bytes:
    kind, content = chunk
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _jpeg_segments(data: bytes) -> tuple[list[_Part], bytes]:
    """The segments before the first scan, and everything from there."""
    segments, at = [], 2
    while data[at + 1] != _START_OF_SCAN:
        (length,) = struct.unpack_from(">H", data, at + 2)
        segments.append((data[at : at + 2], data[at + 4 : at + 2 + length]))
        at += 2 + length
    return segments, data[at:]


def _jpeg_segment(segment: _Part) -> bytes:
    marker, content = segment
    return marker + struct.pack(">H", (len(content) + 2) % 2**16) + content


def _riff_chunks(data: bytes) -> list[_Part]:
    chunks, at = [], _RIFF.size
    while at + _CHUNK.size <= len(data):
        kind, length = _CHUNK.unpack_from(data, at)
        chunks.append((kind, data[at + _CHUNK.size : at + _CHUNK.size + length]))
        at += _CHUNK.size + length + length % 2
    return chunks


def _riff_chunk(chunk: _Part) -> bytes:
    kind, content = chunk
    return _CHUNK.pack(kind, len(content)) + content + b"\0" * (len(content) % 2)
