"""constraints.txt names a version of all that an installation of the project brings, and of what builds it."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES = re.findall(r"^[^#\n].*", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
PINS = [Requirement(line) for line in LINES]
PINNED = {canonicalize_name(pin.name): pin for pin in PINS}
# The first come with an environment; torch names the versions of the others itself.
_ELSEWHERE = re.compile(r"pip|setuptools|wheel|triton|triton-.*|.*-triton-.*|nvidia-.*|cuda-.*|intel-.*|tbb|umf|tcmlib")
# What is asked for with these is in an environment of its own.
_APART = {"peers"}


def asked_for(requirements: list[str], extras: set[str]) -> Iterator[tuple[NormalizedName, frozenset[str]]]:
    """What these requirements mean here, with the extras that they ask for in turn."""
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def brought() -> dict[NormalizedName, metadata.Distribution]:
    """The installed distributions that the project needs, itself or through others, but not what brings its own."""
    project = PROJECT["project"]
    first = [*project["dependencies"]]
    for extra, requirements in project["optional-dependencies"].items():
        first += [] if extra in _APART else requirements
    waiting = [*asked_for(first, set())]
    seen: set[tuple[NormalizedName, frozenset[str]]] = {(canonicalize_name(project["name"]), frozenset())}
    found = {}
    while waiting:
        name, extras = one = waiting.pop()
        if one in seen or name == canonicalize_name(project["name"]):
            continue
        seen.add(one)
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
        waiting += asked_for(found[name].requires or [], {*extras})
    return found


def test_all_that_is_brought_is_pinned() -> None:
    found = brought()
    assert {"torch", "uvicorn", "pytest", "pydantic-core"} <= found.keys()
    assert {name for name in found if not _ELSEWHERE.fullmatch(name)} <= PINNED.keys()


def test_each_is_pinned_once_to_one_public_version() -> None:
    """A local version, as of a wheel with CUDA, would be of one index alone."""
    assert [name for name, times in Counter(canonicalize_name(pin.name) for pin in PINS).items() if times > 1] == []
    for pin in PINS:
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin
        assert pin.marker is None
        assert not _ELSEWHERE.fullmatch(canonicalize_name(pin.name)), pin


def test_pins_are_what_the_project_allows() -> None:
    project = PROJECT["project"]
    allowed = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    for extra, requirements in project["optional-dependencies"].items():
        allowed += [] if extra in _APART else requirements
    for requirement in map(Requirement, allowed):
        name = canonicalize_name(requirement.name)
        if name != canonicalize_name(project["name"]):
            (pin,) = PINNED[name].specifier
            assert requirement.specifier.contains(pin.version), requirement


@pytest.mark.parametrize("heading", ["# What these need in turn", "# What builds the wheel"])
def test_what_others_need_is_sorted(heading: str) -> None:
    section = (ROOT / "constraints.txt").read_text().partition(heading)[2].partition("\n\n")[0]
    names = re.findall(r"^([\w.-]+)==", section, re.MULTILINE)
    assert names == sorted(names) != []
