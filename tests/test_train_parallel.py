"""Training in several processes: torchrun starts real ones, and the weights come out as from one."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small import small_backbone, small_digits, small_header

from fpet.backbone import save_backbone
from fpet.cli import main
from fpet.errors import UnsupportedError
from fpet.task import Task
from fpet.training.parallel import ALONE, Processes, local_device
from fpet.training.recipe import Recipe
from fpet.training.run import Run
from fpet.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "fpet.cli"]
# Without noise, which each process draws for itself; unquantised, so that rounding cannot flip a code.
QUIET = ["--drop-path", "0", "--adapter-arguments", "dim=4,dropout=0"]
MATCHING = ["--reducer-arguments", "block=0,dropout=0,bits=32"]
FAST = ["--epochs", "3", "--warmup-epochs", "0", "--lr", "0.01", "--batch-size", "100", "--validate-every", "1"]


def command(backbone: Path, output: Path) -> list[str]:
    files = ["--backbone", str(backbone), "--output", str(output)]
    return ["train", "--data", "digits", "--name", "digits", *files, *QUIET, *MATCHING, *FAST]


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    backbone = tmp_path / "backbone.safetensors"
    save_backbone(backbone, small_backbone())
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(command(backbone, one / "digits.safetensors")) == 0
    done = subprocess.run(
        [sys.executable, *TORCHRUN, *command(backbone, two / "digits.safetensors")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("validation accuracy") == 1
    tasks = [Task.load(folder / "digits.safetensors") for folder in (one, two)]
    assert tasks[0].tensors.keys() == tasks[1].tensors.keys()
    for name, value in tasks[0].tensors.items():
        # A hundredth of a step: AdamW makes steps of 0.01 of gradients however small, which are rounded differently.
        torch.testing.assert_close(tasks[1].tensors[name], value, rtol=1e-4, atol=1e-4, msg=name)
    assert sorted(path.name for path in two.iterdir()) == ["digits.csv", "digits.safetensors"]
    logs = [csv.DictReader((folder / "digits.csv").read_text().splitlines()) for folder in (one, two)]
    losses = [[float(row["loss"]) for row in log] for log in logs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)  # of all images, not of one process's share


# Each process has a folder of its own, as on two machines.
APART = """
import os
from pathlib import Path

import torch
from test_train_parallel import train_small

from fpet.errors import TaskError
from fpet.training.parallel import joined

with joined(torch.device("cpu")) as group:
    for case in ("behind", "changed"):
        try:
            train_small(Path(os.environ["RANK"], case), group)
        except TaskError as error:
            Path(os.environ["RANK"], case, "error").write_text(str(error))
    if os.environ["RANK"] == "1":
        try:
            group.gather(torch.zeros(1))  # which process 0 does not do before it ends
        except TaskError as error:
            Path("alone").write_text(str(error))
"""
SHORT = Recipe(epochs=3, batch_size=40, warmup_epochs=0, validate_every=1)


def train_small(folder: Path, group: Processes) -> None:
    backbone = small_backbone()
    train(small_header(backbone), backbone, small_digits(), SHORT, folder / "run.checkpoint", group=group)


def write_checkpoints(folder: Path) -> None:
    """Those of two processes, of which the second is behind the first, or has another weight."""
    with torch.random.fork_rng(devices=[]):
        run = Run(small_header(small_backbone()), small_backbone(), small_digits(), SHORT)
        run.advance(lambda: None)
        run.advance(lambda: None)
    state = run.state()
    for rank in ("0", "1"):
        for case in ("behind", "changed"):
            (folder / rank / case).mkdir(parents=True)
    state.save(folder / "0/behind/run.checkpoint")
    state.save(folder / "0/changed/run.checkpoint")
    state.weights["head.bias"][0] += 1e-6
    state.save(folder / "1/changed/run.checkpoint")


def test_processes_that_go_on_from_different_checkpoints_are_refused_and_one_whose_other_ends_is_told(
    tmp_path: Path,
) -> None:
    write_checkpoints(tmp_path)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    script = tmp_path / "apart.py"
    script.write_text(APART)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    launch = [sys.executable, *TORCHRUN[:-2], script.name]
    done = subprocess.run(launch, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    told = {path.relative_to(tmp_path): path.read_text() for path in after - before - {script}}
    differences = {
        "behind": "begins after 0 epochs, and process 0 after 2",
        "changed": "begins with other weights than process 0",
    }
    assert told.pop(Path("alone")).startswith("another process of this training has ended, and says why (")
    assert told == {
        Path(rank, case, "error"): f"{rank}/{case}/run.checkpoint: process 1 {difference}; "
        "each of them needs the same checkpoint"
        for rank in ("0", "1")
        for case, difference in differences.items()
    }


def test_a_share_of_each_batch_is_everybodys() -> None:
    batch = torch.arange(12)
    shares = [Processes(rank, 3).share(batch) for rank in range(3)]
    assert [len(share) for share in shares] == [4, 4, 4]
    assert torch.equal(torch.cat(shares).sort().values, batch)
    assert torch.equal(ALONE.share(batch), batch)


def test_processes_draw_noise_of_their_own_but_one_order() -> None:
    def epoch(rank: int) -> tuple[torch.Tensor, float]:
        recipe = Recipe(epochs=1, batch_size=40, drop_path=0.0, seed=5)
        run = Run(small_header(small_backbone()), small_backbone(), small_digits(), recipe, Processes(rank, 1))
        with torch.random.fork_rng(devices=[]):
            run.advance(lambda: None)
            return torch.rand(1), run.log[0]["loss"] or 0.0

    (first, loss), (second, other_loss) = epoch(0), epoch(1)
    assert not torch.equal(first, second)
    assert loss != other_loss  # dropout of the adapter differs
    assert loss == pytest.approx(other_loss, rel=0.02)  # and nothing else


def test_a_process_of_torchrun_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_device("cuda") == "cuda"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a run")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert [local_device(device) for device in ("cuda", "cuda:1", "cpu")] == ["cuda:1", "cuda:1", "cpu"]
    with pytest.raises(UnsupportedError, match=r"cuda:3: under torchrun this process has cuda:1; name `cuda`"):
        local_device("cuda:3")


def test_a_sweep_is_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a run")
    assert main(["sweep", "plan.toml", "--output", str(tmp_path / "table.csv")]) == 2
    assert "a sweep runs in one process" in capsys.readouterr().err


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    backbone = small_backbone()
    with pytest.raises(UnsupportedError, match="a batch of 16 cannot be shared among 3 processes"):
        Run(small_header(backbone), backbone, small_digits(), Recipe(batch_size=16), Processes(0, 3))
