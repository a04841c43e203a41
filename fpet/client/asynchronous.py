"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

import anyio
import httpx

from fpet.client import calls
from fpet.client.answers import Classification, Explanation, Savings, TaskInfo
from fpet.client.calls import Conditions, Options
from fpet.client.errors import DeadlineExceededError, NotReadyError, UnreachableError
from fpet.client.exchange import Conversation, Outcome, Send, Wait
from fpet.client.pictures import single
from fpet.client.session import CONNECTIONS, Session, by_task, follow_nowhere, names, read_task, strictly
from fpet.client.until import Until
from fpet.errors import ImageError
from fpet.pictures import Picture, Pictures

Answer = TypeVar("Answer")
_CLOSED = "the client was closed before it had an answer"


@dataclass(eq=False, repr=False)
class AsyncClient(Session):
    """`Client` with coroutines for methods, each as the one of that name there; to be used in an `async with` block, in
    one event loop.

    Images are read and encoded in a thread.
    """

    transport: httpx.AsyncBaseTransport | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._http = self._open(
            httpx.AsyncClient, transport=self.transport, event_hooks={"response": [_follow_nowhere]}
        )
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._sending: dict[asyncio.Task[httpx.Response | httpx.RequestError], anyio.CancelScope] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Gives up what is under way, and closes the connections."""
        self._closed = True  # for those that wait for a turn to send
        for scope in self._sending.values():
            scope.cancel()
        try:
            if self._sending:
                await asyncio.wait(self._sending)
        finally:  # also if the wait is cancelled, as by a scope of anyio
            await self._http.aclose()

    async def classify(self, images: Pictures, task: str, **options: Unpack[Options]) -> list[Classification]:
        """One answer an image, in their order."""
        return await self._all(map(strictly, self._classify(images, task, options)))

    async def classify_each(
        self, images: Pictures, task: str, **options: Unpack[Options]
    ) -> list[Classification | ImageError]:
        """As `classify`, with the error of an image that is unreadable or refused in the place of its answer."""
        return await self._all(self._classify(images, task, options))

    async def classify_many(
        self, images: Pictures, tasks: str | Sequence[str], **options: Unpack[Options]
    ) -> dict[str, list[Classification]]:
        """By several tasks, each image sent and decoded once."""
        listed = names(tasks)
        return by_task(listed, await self._all(map(strictly, self._classify_many(images, listed, options))))

    async def explain(self, image: Picture, task: str) -> Explanation:
        """Which patches of an image merged."""
        encoded = await asyncio.to_thread(single, image)
        return await self._run(self._about(encoded, calls.explain(task, encoded.data)))

    async def explain_png(self, image: Picture, task: str) -> bytes:
        """A PNG of an image whose merged patches have their mean colour."""
        encoded = await asyncio.to_thread(single, image)
        return await self._run(self._about(encoded, calls.explain_png(task, encoded.data)))

    async def tasks(self) -> list[TaskInfo]:
        """All tasks, by name."""
        return await self._run(self._ask(calls.tasks()))

    async def task(self, name: str) -> TaskInfo:
        """One task."""
        return await self._run(self._ask(calls.task(name)))

    async def savings(self) -> Savings:
        """What token reduction saved, as measured."""
        return await self._run(self._ask(calls.savings()))

    async def ready(self) -> bool:
        """Whether the service is there and takes requests, at the first attempt."""
        try:
            await self._run(self._ask_once(calls.ready()))
        except (NotReadyError, UnreachableError, DeadlineExceededError):
            return False
        return True

    async def put(self, task: str, file: str | Path | bytes, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Puts a task file into service."""
        data = await asyncio.to_thread(read_task, file)
        return await self._run(self._ask(calls.put(task, data, conditions)))

    async def delete(self, task: str, **conditions: Unpack[Conditions]) -> None:
        """Takes a task out of service and deletes its file there."""
        await self._run(self._ask(calls.delete(task, conditions)))

    async def load(self, task: str, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Puts the file that lies in the service's folder into service, again if it is."""
        return await self._run(self._ask(calls.change(task, "load", conditions)))

    async def unload(self, task: str, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Takes a task out of service; its file stays."""
        return await self._run(self._ask(calls.change(task, "unload", conditions)))

    async def pin(self, task: str, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Folds a task into weights of its own and keeps it so."""
        return await self._run(self._ask(calls.change(task, "pin", conditions)))

    async def unpin(self, task: str, **conditions: Unpack[Conditions]) -> TaskInfo:
        """Treats a task like any other again."""
        return await self._run(self._ask(calls.change(task, "unpin", conditions)))

    async def _run(self, conversation: Conversation[Answer]) -> Answer:
        outcome: Outcome = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            outcome = await self._do(step)

    async def _do(self, step: Send | Wait) -> Outcome:
        if isinstance(step, Wait):
            await asyncio.sleep(step.seconds)
            return None
        try:
            async with asyncio.timeout(step.seconds):
                await self._turns.acquire()
        except TimeoutError as error:
            return error
        scope = anyio.CancelScope()
        sending = asyncio.create_task(self._send(step, scope))
        self._sending[sending] = scope
        sending.add_done_callback(self._sent)
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            if sending.cancelled() and scope.cancel_called:
                raise RuntimeError(_CLOSED) from None
            scope.cancel()
            raise

    async def _send(self, step: Send, scope: anyio.CancelScope) -> httpx.Response | httpx.RequestError:
        """In a task of its own, which is never cancelled but by the scope: what httpx does to return a connection is
        protected from that alone, and a connection that is not returned is lost for good."""
        if self._closed:
            raise RuntimeError(_CLOSED)
        try:
            with scope:
                async with self._http.stream(**step.arguments()) as response:
                    response.stream = Until(response.stream, step.expires)
                    await response.aread()
                return response
        except httpx.RequestError as error:
            return error
        except ssl.SSLError as error:  # the peer speaks no TLS; httpx wraps this in threads only
            return httpx.ReadError(str(error), request=httpx.Request(step.call.method, self._http.base_url))
        raise asyncio.CancelledError

    def _sent(self, sending: asyncio.Task[httpx.Response | httpx.RequestError]) -> None:
        """Called also for a task that was cancelled before it began, as `asyncio.run` does to all tasks at its end."""
        del self._sending[sending]
        self._turns.release()

    async def _all(self, conversations: Iterator[Conversation[list[Answer]]]) -> list[Answer]:
        """The answers of the conversations, in their order. A few run at once; the next begins when the oldest ends."""
        found: list[Answer] = []
        running: deque[asyncio.Task[list[Answer]]] = deque()
        try:
            while (conversation := await asyncio.to_thread(next, conversations, None)) is not None:
                running.append(asyncio.create_task(self._run(conversation)))
                if len(running) == self.concurrency:
                    found += await running[0]
                    running.popleft()
            for task in running:
                found += await task
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return found


async def _follow_nowhere(response: httpx.Response) -> None:
    follow_nowhere(response)
