"""A limit on the values of a JSON document: parsing makes Python objects of many times its bytes, also of what is wrong
with it, and keeps the interpreter lock meanwhile."""

from __future__ import annotations

from service.errors import TooLargeError

# Six images of 224 pixels as numbers have fewer of all three. Containers are slow to make by the million.
_MAX_VALUES = 2**20
_MAX_CONTAINERS = 2**16
_MAX_FIELDS = 2**14


def check_json_size(text: bytes) -> None:
    """Checks a document before it is parsed, by counting commas, colons and brackets.

    Those inside strings count too; images in base64 have none.

    Raises:
        TooLargeError: if it may have too many values, arrays and objects, or fields.
    """
    if text.count(b",") >= _MAX_VALUES:
        raise TooLargeError(f"the JSON has more than {_MAX_VALUES} values; send tensors as binary data")
    if text.count(b"[") + text.count(b"{") > _MAX_CONTAINERS:
        raise TooLargeError(f"the JSON has more than {_MAX_CONTAINERS} arrays and objects")
    if text.count(b":") > _MAX_FIELDS:
        raise TooLargeError(f"the JSON has more than {_MAX_FIELDS} fields")
