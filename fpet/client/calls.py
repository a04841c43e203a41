"""The requests of the interface, and how their answers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar
from urllib.parse import quote

import httpx

from fpet.client import answers
from fpet.client.answers import Classification, Explanation, Savings, TaskInfo
from fpet.client.exchange import Call, Query

Answer = TypeVar("Answer")
Change = Literal["load", "unload", "pin", "unpin"]
Output = Literal["probabilities", "logits", "embedding"]
_PNG = "image/png"
_NO_CONTENT = 204


class Options(TypedDict, total=False):
    """How images are classified.

    top_k: labels an image, best first, at most as many as the task has; 5 or fewer if not given. tokens: with the
    task's token reduction (if not given) or without. outputs: vectors to answer beside the best labels. deadline:
    seconds until the last answer must have come, all repetitions included; without one each request has the client's
    timeout.
    """

    top_k: int
    tokens: Literal["reduced", "full"]
    outputs: Sequence[Output]
    deadline: float


class Conditions(TypedDict, total=False):
    """On what a change depends, or it is refused with ConflictError.

    if_match: the digest of the task that serves, or "*" for any; if_none_match: "*" if there must be no such task.
    """

    if_match: str
    if_none_match: Literal["*"]


def query(options: Options) -> Query:
    """Those of the options that go into the address.

    Raises:
        TypeError: if an option is none of `Options`.
    """
    _refuse_unknown(options, Options)
    given: dict[str, Any] = {name: options.get(name) for name in ("top_k", "tokens", "outputs")}
    return {name: value for name, value in given.items() if value is not None}


def classify(task: str, query: Query, images: Sequence[bytes]) -> Call[list[Classification]]:
    """Images by one task: one answer an image."""

    def read(response: httpx.Response) -> list[Classification]:
        return answers.classifications(response.json(), len(images))

    return Call("POST", _path(task, "/classify"), read, query, images=images)


def classify_many(tasks: Sequence[str], query: Query, images: Sequence[bytes]) -> Call[list[list[Classification]]]:
    """Images by several tasks: for each image one answer a task."""

    def read(response: httpx.Response) -> list[list[Classification]]:
        each = [answers.classifications(one, len(images)) for one in response.json()["results"]]
        if [column[0].task for column in each] != list(tasks):
            raise ValueError("it is of other tasks")
        return [list(row) for row in zip(*each, strict=True)]

    return Call("POST", "/v1/classify", read, {**query, "tasks": list(tasks)}, images=images)


def explain(task: str, image: bytes) -> Call[Explanation]:
    """Which patches of an image merged."""

    def read(response: httpx.Response) -> Explanation:
        return answers.explanation(response.json())

    return Call("POST", _path(task, "/explain"), read, {"format": "json"}, images=[image])


def explain_png(task: str, image: bytes) -> Call[bytes]:
    """The same as a picture."""

    def read(response: httpx.Response) -> bytes:
        if (found := response.headers.get("content-type", "unknown")) != _PNG:
            raise ValueError(f"its type is {found}, not {_PNG}")
        return response.content

    return Call("POST", _path(task, "/explain"), read, {"format": "png"}, images=[image])


def tasks() -> Call[list[TaskInfo]]:
    """All tasks, by name."""
    return Call("GET", "/v1/tasks", lambda response: [answers.task_info(one) for one in response.json()["tasks"]])


def task(name: str) -> Call[TaskInfo]:
    """One task."""
    return Call("GET", _path(name), _task_info)


def savings() -> Call[Savings]:
    """What token reduction saved."""
    return Call("GET", "/v1/savings", lambda response: answers.savings(response.json()))


def ready() -> Call[None]:
    """Nothing, or the reason why not as an error."""

    def read(response: httpx.Response) -> None:
        if (status := response.json()["status"]) != "ready":
            raise ValueError(f"its status is {status!r}")

    return Call("GET", "/readyz", read)


def put(task: str, file: bytes, conditions: Conditions) -> Call[TaskInfo]:
    """A task file into service; as `delete` and `change` it raises TypeError for what is none of `Conditions`, and for
    a condition that is no text."""
    headers = {**_headers(conditions), "content-type": "application/octet-stream"}
    return Call("PUT", _path(task), _task_info, headers=headers, content=file, repeatable=False)


def delete(task: str, conditions: Conditions) -> Call[None]:
    """A task out of service and of the folder."""

    def read(response: httpx.Response) -> None:
        if response.status_code != _NO_CONTENT:
            raise ValueError(f"its status is {response.status_code}, not {_NO_CONTENT}")

    return Call("DELETE", _path(task), read, headers=_headers(conditions), repeatable=False)


def change(task: str, what: Change, conditions: Conditions) -> Call[TaskInfo]:
    """What serves a task, its file staying where it is."""
    method, verb = ("DELETE", "pin") if what == "unpin" else ("POST", what)
    return Call(method, _path(task, f"/{verb}"), _task_info, headers=_headers(conditions), repeatable=False)


def _task_info(response: httpx.Response) -> TaskInfo:
    return answers.task_info(response.json())


def _path(task: str, rest: str = "") -> str:
    if task in ("", ".", ".."):  # as a part of an address they lead to another path
        raise ValueError(f"task = {task!r} should be the name of a task")
    return f"/v1/tasks/{quote(task, safe='')}{rest}"


def _headers(conditions: Conditions) -> dict[str, str]:
    _refuse_unknown(conditions, Conditions)
    for name, value in conditions.items():  # None is the digest of a task that is not loaded
        if not isinstance(value, str):
            raise TypeError(f"{name} = {value!r} should be text")
    headers: dict[str, str] = {}
    if "if_match" in conditions:
        digest = conditions["if_match"]
        headers["if-match"] = digest if digest == "*" else f'"{digest}"'
    if "if_none_match" in conditions:
        headers["if-none-match"] = conditions["if_none_match"]
    return headers


def _refuse_unknown(given: Mapping[str, object], kind: type[Options | Conditions]) -> None:
    """A misspelt condition, passed over, would make a change unconditional."""
    for name in given:
        if name not in kind.__annotations__:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(kind.__annotations__)}")
