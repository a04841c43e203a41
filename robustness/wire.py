"""Hostile requests, sent to the service as bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from robustness.exchange import exchange
from robustness.findings import Finding, Findings
from robustness.hostile import Hostile, Message, hostile
from robustness.hostile import messages as valid_messages
from robustness.verdict import wrong

# Of one alone: those that queue wait for each other.
MOST_SECONDS = 3.0
_CLIENTS = 8


@dataclass
class Outcomes:
    """Answers by status (0: the connection ended without one) and the slowest, in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    slowest: float = 0.0

    @property
    def count_of_all(self) -> int:
        """Requests."""
        return self.statuses.total()

    def count(self, status: int | None, seconds: float) -> None:
        """Counts one request."""
        self.statuses[status or 0] += 1
        self.slowest = max(self.slowest, seconds)


async def send_hostile(port: int, cases: range, seed: int, findings: Findings) -> Outcomes:
    """Sends the cases of these numbers, a few at once; what is slow or wrong is sent again, alone, at the end."""
    messages = valid_messages()
    outcomes, suspects = Outcomes(), []
    numbers = iter(cases)

    async def client() -> None:
        for number in numbers:
            request = case(messages, seed, number)
            problem = await _judge(port, request, outcomes)
            if problem is not None:
                suspects.append((number, request, problem))

    await asyncio.gather(*(client() for _ in range(_CLIENTS)))
    for number, request, problem in suspects:
        again = await _judge(port, request, Outcomes())
        if problem != _SLOW or again == _SLOW:
            findings.add(Finding(f"wire: {problem}", f"seed {seed} case {number}, sent again: {again}", request.data))
    return outcomes


def case(messages: Sequence[Message], seed: int, number: int) -> Hostile:
    """The request of that number, the same whenever it is asked for."""
    random = Random(f"{seed} {number}")
    return hostile(random, random.choice(messages))


_SLOW = "slow"


async def _judge(port: int, request: Hostile, outcomes: Outcomes) -> str | None:
    """What is wrong with what came of it."""
    try:
        result = await exchange(port, request.data, whole=request.parsed)
    except OSError as error:
        return f"no connection: {error}"
    reply = result.reply
    outcomes.count(reply.status, reply.seconds)
    if result.malformed:
        return "the answer is no HTTP"
    if result.left_open:
        return "the connection stays open"
    if reply.status is not None and reply.seconds > MOST_SECONDS:
        return _SLOW
    return wrong(reply, parsed=request.parsed)
