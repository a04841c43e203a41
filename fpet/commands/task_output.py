"""The name of a task file that a command is to write."""

from __future__ import annotations

from pathlib import Path

from fpet.commands import options
from fpet.errors import TaskError, UnsupportedError
from fpet.header import check_name


def check_output(output: Path, name: str, instead: str = "") -> None:
    """Refuses a file that is not called as its task, without which no service takes it.

    instead: what else there is to do about it.

    Raises:
        UnsupportedError: for another name.
        TaskError: if no task can be called so.
    """
    # Other commands recognise a task file by the suffix, and a checkpoint's name differs in it alone.
    options.require_suffix(output, ".safetensors", "a task file's name")
    try:
        check_name(name)
    except ValueError as error:
        raise TaskError(str(error)) from error
    if output.stem != name:
        raise UnsupportedError(f"{output}: a task's file has the task's name; call it {name}.safetensors{instead}")
