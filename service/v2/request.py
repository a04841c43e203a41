"""Parses the body of an inference request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from service.errors import InvalidRequestError
from service.inputs import parse
from service.json_size import check_json_size
from service.v2.binary import split
from service.v2.schemas import InferRequest, OutputParameters, RequestedOutput
from service.v2.tensors import Limits, read_input

EMBEDDING, LABELS, LOGITS, PROBABILITIES = "embedding", "labels", "logits", "probabilities"
OUTPUTS = (PROBABILITIES, LOGITS, EMBEDDING, LABELS)
_DEFAULT_OUTPUTS = (PROBABILITIES, LABELS)
_RANKED = (PROBABILITIES, LOGITS)


@dataclass(frozen=True)
class WantedOutput:
    """An output; binary: behind the JSON; classes: so many best labels in its place, if not 0."""

    name: str
    binary: bool
    classes: int


@dataclass(frozen=True)
class Question:
    """A parsed request; images: encoded, or uint8 or float32 [N, 3, H, W]; timeout: seconds, None if it has none."""

    id: str | None
    images: list[bytes] | Tensor
    outputs: list[WantedOutput]
    reduced: bool
    timeout: float | None


def read_request(body: bytes, header_length: str | None, limits: Limits) -> Question:
    """Reads an `InferRequest`, with the bytes behind it.

    Raises:
        BadRequestError: if the header or the bytes behind the JSON do not fit the body.
        InvalidRequestError: if a field is wrong, or an input or output is unknown or of a wrong type or shape.
        TooLargeError: if the JSON has too many values, or the request too many images.
    """
    text, binary = split(body, header_length)
    check_json_size(text)
    request = parse(InferRequest, text)
    parameters = request.parameters
    return Question(
        id=request.id,
        outputs=_outputs(request.outputs, parameters.binary_data_output),
        images=read_input(request.inputs, binary, parameters.content_type, limits),
        reduced=parameters.tokens == "reduced",
        timeout=parameters.timeout / 1_000_000 or None,
    )


def _outputs(asked: Sequence[RequestedOutput], binary: bool) -> list[WantedOutput]:
    names = [one.name for one in asked]
    for i, name in enumerate(names):
        if name not in OUTPUTS:
            raise InvalidRequestError(f"there is no output {name!r}; known are {', '.join(OUTPUTS)}")
        if name in names[:i]:
            raise InvalidRequestError(f"the output {name} is requested twice")
        if asked[i].parameters.classification and name not in _RANKED:
            raise InvalidRequestError(f"classification is for {' and '.join(_RANKED)}, not {name}")
    wanted = asked or [RequestedOutput(name=name) for name in _DEFAULT_OUTPUTS]
    return [WantedOutput(one.name, _binary(one.parameters, binary), one.parameters.classification) for one in wanted]


def _binary(parameters: OutputParameters, default: bool) -> bool:
    return default if parameters.binary_data is None else parameters.binary_data
