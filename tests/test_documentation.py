"""README and docs are true: their Python runs, their curl commands answer, and what they list and link is there."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Serving, serving

from fpet.cli import COMMANDS
from fpet.methods import MethodInfo, methods
from service.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
MORE_PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "weights/README.md", "robustness/README.md")]
TEXT = "\n".join(page.read_text() for page in PAGES)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names that a viewer of Markdown gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *MORE_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [*PAGES, *MORE_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_code_stands_between_fences_of_their_own(page: Path) -> None:
    fences = [line for line in page.read_text().splitlines() if "```" in line]
    assert all(re.fullmatch(r" *```\w*", line) for line in fences)
    assert [bool(line.strip("` ")) for line in fences[1::2]] == [False] * (len(fences) // 2)
    assert len(fences) % 2 == 0


def test_the_readme_leads_to_every_page() -> None:
    readme = PAGES[0].read_text()
    for page in [*PAGES[1:], *MORE_PAGES]:
        assert f"]({page.relative_to(ROOT)})" in readme, page


@pytest.fixture(scope="module")
def embedded_service() -> Iterator[Serving]:
    """Of its tasks only `digits`, which all examples ask, and with nothing to be measured but the baseline."""
    given = {"dtype": "float32", "workers": 1, "threads": 1, "calibration_repeats": 1, "max_batch": 2}
    with serving(Settings(log_level="warning", preload=("digits",), shutdown_delay=0, **given)) as running:
        yield running


def test_the_python_blocks_run(tmp_path: Path) -> None:
    """One after the other in one process, each with names of its own."""
    (tmp_path / "weights").symlink_to(ROOT / "weights")
    script = "\n".join(f"exec({block!r}, {{}})" for block in blocks("python"))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    classified, modelled, trained, fitted, own, mixed = done.stdout.splitlines()
    assert classified.split()[0] == modelled == "5"
    assert ast.literal_eval(trained) == ["digits"] * 4 + ["emoji"] * 4
    epoch, tested = map(int, fitted.split())
    assert epoch == 1
    assert tested >= len(list((ROOT / "weights" / "tasks").iterdir()))
    assert own == "samples 4 4 4"
    assert mixed == "[10, 16, 10]"


def printed(service: Serving, client: str) -> str:
    """What the block that uses this client prints, asking this service."""
    (block,) = (block for block in blocks("py") if client in block)
    host, port = service.address
    script = block.replace("127.0.0.1:8000", f"{host}:{port}")
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_client_of_the_open_inference_protocol_runs(embedded_service: Serving) -> None:
    answers = printed(embedded_service, "tritonclient")
    assert re.findall(r":(\d):(\d)'", answers) == [("5", "5"), ("7", "7")]


def test_the_python_client_runs(embedded_service: Serving) -> None:
    answers = printed(embedded_service, "fpet.client")
    assert [line.split()[1] for line in answers.splitlines()] == ["5", "7"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_commands_answer(embedded_service: Serving) -> None:
    (block,) = (block for block in blocks("sh") if "url=" in block)
    host, port = embedded_service.address
    script = block.replace("127.0.0.1:8000", f"{host}:{port}").replace("curl ", "curl --silent --fail-with-body ")
    done = subprocess.run(["bash", "-euc", script], cwd=ROOT, capture_output=True, text=True, check=True)
    one, two, full = (json.loads(answer) for answer in re.split(r"(?<=\})(?=\{\"task\")", done.stdout))
    assert [best[0]["label"] for best in one["predictions"]] == ["5"]
    assert [best[0]["label"] for best in two["predictions"]] == ["5", "7"]
    assert full["tokens"] == {"in": 197, "out": 197}
    assert len(full["probabilities"][0]) == 10


def test_the_documented_answer_has_the_fields_of_a_real_one(embedded_service: Serving) -> None:
    documented = json.loads(blocks("json")[0])
    image = (ROOT / "weights/samples/digits/5-9.png").read_bytes()
    answer = embedded_service.classify(image, "digits", top_k=2).json()
    assert documented.keys() == answer.keys()
    assert documented["digest"] == answer["digest"]
    assert documented["tokens"] == answer["tokens"]
    assert documented["timings_ms"].keys() == answer["timings_ms"].keys()


@pytest.fixture(scope="module")
def paths(embedded_service: Serving) -> dict[str, Any]:
    described: dict[str, Any] = embedded_service.client.get("/openapi.json").json()["paths"]
    return described


def test_every_path_is_listed(paths: dict[str, Any]) -> None:
    for path in paths:
        assert f"{path}`" in TEXT, path


def test_every_status_of_an_error_is_listed_and_no_other(paths: dict[str, Any]) -> None:
    answers = {status for methods in paths.values() for method in methods.values() for status in method["responses"]}
    listed = re.findall(r"^\| (\d{3}(?:, \d{3})*) \| ", TEXT, re.MULTILINE)
    errors = {one for one in answers if one >= "400"} | {"405"}  # which is of no method that a path has
    assert {status for row in listed for status in row.split(", ")} == errors


@pytest.mark.parametrize("command", [*COMMANDS, "serve"])
def test_every_command_is_named(command: str) -> None:
    assert f"fpet {command}" in TEXT


@pytest.mark.parametrize("method", methods(), ids=lambda method: f"{method.role} {method.kind}")
def test_every_method_is_listed_with_its_numbers(method: MethodInfo) -> None:
    folds = "yes" if method.foldable else "no"
    last = folds if method.role == "adapter" else str(method.tokens)
    assert re.search(rf"^\| `{method.kind}` \| .* \| {method.parameters:,} \| {last} \|$", TEXT, re.MULTILINE)


def test_every_make_target_is_named() -> None:
    targets = re.findall(r"^(\w+): ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets
    for target in targets:
        assert f"make {target}" in TEXT, target
