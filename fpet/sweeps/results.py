"""The table that a sweep writes, one CSV row a run."""

from __future__ import annotations

import csv
import dataclasses
import io
import typing
from dataclasses import dataclass
from pathlib import Path

from fpet.errors import TaskError
from fpet.files import exists, read_bytes, write_csv
from fpet.locks import sole_writer
from fpet.training.recipe import OFF


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run: what it was, what came out, and under which conditions. What a failed run did not reach is None.

    run: identifies what was trained (data, backbone, methods, recipe, seed); two machines or versions may round
    otherwise, which device, threads, fpet and torch tell apart. error: empty unless it failed. adapter_arguments,
    reducer_arguments: JSON, as planned; scale: the one chosen on validation images, if that was asked. Accuracies are
    from 0 to 1; test_accuracy_unreduced is that of the same weights without token reduction. parameters: of adapter and
    reducer, without the head; task_bytes: of the task file on the disk, with it. gmacs: of one image, in billions of
    multiply-accumulates, with the adapter folded where it folds; None if they depend on the image. training_seconds:
    all epochs with their validations, also those before the run was killed; epoch_seconds: the median epoch. memory:
    "allocated", the most that was allocated on the GPU, or "kept", what autograd keeps for the backward pass of one
    step. warmup_epochs to validate_every: of the recipe, and search_scale: JSON, the scales to choose from; None and
    empty where they were not recorded, which hflip, crop_scale and class_weights always are. validation_accuracy: as of
    `Trained`. device: the name of the GPU or the processor, or "cpu"; threads: of torch on the CPU. tokens_out: of a
    test image, a mean where they differ.
    """

    run: str
    data: str
    method: str
    seed: int
    error: str = ""
    validation_accuracy: float | None = None
    test_accuracy: float | None = None
    test_accuracy_unreduced: float | None = None
    scale: float | None = None
    epochs: int
    best_epoch: int | None = None
    parameters: int | None = None
    task_bytes: int | None = None
    gmacs: float | None = None
    tokens_in: int | None = None
    tokens_out: float | None = None
    training_seconds: float | None = None
    epoch_seconds: float | None = None
    memory_bytes: int | None = None
    memory: str = ""
    adapter: str
    adapter_arguments: str
    reducer: str
    reducer_arguments: str
    head_bits: int
    batch_size: int
    lr: float
    precision: str
    warmup_epochs: int | None = None
    warmup_lr: float | None = None
    min_lr: float | None = None
    weight_decay: float | None = None
    drop_path: float | None = None
    hflip: float = OFF["hflip"]
    crop_scale: float = OFF["crop_scale"]
    class_weights: str = OFF["class_weights"]
    validate_every: int | None = None
    search_scale: str = ""
    train_images: int | None = None
    validation_images: int | None = None
    test_images: int | None = None
    backbone: str
    device: str
    threads: int
    fpet: str
    torch: str

    @property
    def cell(self) -> tuple[str, str, int]:
        """Data, method and seed: the place in a plan."""
        return self.data, self.method, self.seed


COLUMNS = tuple(item.name for item in dataclasses.fields(Row))


def read_rows(path: Path) -> list[Row]:
    """The rows of a table, without a spreadsheet's mark of UTF-8; none if there is no file.

    Raises:
        TaskError: if the file cannot be read, or is not a sweep's.
    """
    if not exists(path, TaskError):
        return []
    text = read_bytes(path, TaskError).decode("utf-8-sig", errors="surrogateescape")
    reader = csv.DictReader(io.StringIO(text))
    try:
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise TaskError(f"{path}: the columns are not those of a sweep; name another file")
        return [_parse(row) for row in reader]
    except (TypeError, ValueError, csv.Error) as error:
        raise TaskError(f"{path}: line {reader.line_num} is damaged: {error}") from error


def add_row(path: Path, row: Row) -> None:
    """Adds a row atomically, in place of the same run's and of a failed one in the same cell of the plan.

    Several processes may add theirs to one table.

    Raises:
        TaskError: if the file cannot be read or written; it stays as it was.
    """
    with sole_writer(path, wait=True):
        others = [other for other in read_rows(path) if other.run != row.run and not _failed_at(other, row.cell)]
        write_csv(path, COLUMNS, map(dataclasses.astuple, [*others, row]), TaskError)


def drop_failed(path: Path, cell: tuple[str, str, int]) -> None:
    """Removes the failed rows of a cell of the plan, as `add_row`; without any the file is not written.

    Raises:
        TaskError: if the file cannot be read or written; it stays as it was.
    """
    with sole_writer(path, wait=True):
        rows = read_rows(path)
        kept = [row for row in rows if not _failed_at(row, cell)]
        if len(kept) < len(rows):
            write_csv(path, COLUMNS, map(dataclasses.astuple, kept), TaskError)


def _failed_at(row: Row, cell: tuple[str, str, int]) -> bool:
    return bool(row.error) and row.cell == cell


def _parse(texts: dict[str, str]) -> Row:
    if set(texts) != set(COLUMNS) or None in texts.values():
        raise ValueError(f"it does not have {len(COLUMNS)} values")
    hints = typing.get_type_hints(Row)
    values: dict[str, typing.Any] = {}
    for name, text in texts.items():
        options = typing.get_args(hints[name]) or (hints[name],)
        kind = int if options[0] is float and text.isdecimal() else options[0]  # to be written again as it is
        values[name] = None if text == "" and type(None) in options else kind(text)
    return Row(**values)
