"""Fixtures that several test files share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from serving import Files, Serving, serving, small_settings, write_files
from small import small_backbone, small_digits

from fpet.backbone import Backbone
from fpet.data import Dataset


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


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    """The small backbone, for tests that train on it."""
    return small_backbone()


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
    """The service on them, over HTTP, for all tests that leave it as it is."""
    with serving(small_settings(small_files)) as running:
        yield running
