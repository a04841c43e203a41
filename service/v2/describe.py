"""The protocol's descriptions of the server and its models: metadata, configuration, index and statistics.

A model's metadata name one input and one output, although it takes others too: clients that go by the metadata send
every input that they name, and Triton's image client refuses models with more than one of either. UINT8 pixels are what
such a client can fill in without knowing how a task normalises. The configuration's parameters tell the alternatives.
"""

from __future__ import annotations

import fpet
from service.model.loaded import LoadedTask
from service.settings import Settings
from service.statistics import Counted, Total
from service.tasks.entry import Entry
from service.v2.request import OUTPUTS, PROBABILITIES
from service.v2.schemas import (
    Duration,
    IndexEntry,
    InferStatistics,
    ModelConfig,
    ModelMetadata,
    ModelStatistics,
    ServerMetadata,
    TensorConfig,
    TensorMetadata,
    Text,
)
from service.v2.tensors import DATATYPES, PIXELS

_PLATFORM = "fpet"
_EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "statistics",
]


def server() -> ServerMetadata:
    """The service and the extensions of the protocol that it speaks."""
    return ServerMetadata(name="fpet-serve", version=fpet.__version__, extensions=_EXTENSIONS)


def metadata(task: LoadedTask) -> ModelMetadata:
    """A task as a model."""
    header = task.header
    return ModelMetadata(
        name=header.name,
        versions=[str(task.generation)],
        platform=_PLATFORM,
        inputs=[TensorMetadata(name=PIXELS, datatype=DATATYPES[PIXELS], shape=[-1, 3, *header.preprocessing.size])],
        outputs=[TensorMetadata(name=PROBABILITIES, datatype="FP32", shape=[-1, len(header.labels)])],
    )


def config(task: LoadedTask, settings: Settings) -> ModelConfig:
    """A task as Triton would configure it."""
    header = task.header
    return ModelConfig(
        name=header.name,
        platform=_PLATFORM,
        backend=_PLATFORM,
        max_batch_size=settings.max_images,
        input=[
            TensorConfig(
                name=PIXELS, data_type="TYPE_UINT8", format="FORMAT_NCHW", dims=[3, *header.preprocessing.size]
            )
        ],
        output=[TensorConfig(name=PROBABILITIES, data_type="TYPE_FP32", dims=[len(header.labels)])],
        version_policy={"latest": {"num_versions": 1}},
        dynamic_batching={"preferred_batch_size": [settings.max_batch]},
        parameters={
            "inputs": Text(string_value=", ".join(f"{name} {kind}" for name, kind in DATATYPES.items())),
            "outputs": Text(string_value=", ".join(OUTPUTS)),
            "digest": Text(string_value=task.digest),
        },
    )


def index_entry(entry: Entry, refusal: str | None = None) -> IndexEntry:
    """A task in the folder; a task whose new file failed is ready, on the old one.

    refusal: why the service answers nobody, if it does not; no task is ready then.
    """
    if entry.task is not None and refusal is None:
        return IndexEntry(name=entry.name, version=str(entry.task.generation), state="READY", reason=entry.reason or "")
    if entry.state == "loading":
        return IndexEntry(name=entry.name, state="LOADING", reason="")
    return IndexEntry(name=entry.name, state="UNAVAILABLE", reason=entry.reason or refusal or "unloaded")


def statistics(task: LoadedTask, counted: Counted) -> ModelStatistics:
    """What a task did since the service started."""
    name = task.header.name
    success, failure = (counted.requests(name, result) for result in ("success", "failure"))
    nothing = Duration(count=0, ns=0)
    return ModelStatistics(
        name=name,
        version=str(task.generation),
        last_inference=round(1000 * counted.last(name)),
        inference_count=counted.images(name),
        execution_count=counted.batches(name),
        inference_stats=InferStatistics(
            success=_duration(success),
            fail=_duration(failure),
            queue=_duration(counted.stage(name, "queue")),
            compute_input=_duration(counted.stage(name, "decode")),
            compute_infer=_duration(counted.stage(name, "inference")),
            compute_output=nothing,  # part of the inference: its clock stops when the outputs are there
            cache_hit=nothing,
            cache_miss=nothing,
        ),
        batch_stats=[],
        memory_usage=[],
    )


def _duration(total: Total) -> Duration:
    return Duration(count=total.count, ns=round(1e9 * total.seconds))
