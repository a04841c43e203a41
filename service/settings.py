"""Every option of the service, declared once: name, default, bounds and help.

An option `max_batch` is the environment variable FPET_MAX_BATCH and the flag --max-batch of `fpet serve`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "FPET_"
ALL = "*"
_DOWNLOADED = "timm:"  # what commands but not a service take for a backbone
SECRETS = ("admin_key", "api_keys")  # options that are no flags; each may be in a file instead

Format = Literal["jpeg", "png", "webp", "gif", "bmp", "tiff", "avif"]

_LEAST = 16  # characters of a key
# What ends a header or is refused in one by the server, which takes all else; clients send keys in UTF-8.
_IN_NO_HEADER = re.compile(r"[\0\n\v\f\r\ud800-\udfff]")


def _check_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    if len(text) < _LEAST:
        raise ValueError(f"the key is too short; it needs at least {_LEAST} characters")
    if _IN_NO_HEADER.search(text) or text != text.strip(" \t"):  # around a header's value blanks mean nothing
        raise ValueError("no header can hold this key; it has to be one line of UTF-8, with no blanks around it")
    return key


Key = Annotated[SecretStr, AfterValidator(_check_key)]


def _split(value: object) -> object:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _named(value: object) -> object:
    if value == "":  # as a path it would be the working directory
        raise ValueError("is empty; leave it out for the default")
    return value


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


class Settings(BaseSettings):
    """Options of the service; the constructor wins over the environment, which wins over the default."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    host: str = Field(default="127.0.0.1", description="address to listen on; empty: all, of IPv4 and of IPv6")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    root_path: str = Field(
        default="",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        description="path prefix under which a proxy serves this service and which it strips, such as /vision",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="lowest level to log; info has a line per request, except for health and metrics",
    )
    log_format: Literal["text", "json"] = Field(default="text", description="log as text, or one JSON object per line")
    otlp_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^/]",
        description="where to send traces by OTLP over HTTP; or OTEL_EXPORTER_OTLP_ENDPOINT says it",
    )

    backbone: Annotated[Path | None, BeforeValidator(_named)] = Field(
        default=None, description="safetensors file of the backbone; the embedded one if not given"
    )
    tasks: Annotated[Path | None, BeforeValidator(_named)] = Field(
        default=None, description="folder of task files; the embedded one if not given"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="where the forward runs; auto: cuda if there is one"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="type of weights and activations; auto: bfloat16 where the device is faster in it, else float32",
    )

    processes: int = Field(
        default=1, ge=1, le=64, description="processes that answer on the port, each with a copy of all that serves"
    )
    workers: int = Field(
        default=0, ge=0, le=256, description="forwards at once; 0: the number measured to be fastest; on a GPU one"
    )
    threads: int = Field(
        default=0, ge=0, le=256, description="threads in one forward on the CPU; 0: the number measured to be fastest"
    )
    decode_threads: int = Field(
        default=0, ge=0, le=256, description="threads that decode images; 0: one a core, shared out among processes"
    )
    cuda_graphs: bool = Field(
        default=False, description="on a GPU, capture forwards and replay them where that is measured to be faster"
    )
    max_batch: int = Field(default=16, ge=1, le=1024, description="images in one forward")
    max_batch_tasks: int = Field(default=16, ge=1, le=1024, description="different tasks in one forward")
    max_queue: int = Field(
        default=256, ge=1, description="images that wait; more get 429, but for max_batch of tasks with none waiting"
    )
    deadline: float = Field(
        default=30.0, gt=0, description="seconds from a request's arrival until it is answered with 504"
    )
    # If the proxy closes idle connections first, no request can cross with the closing.
    keep_alive_seconds: int = Field(
        default=75,
        ge=1,
        le=86_400,
        description="seconds that an idle connection is kept; a proxy in front should keep one for less",
    )
    stuck_seconds: float = Field(
        default=300.0, gt=0, description="seconds after which a batch is stuck, and /livez says 503 until it ends"
    )

    max_body: int = Field(default=32 * 2**20, ge=1, description="bytes in a request's body")
    max_received: int = Field(
        default=256 * 2**20,
        ge=1,
        description="bytes in all bodies, decompressed, whose requests wait for an answer; more are refused with 429",
    )
    max_pixels: int = Field(default=50_000_000, ge=1, description="pixels in an image, before it is resized")
    max_images: int = Field(
        default=64, ge=1, description="images in a request, times its tasks; no more than the queue has places"
    )
    formats: Annotated[tuple[Format, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=("jpeg", "png", "webp", "gif", "bmp"),
        min_length=1,
        description=f"image formats accepted, comma-separated, of {', '.join(get_args(Format))}",
    )

    preload: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(ALL,), description=f"tasks to load at start-up, comma-separated; {ALL} for all, empty for none"
    )
    watch: bool = Field(default=True, description="follow the task folder: load what is new or changed, drop the rest")
    max_task_bytes: int = Field(default=256 * 2**20, ge=1, description="bytes in a task file")
    admin_key: Key | None = Field(
        default=None, description="key with which tasks can be changed; without one nobody can"
    )
    admin_key_file: Path | None = Field(
        default=None, description="file that holds the admin key; or FPET_ADMIN_KEY is the key"
    )
    api_keys: Annotated[tuple[Key, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(), description="keys of clients, of which each request needs one; without any everybody may ask"
    )
    api_keys_file: Path | None = Field(
        default=None, description="file with keys of clients, one a line; or FPET_API_KEYS has them, comma-separated"
    )

    unpacked_bytes: int = Field(
        default=128 * 2**20,
        ge=0,
        description="bytes for dequantised weights of the low-bit tasks used last; 0: dequantised for every batch",
    )
    folded_bytes: int = Field(
        default=256 * 2**20, ge=0, description="bytes for the folded weights of hot and pinned tasks; 0: none is folded"
    )
    folded_share: float = Field(
        default=0.2, gt=0, le=1, description="share of about the latest 1000 images at which a task is folded"
    )

    calibration_repeats: int = Field(
        default=8,
        ge=0,
        le=100,
        description="timings a batch size, with and without token reduction; fewer if slow, more if fast; 0: none",
    )
    shadow_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of batches that run again, with token reduction and without, after they were answered",
    )
    shutdown_delay: float = Field(
        default=1.0,
        ge=0,
        le=86_400,
        description="seconds after SIGTERM in which /readyz says 503 and requests are still accepted",
    )
    drain_seconds: float = Field(
        default=30.0, gt=0, le=86_400, description="seconds that accepted requests then have to finish"
    )

    @classmethod
    def unknown_variables(cls) -> list[str]:
        """Variables of the environment that are named like options and are none, as misspelt ones are."""
        known = {f"{PREFIX}{name}".upper() for name in cls.model_fields}
        return sorted(name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known)

    @model_validator(mode="before")
    @classmethod
    def _read_keys(cls, values: dict[str, object]) -> dict[str, object]:
        for name in SECRETS:
            file = values.pop(f"{name}_file", None)
            if file is None:
                continue
            if values.get(name) is not None:
                raise ValueError(f"{name} and {name}_file: give one of them")
            if file == "":  # as a path it would be the working directory
                raise ValueError(f"{name}_file: is empty; leave it out for no key")
            try:
                text = Path(str(file)).read_text("utf-8-sig")  # a mark of UTF-8 is no part of a key
            except OSError as error:
                raise ValueError(f"{name}_file: {file} cannot be read: {error.strerror}") from error
            except UnicodeDecodeError as error:
                raise ValueError(f"{name}_file: {file} is not UTF-8") from error
            if not text.strip():
                raise ValueError(f"{name}_file: {file} names no key")
            values[name] = _lines(text) if name == "api_keys" else text.strip()
        return values

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if "api_keys" in self.model_fields_set and not self.api_keys:
            raise ValueError("api_keys: names no key, and then everybody could ask; leave it out if that is meant")
        if self.admin_key in self.api_keys:
            raise ValueError("api_keys: the admin key must not be among them")
        return self

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if str(self.backbone).startswith(_DOWNLOADED):
            command = f"fpet import-backbone {self.backbone} --output FILE"
            raise ValueError(f"backbone: a service takes a file; {command} writes one")
        if self.admin_key is not None and self.tasks is None:
            raise ValueError("admin_key: the embedded tasks stay as they are; give --tasks FOLDER, or no key")
        return self

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        if self.max_images > self.max_queue:
            raise ValueError(f"max_images ({self.max_images}) must not exceed max_queue ({self.max_queue})")
        if self.max_body > self.max_received:
            raise ValueError(f"max_body ({self.max_body}) must not exceed max_received ({self.max_received})")
        return self
