"""Cancels work whose client has disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from service.errors import ClientGoneError

Result = TypeVar("Result")


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client closes its connection.

    The request's body must have been read. If somebody else cancels the caller, that cancellation is passed on.

    Raises:
        ClientGoneError: if the client closed its connection first.
    """
    caller = asyncio.current_task()
    assert caller is not None
    cancelled_before = caller.cancelling()
    leaving = asyncio.create_task(_cancel_when_gone(request, caller))
    try:
        return await work
    except asyncio.CancelledError:
        left = leaving.done() and leaving.exception() is None  # or else somebody else cancels
        if left and caller.uncancel() <= cancelled_before:
            raise ClientGoneError("the client left before its answer was ready") from None
        raise
    finally:
        leaving.cancel()


async def _cancel_when_gone(request: Request, task: asyncio.Task[Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    task.cancel()
