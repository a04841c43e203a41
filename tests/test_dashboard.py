"""What the dashboard and the alerts ask for is exported, and what they make of that is true."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from test_exchange import every_route

from service.http.exchange import InferenceRoute
from service.http.failures import ERROR_TYPES

ROOT = Path(__file__).parent.parent
DASHBOARD = json.loads((ROOT / "docker/grafana/dashboards/fpet.json").read_text())
ALERTS = yaml.safe_load((ROOT / "docker/prometheus/rules.yml").read_text())


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (variable["definition"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query")


def alerts() -> Iterator[str]:
    yield from (rule["expr"] for group in ALERTS["groups"] for rule in group["rules"])


@pytest.mark.parametrize("expression", sorted({*expressions(), *alerts()}))
def test_all_that_is_asked_for_is_exported(expression: str, exported: dict[str, set[str]]) -> None:
    names = re.findall(r"\b((?:fpet|process)_\w+|up\b)(?:\{(.*?)\})?", expression)
    assert names
    labels_of_all = set().union(*(exported[name] for name, _ in names))
    for name, matchers in names:
        asked = set(re.findall(r"(\w+)=~?\"", matchers)) - {"job"}
        assert asked <= exported[name]
    grouped = {label for group in re.findall(r"by \((.*?)\)", expression) for label in group.split(", ")}
    assert grouped - {"instance"} <= labels_of_all


def test_panels_have_places_and_numbers_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_savings_are_shown_only_where_there_is_a_baseline() -> None:
    """Nobody divides by one that is not known, nor subtracts from it, nor compares it with more than it stands for."""
    baselines = [expression for expression in expressions() if "fpet_forward_baseline_seconds_total" in expression]
    compared = [expression for expression in baselines if "fpet_forward_calibrated_seconds_total" in expression]
    assert len(compared) == 3
    for expression in compared:
        assert re.search(r"fpet_forward_baseline_seconds_total\{[^}]*\}\[[^]]*\]\)\) > 0", expression), expression
    assert not any("fpet_forward_seconds_total" in expression for expression in baselines)


def test_latency_is_that_of_requests_that_were_answered() -> None:
    """Refusals take no time: with them, the more were refused the better it would look."""
    selectors = re.findall(r"fpet_request_duration_seconds_(?:bucket|sum)(.*?)\[", " ".join(expressions()))
    assert set(selectors) == {'{code="200"}'}


def test_requests_are_summed_over_what_counts_each_once() -> None:
    """`fpet_requests_total` counts a request once a task that it names: only by task is it what was sent."""
    by_task = [expression for expression in [*expressions(), *alerts()] if "fpet_requests_total" in expression]
    assert by_task
    for expression in by_task:
        assert expression.startswith(("sum by (task) ", "label_values(")), expression


def test_alerts_ask_for_codes_and_reasons_that_there_are() -> None:
    """A series that nothing counts is never above its bound."""
    answered = {str(code) for route in every_route() if isinstance(route, InferenceRoute) for code in route.responses}
    codes = re.findall(r'fpet_request\w+\{code=~?"(.*?)"\}', " ".join(alerts()))
    reasons = re.findall(r'fpet_failures_total\{reason="(.*?)"\}', " ".join(alerts()))
    assert {code for one in codes for code in one.split("|")} == {"429", "500", "503", "504"} <= answered
    assert {*reasons} == {"storage"} <= {*ERROR_TYPES}


def test_alerts_are_the_same_in_a_cluster() -> None:
    rules = yaml.safe_load((ROOT / "kubernetes/prometheus-operator/prometheus-rule.yaml").read_text())
    assert rules["spec"] == ALERTS
    names = [rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]]
    assert len(set(names)) == len(names) > 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("arguments", [("check", "config", "prometheus.yml"), ("test", "rules", "rules_test.yml")])
def test_alerts_come_when_they_should(arguments: tuple[str, ...]) -> None:
    subprocess.run(["promtool", *arguments], cwd=ROOT / "docker/prometheus", check=True)


def test_prometheus_reads_the_alerts() -> None:
    (file,) = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yml").read_text())["rule_files"]
    mounted = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["prometheus"]["volumes"]
    assert f"./docker/prometheus/{file}:/etc/prometheus/{file}:ro" in mounted
