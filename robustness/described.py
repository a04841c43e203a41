"""Requests made by schemathesis from the OpenAPI description of the service, right and wrong ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import content_type_conformance, response_schema_conformance, status_code_conformance
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

from robustness import samples
from robustness.findings import Finding, Findings
from robustness.service import AUTHORIZATION
from robustness.small import task_files
from robustness.verdict import Reply, wrong
from robustness.wire import MOST_SECONDS, Outcomes

_CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
# Random names are of no task: most requests shall get further than that.
_NAMES = {"task": "digits", "model": "digits", "version": "1"}
_TIMEOUT = 60.0
_LENGTHY = "/v1/tasks/{task}/pin"  # folds a task and times it against the others, which takes a busy machine seconds
_AT_ONCE = 10


def send_described(url: str, cases: int, seed: int, findings: Findings, restore: Callable[[], None]) -> Outcomes:
    """Sends so many requests or a few more, to all operations in turn; `restore` is called between these."""
    _teach_media_types()
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    kinds = [(mode, named) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE) for named in (True, False)]
    strategies = [_strategy(operation, *kind) for operation in operations for kind in kinds]
    outcomes = Outcomes()
    with requests.Session() as session:
        sender = _Sender(url, session, findings, outcomes)
        while outcomes.count_of_all < cases:
            fruitful = []
            for strategy in strategies:
                sent = outcomes.count_of_all
                if sent < cases:
                    _generate(strategy, _AT_ONCE, seed, sender.send)
                    restore()
                if outcomes.count_of_all - sent == _AT_ONCE:
                    fruitful.append(strategy)
            strategies = fruitful or strategies  # others have nothing new: what takes no input is not asked again
            seed += 1
    return outcomes


class _Sender:
    """Sends cases and judges the answers."""

    def __init__(self, url: str, session: requests.Session, findings: Findings, outcomes: Outcomes) -> None:
        self._url = url
        self._session = session
        self._findings = findings
        self._outcomes = outcomes

    def send(self, case: Case[Any]) -> None:
        """With the admin key, but for every fourth request, which has whatever key was generated."""
        key = AUTHORIZATION if self._outcomes.count_of_all % 4 else {}
        try:
            response = case.call(base_url=self._url, session=self._session, headers=key, timeout=_TIMEOUT)
        except requests.RequestException as error:
            self._outcomes.count(None, 0.0)
            self._find(case, key, f"no answer: {type(error).__name__}", str(error))
            return
        seconds = response.elapsed
        self._outcomes.count(response.status_code, seconds)
        if seconds > MOST_SECONDS and case.operation.path != _LENGTHY:
            again = case.call(base_url=self._url, session=self._session, headers=key, timeout=_TIMEOUT)
            if again.elapsed > MOST_SECONDS:
                self._find(case, key, "slow", f"{seconds:.2f} s, {again.elapsed:.2f} s")
        problem = wrong(Reply(response.status_code, {}, response.content, seconds))
        if problem is not None:
            self._find(case, key, problem, response.text[:200])
        try:
            case.validate_response(response, checks=_CHECKS)
        except (FailureGroup, Failure) as error:
            failures = error.exceptions if isinstance(error, FailureGroup) else [error]
            for failure in failures:
                self._find(case, key, type(failure).__name__, str(failure)[:300])

    def _find(self, case: Case[Any], key: Mapping[str, str], kind: str, detail: str) -> None:
        operation = f"{case.method} {case.operation.path}"
        command = case.as_curl_command(headers=dict(key))
        self._findings.add(Finding(f"described: {operation}: {kind}", detail, command.encode()))


def _teach_media_types() -> None:
    """What is no JSON is described as bytes; half of what is sent is what the operations expect."""
    pictures, tasks = samples.pictures(), task_files().values()
    anything = st.binary(max_size=300)
    schemathesis.openapi.media_type("image/*", st.one_of(st.sampled_from(pictures), anything))
    schemathesis.openapi.media_type(
        "application/octet-stream", st.one_of(st.sampled_from([*pictures, *tasks]), anything)
    )


def _strategy(
    operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode, named: bool
) -> SearchStrategy[Case[Any]]:
    names = {name: value for name, value in _NAMES.items() if f"{{{name}}}" in operation.path} if named else {}
    return operation.as_strategy(generation_mode=mode, path_parameters=names or None)


def _generate(strategy: SearchStrategy[Case[Any]], count: int, seed: int, send: Callable[[Case[Any]], None]) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @hypothesis.given(case=strategy)
    def run(case: Case[Any]) -> None:
        send(case)

    with contextlib.suppress(Unsatisfiable):  # nothing can be wrong with what takes nothing
        run()
