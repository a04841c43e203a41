"""Fixtures that several test files share."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from asking import url
from prometheus_client.parser import text_string_to_metric_families
from published_files import save_small_backbone
from serving import KEY, Files, Serving, copy_files, serving, small_settings, write_files
from small import small_backbone, small_digits
from two import Both, two

from fpet.backbone import Backbone
from fpet.client import Client
from fpet.data import Dataset
from robustness.process import limit_memory
from service.metrics import Metrics

MORE = 256 * 2**20  # bytes


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For models so small that a second thread costs more than it helps, the more so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Whoever asks for more than `MORE` meets an error of torch or Python, which is none of ours."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_memory(MORE)
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.fixture
def metrics() -> Metrics:
    """Of no tasks."""
    return Metrics([], [])


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    """The small backbone, for tests that train on it."""
    return small_backbone()


@pytest.fixture(scope="session")
def backbone_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small backbone's file, for all tests of commands that leave it as it is."""
    return save_small_backbone(tmp_path_factory.mktemp("backbones") / "small.safetensors")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """A few handwritten digits."""
    return small_digits()


@pytest.fixture(scope="session")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A small backbone and two small tasks, for all tests that leave them as they are."""
    return write_files(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def service(small_files: Files) -> Iterator[Serving]:
    """The service on them, over HTTP, for all tests that leave it as it is; all is measured."""
    with serving(small_settings(small_files, threads=0, calibration_repeats=1)) as running:
        yield running


@pytest.fixture(scope="session")
def exported(service: Serving) -> dict[str, set[str]]:
    """Names of the series that the real service exports, each with the names of its labels."""
    found: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(service.client.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture
def client(service: Serving) -> Iterator[Client]:
    """A client of that service."""
    with Client(url(service)) as client:
        yield client


@pytest.fixture
def files(small_files: Files, tmp_path: Path) -> Files:
    """The small backbone, and the small tasks in a folder of their own."""
    return copy_files(small_files, tmp_path / "tasks")


@pytest.fixture
def both(files: Files, tmp_path: Path) -> Iterator[Both]:
    """Two that follow no folder: what reaches both, they told each other."""
    with two(small_settings(files, admin_key=KEY, watch=False, folded_bytes=2**20), tmp_path) as services:
        yield services


@pytest.fixture(params=[0, 1], ids=["first", "second"])
def asked(both: Both, request: pytest.FixtureRequest) -> Serving:
    return both[request.param]


@pytest.fixture
def changeable(files: Files) -> Iterator[Serving]:
    """The service on them, whose tasks change by HTTP alone."""
    with serving(small_settings(files, admin_key=KEY, watch=False, max_task_bytes=100_000)) as running:
        yield running
