"""The one input of a request: encoded images, pixels, or pixels that the client has normalised."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from service.errors import BadRequestError, InvalidRequestError, TooLargeError
from service.inputs import decode_base64
from service.v2.binary import unpack_bytes
from service.v2.schemas import InputTensor

IMAGE, PIXELS, NORMALIZED = "image", "pixels", "input"
DATATYPES = {IMAGE: "BYTES", PIXELS: "UINT8", NORMALIZED: "FP32"}
_DTYPES = {PIXELS: torch.uint8, NORMALIZED: torch.float32}
_BASE64 = "base64"


@dataclass(frozen=True)
class Limits:
    """What an input may be; size: (height, width) of the task's images."""

    size: tuple[int, int]
    max_images: int


def read_input(
    inputs: Sequence[InputTensor], binary: memoryview | None, content_type: str | None, limits: Limits
) -> list[bytes] | Tensor:
    """Encoded images, or uint8 or float32 [N, 3, H, W]; binary: what is behind the JSON of the request.

    Raises:
        InvalidRequestError, BadRequestError, TooLargeError: naming the input and what is wrong with it.
    """
    if len(inputs) != 1:
        raise InvalidRequestError(f"{len(inputs)} inputs; send one of {', '.join(DATATYPES)}")
    (tensor,) = inputs
    _check_head(tensor, limits)
    data = _binary_data(tensor, binary)
    if tensor.name == IMAGE:
        return _images(tensor, data, tensor.parameters.content_type or content_type)
    pixels = _numbers(tensor) if data is None else _from_buffer(tensor, data)
    if not torch.isfinite(pixels).all():
        raise InvalidRequestError(f"the input {tensor.name} has values that are not finite")
    return pixels.reshape(tensor.shape)


def _check_head(tensor: InputTensor, limits: Limits) -> None:
    name, shape = tensor.name, tensor.shape
    if name not in DATATYPES:
        raise InvalidRequestError(f"there is no input {name!r}; send one of {', '.join(DATATYPES)}")
    if tensor.datatype != DATATYPES[name]:
        raise InvalidRequestError(f"the input {name} is {DATATYPES[name]}, not {tensor.datatype!r}")
    # Clients that batch send BYTES as [N, 1].
    expected = [[], [1]] if name == IMAGE else [[3, *limits.size]]
    if not shape or shape[0] < 1 or shape[1:] not in expected:
        wanted = ", ".join(["images", *map(str, expected[0])])
        raise InvalidRequestError(f"the input {name} has the shape {shape} instead of [{wanted}]")
    if shape[0] > limits.max_images:
        raise TooLargeError(f"the request has more than {limits.max_images} images")


def _binary_data(tensor: InputTensor, binary: memoryview | None) -> memoryview | None:
    """The bytes of the input if they are behind the JSON; None if it has its data inside."""
    size, behind = tensor.parameters.binary_data_size, 0 if binary is None else len(binary)
    if size is not None and tensor.data is not None:
        raise InvalidRequestError(f"the input {tensor.name} has both data and binary_data_size")
    if size is None and tensor.data is None:
        raise InvalidRequestError(f"the input {tensor.name} has neither data nor binary_data_size")
    if size is not None and binary is None:
        raise BadRequestError("binary_data_size needs the header Inference-Header-Content-Length")
    if behind != (size or 0):
        raise BadRequestError(f"{behind} bytes follow the JSON; the input announces {size or 0}")
    return binary if size is not None else None


def _images(tensor: InputTensor, data: memoryview | None, content_type: str | None) -> list[bytes]:
    count = tensor.shape[0]
    if data is not None:
        return unpack_bytes(data, count)
    texts = _flat(tensor)
    if content_type != _BASE64:
        raise InvalidRequestError(
            f'images inside JSON are base64, and the parameters say {{"content_type": "{_BASE64}"}}'
        )
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequestError(f"the input {IMAGE} has data that are not strings")
    return [decode_base64(text, f"inputs.0.data.{i}") for i, text in enumerate(texts)]


def _from_buffer(tensor: InputTensor, data: memoryview) -> Tensor:
    dtype = _DTYPES[tensor.name]
    expected = math.prod(tensor.shape) * dtype.itemsize
    if len(data) != expected:
        raise BadRequestError(f"the input {tensor.name} has {len(data)} bytes; its shape asks for {expected}")
    return torch.frombuffer(bytearray(data), dtype=dtype)


def _numbers(tensor: InputTensor) -> Tensor:
    """Converts without NumPy's or torch's own conversion of lists: one long string among numbers makes these allocate
    its length for every element."""
    values, dtype = _flat(tensor), _DTYPES[tensor.name]
    if not set(map(type, values)) <= ({int} if dtype == torch.uint8 else {int, float}):
        wanted = "whole numbers" if dtype == torch.uint8 else "numbers"
        raise InvalidRequestError(f"the input {tensor.name} has data that are not {wanted}")
    try:
        # Doubles hold every FP32 and UINT8 value exactly.
        numbers = torch.frombuffer(array("d", values), dtype=torch.float64)
    except OverflowError as error:
        raise InvalidRequestError(f"the input {tensor.name} has values that are out of range") from error
    if dtype == torch.uint8 and not ((numbers >= 0) & (numbers <= 255)).all():
        raise InvalidRequestError(f"the input {tensor.name} has values outside 0 to 255")
    return numbers.to(dtype)


def _flat(tensor: InputTensor) -> list[Any]:
    """The data of an input, row-major; they may be nested as the shape says."""
    values: list[Any] = tensor.data or []
    if values and isinstance(values[0], list):
        if len(values) != tensor.shape[0]:
            raise InvalidRequestError(f"the input {tensor.name} has {len(values)} rows; its shape is {tensor.shape}")
        for extent in tensor.shape[1:]:
            if any(not isinstance(row, list) or len(row) != extent for row in values):
                raise InvalidRequestError(f"the data of the input {tensor.name} are not nested as {tensor.shape}")
            values = list(chain.from_iterable(values))
    if len(values) != math.prod(tensor.shape):
        raise InvalidRequestError(
            f"the input {tensor.name} has {len(values)} values; its shape asks for {math.prod(tensor.shape)}"
        )
    return values
