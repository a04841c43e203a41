"""The client for ordinary code and threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Semaphore, Thread
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from fpet.client import calls
from fpet.client.answers import Classification, Explanation, Savings, TaskInfo
from fpet.client.calls import Conditions, Options
from fpet.client.closing import Closing
from fpet.client.errors import DeadlineExceededError, NotReadyError, UnreachableError
from fpet.client.exchange import Conversation, Outcome, Send, Wait
from fpet.client.pictures import single
from fpet.client.session import CONNECTIONS, Session, by_task, follow_nowhere, names, read_task, strictly
from fpet.client.until import Until
from fpet.errors import ImageError
from fpet.pictures import Picture, Pictures

Answer = TypeVar("Answer")
_NEVER = Event()


@dataclass(eq=False, repr=False)
class Client(Session):
    """Asks a service; to be closed, or used in a `with` block. Threads may share it.

    When the time is up it gives up at the next bytes of an answer's content, or after a wait of that length: each wait,
    for a connection, to send or for more of the answer, may last so long. A peer that takes the request or gives the
    answer's headers bit by bit can hold a call up longer.

    transport: httpx's, for what it offers beyond an address, such as certificates, proxies or a Unix socket; with as
    many connections as it has by default, 100, or more: of this many, however many threads ask, are used at once.

    All methods raise ServiceError, as `fpet.client.errors` describes.
    """

    transport: httpx.BaseTransport | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._http = self._open(httpx.Client, transport=self.transport, event_hooks={"response": [follow_nowhere]})
        self._turns = Semaphore(CONNECTIONS)
        self._closing = Closing(self._http.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections, or has the last request that is under way do so; none is sent any more."""
        self._closing.ask()

    def classify(self, images: Pictures, task: str, **options: Unpack[Options]) -> list[Classification]:
        """One answer an image, in their order.

        Raises:
            ImageError: naming the first image that cannot be read or that the service refuses.
        """
        return self._all(map(strictly, self._classify(images, task, options)))

    def classify_each(
        self, images: Pictures, task: str, **options: Unpack[Options]
    ) -> list[Classification | ImageError]:
        """As `classify`, with the error of an image that is unreadable or refused in the place of its answer."""
        return self._all(self._classify(images, task, options))

    def classify_many(
        self, images: Pictures, tasks: str | Sequence[str], **options: Unpack[Options]
    ) -> dict[str, list[Classification]]:
        """By several tasks, each image sent and decoded once; raises as `classify`."""
        listed = names(tasks)
        return by_task(listed, self._all(map(strictly, self._classify_many(images, listed, options))))

    def explain(self, image: Picture, task: str) -> Explanation:
        """Which patches of an image merged; raises ImageError if it is unreadable or refused."""
        encoded = single(image)
        return self._run(self._about(encoded, calls.explain(task, encoded.data)))

    def explain_png(self, image: Picture, task: str) -> bytes:
        """A PNG of an image whose merged patches have their mean colour; raises as `explain`."""
        encoded = single(image)
        return self._run(self._about(encoded, calls.explain_png(task, encoded.data)))

    def tasks(self) -> list[TaskInfo]:
        """All tasks, by name."""
        return self._run(self._ask(calls.tasks()))

    def task(self, name: str) -> TaskInfo:
        """One task."""
        return self._run(self._ask(calls.task(name)))

    def savings(self) -> Savings:
        """What token reduction saved, as measured."""
        return self._run(self._ask(calls.savings()))

    def ready(self) -> bool:
        """Whether the service is there and takes requests, at the first attempt."""
        try:
            self._run(self._ask_once(calls.ready()))
        except (NotReadyError, UnreachableError, DeadlineExceededError):
            return False
        return True

    def put(self, task: str, file: str | Path | bytes, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Puts a task file, by its path or its bytes, into service; raises TaskError if it cannot be read."""
        return self._run(self._ask(calls.put(task, read_task(file), conditions)))

    def delete(self, task: str, **conditions: Unpack[Conditions]) -> None:
        """Takes a task out of service and deletes its file there."""
        self._run(self._ask(calls.delete(task, conditions)))

    def load(self, task: str, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Puts the file that lies in the service's folder into service, again if it is."""
        return self._run(self._ask(calls.change(task, "load", conditions)))

    def unload(self, task: str, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Takes a task out of service; its file stays."""
        return self._run(self._ask(calls.change(task, "unload", conditions)))

    def pin(self, task: str, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Folds a task into weights of its own and keeps it so."""
        return self._run(self._ask(calls.change(task, "pin", conditions)))

    def unpin(self, task: str, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Treats a task like any other again."""
        return self._run(self._ask(calls.change(task, "unpin", conditions)))

    def _run(self, conversation: Conversation[Answer], given_up: Event = _NEVER) -> Answer:
        outcome: Outcome = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            outcome = self._do(step, given_up)

    def _do(self, step: Send | Wait, given_up: Event) -> Outcome:
        if given_up.wait(step.seconds if isinstance(step, Wait) else 0):
            raise CancelledError("the call failed by another request")
        if isinstance(step, Wait):
            return None
        if not self._turns.acquire(timeout=step.seconds):
            return TimeoutError()
        try:
            with self._closing.use(), self._http.stream(**step.arguments()) as response:
                response.stream = Until(response.stream, step.expires)
                response.read()
        except httpx.RequestError as error:
            return error
        finally:
            self._turns.release()
        return response

    def _all(self, conversations: Iterable[Conversation[list[Answer]]]) -> list[Answer]:
        """The answers of the conversations, in their order. A few run at once; the next begins when the oldest ends.

        An error is raised without waiting for the requests that are under way, which nobody repeats then.
        """
        found: list[Answer] = []
        running: deque[Future[list[Answer]]] = deque()
        given_up = Event()
        try:
            for conversation in conversations:
                running.append(self._begin(conversation, given_up))
                if len(running) == self.concurrency:
                    found += running.popleft().result()
            for future in running:
                found += future.result()
        finally:
            given_up.set()
        return found

    def _begin(self, conversation: Conversation[Answer], given_up: Event) -> Future[Answer]:
        """Has a thread run it, which an interrupted program does not wait for: nobody takes its answer any more."""
        future: Future[Answer] = Future()

        def run() -> None:
            try:
                future.set_result(self._run(conversation, given_up))
            except BaseException as error:
                future.set_exception(error)

        Thread(target=run, daemon=True).start()
        return future
