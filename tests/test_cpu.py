"""What torch is told about CPUs, which holds for the process: whose float32 products are, and that none are rounded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small import ARCHITECTURE, small_backbone

from benchmarks import products
from fpet.hardware.cpu import configure, name

_SHAPES = (197, 192, 576), (3152, 192, 768), (3152, 768, 192), (64, 192, 10), (7, 5, 3)
_NEWER = """if True:
    import sys
    from pathlib import Path
    import torch
    from fpet.hardware.cpu import configure
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    configure("cpu", Path(sys.argv[1]))
    print(torch.backends.mkldnn.matmul.fp32_precision)
"""


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch as it is before it is told, without a GPU beside the processor."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The root of one with a processor of AMD's."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\n")
    return tmp_path


def test_products_stay_float32(system: Path) -> None:
    exact = _exact("medium")
    configure("cpu", system)
    asked = exact and torch.backends.mkl.is_available()
    assert torch.get_float32_matmul_precision() == ("medium" if asked else "highest")
    assert _exact(torch.get_float32_matmul_precision())
    configure("cpu", system)  # the second backbone of a process
    assert torch.get_float32_matmul_precision() == ("medium" if asked else "highest")


@pytest.mark.parametrize(("quota", "threads"), [("100000 100000", 1), ("150000 100000", 2), ("max 100000", 3)])
def test_no_more_threads_than_the_quota_of_a_container(quota: str, threads: int, system: Path) -> None:
    (system / "proc/self").mkdir()
    (system / "proc/self/cgroup").write_text("0::/\n")
    (system / "sys/fs/cgroup").mkdir(parents=True)
    (system / "sys/fs/cgroup/cpu.max").write_text(f"{quota}\n")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        configure("meta", system)
        assert torch.get_num_threads() == 3
        configure("cpu", system)
        assert torch.get_num_threads() == min(threads, len(os.sched_getaffinity(0)))
        torch.set_num_threads(1)
        configure("cpu", system)  # fewer were chosen
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_library_that_rounds_is_not_asked(monkeypatch: pytest.MonkeyPatch, system: Path) -> None:
    product = torch.Tensor.__matmul__

    def tiles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rounds = torch.get_float32_matmul_precision() == "medium"
        return product(a.bfloat16().float(), b.bfloat16().float()) if rounds else product(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", tiles)
    configure("cpu", system)
    assert torch.get_float32_matmul_precision() == "highest"


def test_configure_changes_no_precision_on_other_processors(system: Path) -> None:
    (system / "proc" / "cpuinfo").write_text("processor\t: 0\nvendor_id\t: GenuineIntel\n")
    configure("cpu", system)
    assert torch.get_float32_matmul_precision() == "highest"
    (system / "proc" / "cpuinfo").unlink()
    configure("cpu", system)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_processor_has_the_name_that_the_kernel_gives_it(system: Path) -> None:
    assert name(system) == "cpu"
    (system / "proc" / "cpuinfo").write_text(
        "processor\t: 0\nmodel\t\t: 1\nmodel name\t: Fast: 2 GHz \nflags\t\t: fpu\n"
    )
    assert name(system) == "Fast: 2 GHz"
    (system / "proc" / "cpuinfo").unlink()
    assert name(system) == "cpu"


def test_a_gpu_is_not_told_to_round(monkeypatch: pytest.MonkeyPatch, system: Path) -> None:
    configure("cuda", system)
    assert torch.get_float32_matmul_precision() == "highest"
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    configure("cpu", system)
    assert torch.get_float32_matmul_precision() == "highest"


def test_configure_keeps_a_chosen_matmul_precision(system: Path) -> None:
    torch.set_float32_matmul_precision("high")
    configure("cpu", system)
    assert torch.get_float32_matmul_precision() == "high"


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="this torch has no newer way to choose")
def test_configure_keeps_a_precision_chosen_by_fp32_precision(system: Path) -> None:
    told = subprocess.check_output([sys.executable, "-W", "error", "-c", _NEWER, str(system)], text=True)
    assert told.strip() == "bf16"


def test_a_backbone_that_moves_to_a_cpu_tells_torch() -> None:
    configure("cpu")
    told = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    small_backbone().move("cpu")
    assert torch.get_float32_matmul_precision() == told


def test_what_it_saves_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    shape = "img_size=64,patch_size=8,embed_dim=48,depth=6,num_heads=3"
    small = ["--architecture", ARCHITECTURE, "--architecture-arguments", shape, "--batch-size", "4", "--rounds", "2"]
    products.main(products.parser().parse_args(small))
    told, lines = torch.get_float32_matmul_precision(), capsys.readouterr().out.splitlines()
    if lines[0].startswith("nothing to compare"):
        assert told == "highest"
        return
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines[2:8]]
    whats = ["forward of 1", "forward of 16", "training step of 4"]
    assert [row[:2] for row in rows] == [[kind, what] for kind in ("none", "bdm") for what in whats]
    for _, _, ratio, spread in rows:
        least, _, most = spread.partition(" to ")
        assert 0 < float(least) <= float(ratio) <= float(most)


def _exact(precision: str) -> bool:
    """Whether products have float32's error with this precision."""
    torch.set_float32_matmul_precision(precision)
    numbers = torch.Generator().manual_seed(0)
    errors = []
    for rows, width, columns in _SHAPES:
        x, weight = (torch.randn(count, width, generator=numbers) for count in (rows, columns))
        right = x.double() @ weight.double().mT
        errors.append((torch.nn.functional.linear(x, weight) - right).abs().max() / right.abs().max())
    torch.set_float32_matmul_precision("highest")
    return max(errors) < 1e-5
