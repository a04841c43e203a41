"""A model's outputs to the answer of an inference request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.model.loaded import LoadedTask
from service.model.work import Floats, Output, top_indices
from service.v2.binary import pack_bytes
from service.v2.request import LABELS, Question, WantedOutput
from service.v2.schemas import InferResponse, OutputTensor


@dataclass(frozen=True)
class Answer:
    """The body of an answer; header_length: bytes of its JSON, None if it is nothing else."""

    body: bytes
    header_length: int | None


def answer(task: LoadedTask, question: Question, outputs: Sequence[Output]) -> Answer:
    """The outputs that were asked for, of every image."""
    tensors, parts = [], []
    for wanted in question.outputs:
        tensor, binary = _output(wanted, outputs, task.header.labels)
        tensors.append(tensor)
        parts.append(binary)
    response = InferResponse(
        model_name=task.header.name, model_version=str(task.generation), id=question.id, outputs=tensors
    )
    header = response.model_dump_json(exclude_none=True).encode()
    if not any(wanted.binary for wanted in question.outputs):
        return Answer(header, None)
    return Answer(b"".join([header, *parts]), len(header))


def _output(wanted: WantedOutput, outputs: Sequence[Output], labels: Sequence[str]) -> tuple[OutputTensor, bytes]:
    """One output, and its bytes if they are to follow the JSON."""
    if wanted.name == LABELS:
        return _strings(wanted, [[labels[int(one.logits.argmax())]] for one in outputs], [len(outputs)])
    vectors = [getattr(one, wanted.name) for one in outputs]
    if wanted.classes:
        rows = [_ranked(values, labels, min(wanted.classes, len(labels))) for values in vectors]
        return _strings(wanted, rows, [len(rows), len(rows[0])])
    together = np.stack(vectors)
    shape = list(together.shape)
    if not wanted.binary:
        return OutputTensor(name=wanted.name, datatype="FP32", shape=shape, data=together.flatten().tolist()), b""
    data = together.astype("<f4", copy=False).tobytes()
    return _announced(wanted.name, "FP32", shape, data), data


def _ranked(values: Floats, labels: Sequence[str], count: int) -> list[str]:
    """The classification extension: the best, as value:index:label."""
    return [f"{values[index]:f}:{index}:{labels[index]}" for index in top_indices(values, count)]


def _strings(wanted: WantedOutput, rows: Sequence[Sequence[str]], shape: list[int]) -> tuple[OutputTensor, bytes]:
    flat = [text for row in rows for text in row]
    if not wanted.binary:
        return OutputTensor(name=wanted.name, datatype="BYTES", shape=shape, data=list(flat)), b""
    data = pack_bytes([text.encode() for text in flat])
    return _announced(wanted.name, "BYTES", shape, data), data


def _announced(name: str, datatype: str, shape: list[int], data: bytes) -> OutputTensor:
    return OutputTensor(name=name, datatype=datatype, shape=shape, parameters={"binary_data_size": len(data)})
