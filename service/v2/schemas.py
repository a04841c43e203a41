"""The JSON of the Open Inference Protocol; what goes in is strict, and unknown fields are refused."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

_NAME_LENGTH = 100
_MAX_INT64 = 2**63 - 1


class Asked(BaseModel):
    """Base of the schemas of requests; a field that is null counts as absent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_null(cls, given: Any) -> Any:
        """Some clients write every field that the protocol has, and null where they have nothing to say."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None or name not in cls.model_fields}


class InputParameters(Asked):
    """How the data of an input come."""

    binary_data_size: int | None = Field(default=None, ge=0, description="bytes behind the JSON that are its data")
    content_type: Literal["base64"] | None = Field(default=None, description="what the strings in `data` are")


class InputTensor(Asked):
    """One input: its data follow the JSON if it has a `binary_data_size`, and are in `data` otherwise."""

    name: str = Field(max_length=_NAME_LENGTH, examples=["pixels"])
    datatype: str = Field(max_length=_NAME_LENGTH, examples=["UINT8"])
    shape: list[int] = Field(max_length=8, examples=[[1, 3, 224, 224]])
    parameters: InputParameters = InputParameters()
    data: list[Any] | None = Field(default=None, description="row-major, flat or nested as the shape says")


class OutputParameters(Asked):
    """How an output is to come."""

    binary_data: bool | None = Field(default=None, description="behind the JSON of the answer instead of inside it")
    classification: int = Field(default=0, ge=0, description="so many best labels instead of the tensor, if not 0")


class RequestedOutput(Asked):
    """One output."""

    name: str = Field(max_length=_NAME_LENGTH, examples=["probabilities"])
    parameters: OutputParameters = OutputParameters()


class RequestParameters(Asked):
    """What holds for a whole request."""

    binary_data_output: bool = Field(default=False, description="binary_data of all outputs that do not say")
    content_type: Literal["base64"] | None = Field(default=None, description="content_type of the input")
    tokens: Literal["reduced", "full"] = Field(default="reduced", description="with the task's token reduction or not")
    timeout: int = Field(default=0, ge=0, le=_MAX_INT64, description="microseconds that the client waits, if not 0")


class InferRequest(Asked):
    """An inference; `inputs` is one of `image`, `pixels` and `input`."""

    id: str | None = Field(default=None, max_length=1000, description="comes back in the answer")
    inputs: list[InputTensor] = Field(max_length=16)
    outputs: list[RequestedOutput] = Field(default=[], max_length=16, description="probabilities and labels if empty")
    model_name: str | None = Field(default=None, max_length=1000, description="what the path says counts")
    parameters: RequestParameters = RequestParameters()


class OutputTensor(BaseModel):
    """One output: its data follow the JSON if it has a `binary_data_size`."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, int] | None = None
    data: list[JsonValue] | None = None


class InferResponse(BaseModel):
    """The answer to an inference."""

    model_name: str = Field(examples=["fashion-mnist"])
    model_version: str = Field(examples=["1"])
    id: str | None = None
    outputs: list[OutputTensor]


class ServerMetadata(BaseModel):
    """The server, and the extensions of the protocol that it speaks."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """An input or output; -1 is the number of images."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """A model's name, versions, input and output."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Live(BaseModel):
    """The server lives."""

    live: bool


class Ready(BaseModel):
    """The server answers inferences."""

    ready: bool


class ModelReady(BaseModel):
    """A model answers inferences."""

    name: str
    ready: bool


class TensorConfig(BaseModel):
    """An input or output of one image."""

    name: str
    data_type: str
    format: str | None = None
    dims: list[int]


class Text(BaseModel):
    """The value of a parameter of a configuration."""

    string_value: str


class ModelConfig(BaseModel):
    """The part of Triton's `ModelConfig` that says something here."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[TensorConfig]
    output: list[TensorConfig]
    version_policy: dict[str, dict[str, int]]
    dynamic_batching: dict[str, list[int]]
    parameters: dict[str, Text]


class Duration(BaseModel):
    """How often something happened, and how many nanoseconds it took in all."""

    count: int
    ns: int


class InferStatistics(BaseModel):
    """Requests by outcome, and the stages of those that succeeded."""

    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration


class ModelStatistics(BaseModel):
    """What a model did since the service started, whatever its version was."""

    name: str
    version: str
    last_inference: int = Field(description="milliseconds since the epoch; 0 if there was none")
    inference_count: int = Field(description="images")
    execution_count: int = Field(description="batches with images of this model")
    inference_stats: InferStatistics
    batch_stats: list[JsonValue] = Field(description="empty: models share batches")
    memory_usage: list[JsonValue] = Field(description="empty: models share a backbone")


class AllStatistics(BaseModel):
    """Statistics of one model or of all."""

    model_stats: list[ModelStatistics]


class IndexRequest(Asked):
    """Which models to list."""

    repository_name: str = Field(default="", max_length=_NAME_LENGTH)
    ready: bool = Field(default=False, description="only those that answer")


class IndexEntry(BaseModel):
    """A model in the task folder, and whether it answers."""

    name: str
    version: str | None = Field(default=None, description="of what answers")
    state: Literal["READY", "LOADING", "UNAVAILABLE"]
    reason: str


class ChangeParameters(Asked):
    """No file or configuration comes this way: `PUT /v1/tasks/{task}` takes a task file."""

    unload_dependents: bool = Field(default=False, description="nothing depends on a task")


class ChangeRequest(Asked):
    """A request to load or unload."""

    parameters: ChangeParameters = ChangeParameters()
