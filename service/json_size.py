"""How much JSON is parsed: all that it holds becomes objects of Python, of many times its bytes, as does what is wrong
with it, and every thread waits meanwhile."""

from __future__ import annotations

from service.errors import TooLargeError

# Six images of 224 pixels as numbers have fewer of all three. Containers are slow to make by the million.
_MAX_VALUES = 2**20
_MAX_CONTAINERS = 2**16
_MAX_FIELDS = 2**14


def check_json_size(text: bytes) -> None:
    """Before it is parsed: strings may hold commas, colons and brackets too, but images in base64 do not.

    Raises:
        TooLargeError
    """
    if text.count(b",") >= _MAX_VALUES:
        raise TooLargeError(f"the JSON has more than {_MAX_VALUES} values; send tensors as binary data")
    if text.count(b"[") + text.count(b"{") > _MAX_CONTAINERS:
        raise TooLargeError(f"the JSON has more than {_MAX_CONTAINERS} arrays and objects")
    if text.count(b":") > _MAX_FIELDS:
        raise TooLargeError(f"the JSON has more than {_MAX_FIELDS} fields")
