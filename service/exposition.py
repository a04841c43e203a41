"""The metrics as Prometheus reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from service.shared_call import SharedCall

Encode = Callable[[Collector], bytes]

# Of each format the one version that its media type names here: who asks cannot choose among any number of them.
_FORMATS = choose_encoder(""), choose_encoder("application/openmetrics-text")


class Exposition:
    """What `collect` collects, in Prometheus' text format or in that of OpenMetrics.

    It takes time for each series and needs no key, so those who ask at the same time get the same text.
    """

    def __init__(self, collect: Callable[[], Awaitable[Collector]]) -> None:
        self._collect = collect
        self._texts = {media_type: SharedCall(partial(self._text, encode)) for encode, media_type in _FORMATS}

    async def text(self, accept: str) -> tuple[bytes, str]:
        """The text in the format that an Accept header asks for, and its media type."""
        media_type = _media_type(accept)
        return await self._texts[media_type](), media_type

    async def _text(self, encode: Encode) -> bytes:
        return await asyncio.to_thread(encode, await self._collect())


def _media_type(accept: str) -> str:
    (_, text), (_, open_metrics) = _FORMATS
    try:
        wanted = choose_encoder(accept)[1]
    except TypeError:  # a version that is no number
        return text
    return open_metrics if wanted.partition(";")[0] == open_metrics.partition(";")[0] else text
