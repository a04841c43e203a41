"""The log of a training run for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from fpet.errors import TaskError, UnsupportedError
from fpet.system_errors import os_errors_as

Write = Callable[[Mapping[str, float | None]], None]


@contextmanager
def tensorboard_log(folder: Path, epoch: int) -> Iterator[Write]:
    """Yields a function that writes a row of the log as TensorBoard's scalars, for a run with `epoch` epochs behind it.

    Rows of later epochs that a killed run left in the folder are hidden from TensorBoard.

    Raises:
        UnsupportedError: if the package tensorboard is not installed.
        TaskError: if the folder cannot be written; so does what it yields.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  # optional
    except ImportError as error:
        raise UnsupportedError("a TensorBoard log needs the package tensorboard; pip installs it") from error
    with _refusing(folder):
        writer = SummaryWriter(folder, purge_step=epoch + 1)

    def write(row: Mapping[str, float | None]) -> None:
        step = row["epoch"]
        with _refusing(folder):
            for name, value in row.items():
                if name != "epoch" and value is not None:
                    writer.add_scalar(name, value, step)
            writer.flush()  # what is only in memory dies with the process

    try:
        yield write
    finally:
        with _refusing(folder):
            writer.close()


def _refusing(folder: Path) -> AbstractContextManager[None]:
    return os_errors_as(TaskError, f"{folder}: cannot be written")
