"""What both clients share: their options, and every conversation that they can have."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import httpx

from fpet.client import calls
from fpet.client.answers import Classification
from fpet.client.calls import Options
from fpet.client.errors import RefusedImageError, ServiceError, concerns_images
from fpet.client.exchange import Call, Conversation, ask
from fpet.client.pictures import Batch, Encoded, batches
from fpet.client.retry import Patience, require_whole
from fpet.errors import ImageError, TaskError, UnsupportedError
from fpet.files import read_bytes
from fpet.pictures import Pictures

Answer = TypeVar("Answer")
Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)

# As many as httpx opens unless it is told otherwise. Its pool lets the next request wait, and loses a connection for
# good if that one gives up just as it is given it: so requests wait for a turn before, and the pool has one for each.
CONNECTIONS = 100
_PORTS = 2**16
_USERINFO = re.compile("//[^/?#]*@")


@dataclass(eq=False, repr=False)
class Session:
    """A service and how it is asked.

    url: where it is, such as http://127.0.0.1:8000; key: for what the service lets only its holders do; neither changes
    once the client is made, all else may. timeout: seconds for a request and all of its repetitions; retries:
    repetitions of a request. batch: images in a request, times its tasks; concurrency: requests at once; max_body:
    bytes in a request, no more than the service takes.

    Raises:
        UnsupportedError: for an address or a key that cannot be used, or a proxy or certificate of the environment.
        ValueError: for what is no number in its range.
    """

    url: str
    key: str | None = None
    timeout: float = 60.0
    retries: int = 5
    batch: int = field(default=16, kw_only=True)
    concurrency: int = field(default=4, kw_only=True)
    max_body: int = field(default=32 * 2**20, kw_only=True)

    def __post_init__(self) -> None:
        Patience(self.timeout, self.retries)  # refuses what is no number in its range
        for name in ("batch", "concurrency", "max_body"):
            require_whole(name, getattr(self, name), least=1)
        try:
            url = httpx.URL(self.url)
            url.raw_host.decode().encode("idna")  # as Python looks it up: labels of no letters or too many are errors
        except (httpx.InvalidURL, UnicodeError) as error:
            raise UnsupportedError(f"{self._address!r} is no address of a service: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise UnsupportedError(
                f"{self._address!r} is no address of a service; those begin with http:// or https://"
            )
        if url.port is not None and not 0 < url.port < _PORTS:  # the system would take it modulo that
            raise UnsupportedError(f"{self._address!r} is no address of a service: there is no port {url.port}")
        if url.query or url.fragment:  # paths are put behind it
            raise UnsupportedError(f"{self._address!r} is no address of a service; those have no query and no fragment")
        if self.key is not None and url.userinfo:  # httpx would send these alone
            raise UnsupportedError("the address has a name or a password in it, which take the place of the key")
        if self.key is not None and not (self.key and self.key == self.key.strip() and self.key.isprintable()):
            raise UnsupportedError("the key is empty, or has spaces around it or characters that a header cannot hold")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._address!r})"

    @property
    def _address(self) -> str:
        """The service's, without the name and password that may stand in it."""
        return _USERINFO.sub("//", self.url, count=1)

    @property
    def _patience(self) -> Patience:
        return Patience(self.timeout, self.retries)

    def _open(self, kind: Callable[..., Http], **options: Any) -> Http:
        """Either client of httpx, which takes proxies and certificates from the environment.

        Raises:
            UnsupportedError: if those cannot be used.
        """
        headers = {} if self.key is None else {"authorization": f"Bearer {self.key}".encode()}
        try:
            return kind(base_url=self.url, headers=headers, **options)
        except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
            raise UnsupportedError(f"a proxy or certificate of the environment cannot be used: {error}") from error

    def _ask(self, call: Call[Answer]) -> Conversation[Answer]:
        return ask(call, self._patience, math.inf)

    def _ask_once(self, call: Call[Answer]) -> Conversation[Answer]:
        return ask(call, Patience(self.timeout, retries=0), math.inf)

    def _about(self, image: Encoded, call: Call[Answer]) -> Conversation[Answer]:
        """Asks about one image, which an error names."""
        try:
            return (yield from self._ask(call))
        except ServiceError as error:
            if not concerns_images(error):
                raise
            raise RefusedImageError.of(error, image.name) from error

    def _classify(
        self, images: Pictures, task: str, options: Options
    ) -> Iterator[Conversation[list[Classification | ImageError]]]:
        """One conversation a batch, each with one answer an image."""
        call = partial(calls.classify, task, calls.query(options))
        return self._by_batches(images, self.batch, call, options)

    def _classify_many(
        self, images: Pictures, tasks: Sequence[str], options: Options
    ) -> Iterator[Conversation[list[list[Classification] | ImageError]]]:
        """One conversation a batch, each with one answer an image and task."""
        call = partial(calls.classify_many, tasks, calls.query(options))
        return self._by_batches(images, max(1, self.batch // len(tasks)), call, options)

    def _by_batches(
        self, images: Pictures, size: int, call: Callable[[list[bytes]], Call[list[Answer]]], options: Options
    ) -> Iterator[Conversation[list[Answer | ImageError]]]:
        seconds = options.get("deadline", math.inf)
        if not (isinstance(seconds, Real) and seconds > 0):
            raise ValueError(f"deadline = {seconds!r} should be a number of seconds above 0")
        deadline = time.monotonic() + float(seconds)  # numpy's float32 does not tell moments apart

        def asked(encoded: Sequence[Encoded]) -> Conversation[list[Answer]]:
            return ask(call([one.data for one in encoded]), self._patience, deadline)

        return (_readable(batch, asked) for batch in batches(images, size, self.max_body))


Asked = Callable[[Sequence[Encoded]], Conversation[list[Answer]]]


def strictly(conversation: Conversation[list[Answer | ImageError]]) -> Conversation[list[Answer]]:
    """The same conversation, which raises the first image's error instead of returning it."""
    found: list[Answer] = []
    for one in (yield from conversation):
        if isinstance(one, ImageError):
            raise one
        found.append(one)
    return found


def follow_nowhere(response: httpx.Response) -> None:
    """Has httpx take a redirection as an answer like any other: it would parse `location`, and fail if that is no
    address."""
    response.headers.pop("location", None)


def by_task(tasks: Sequence[str], rows: Sequence[list[Classification]]) -> dict[str, list[Classification]]:
    """Rows of answers, one an image, in the order of the tasks -> the answers of each task, by its name."""
    return {task: [row[i] for row in rows] for i, task in enumerate(tasks)}


def names(tasks: str | Sequence[str]) -> list[str]:
    """Names of tasks, of which there is at least one; text is one.

    Raises:
        ValueError: if there is none, one twice, or one with a comma, at which the service would part it.
    """
    listed = [tasks] if isinstance(tasks, str) else list(tasks)
    if not listed or len(set(listed)) < len(listed) or any("," in name for name in listed):
        raise ValueError(f"tasks = {listed} should be one or more names, each once, in a list and without commas")
    return listed


def read_task(file: str | Path | bytes) -> bytes:
    """A task file's bytes.

    Raises:
        TaskError: if it cannot be read.
    """
    return file if isinstance(file, bytes) else read_bytes(Path(file), TaskError)


def _readable(batch: Batch, asked: Asked[Answer]) -> Conversation[list[Answer | ImageError]]:
    """Asks about the images of a batch that could be read."""
    found = iter((yield from _halving([one for one in batch if isinstance(one, Encoded)], asked)))
    return [next(found) if isinstance(one, Encoded) else one for one in batch]


def _halving(images: Sequence[Encoded], asked: Asked[Answer]) -> Conversation[list[Answer | ImageError]]:
    """Asks about images together; if the service refuses one of them, about either half, until it stands alone."""
    if not images:
        return []
    try:
        return [*(yield from asked(images))]
    except ServiceError as error:
        if not concerns_images(error):
            raise
        if len(images) == 1:
            return [RefusedImageError.of(error, images[0].name)]
    half = len(images) // 2
    first = yield from _halving(images[:half], asked)
    return [*first, *(yield from _halving(images[half:], asked))]
