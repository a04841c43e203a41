"""The command `fpet`: its own sub-commands, and those of packages installed beside it."""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fpet import __version__
from fpet.commands.tell import tell
from fpet.errors import FpetError, UnsupportedError
from fpet.signals import ended_by_signals
from fpet.system_errors import os_errors_as
from fpet.words import reason

# Each is a module of fpet.commands, whose `add_command` adds a sub-command and sets the default `run`: parsed arguments
# -> exit code. With its help, which the list of commands shows without importing any.
COMMANDS = {
    "train": "fit one task and write its file",
    "sweep": "train a table of methods, data and seeds",
    "classify": "label images",
    "evaluate": "test the accuracy of a task",
    "calibrate": "make probabilities of a task say how often it is right",
    "tasks": "list task files",
    "show": "print what is in a task file",
    "data": "fetch data sets",
    "fold": "write a task as a plain timm checkpoint",
    "convert": "convert published adapters, PEFT LoRA and transformers models",
    "methods": "list adapters and reducers",
    "flops": "count multiply-accumulates by part",
    "visualize": "draw which patches merged",
    "import-backbone": "make a backbone file",
}
_VERSION = "--version"
_ENTRY_POINTS = "fpet.commands"
_INPUT_ERROR = 2
_INTERRUPTED = 130
_STANDARD = 2  # the last of the descriptors of standard input, output and error
_NEAR = 0.8  # of what `difflib` measures: --nmae is near --name, --resume is not near --reducer
# Errors of writing: a full disk, a quota, a limit, a failing disk, one that became read-only, a pipe that nobody reads.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EPIPE)


class _Parser(argparse.ArgumentParser):
    """Refuses abbreviated options: one of a later version could change what they mean."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuses what it does not know by its own usage; argparse would leave that to the parser of all commands."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, n=1, cutoff=_NEAR)
            self.error(f"unrecognized arguments: {' '.join(unknown)}" + "".join(f"; is {one} meant?" for one in near))
        return parsed, unknown


def parser(word: str) -> argparse.ArgumentParser:
    """The parser of one command, if the word is one: nothing else is then imported.

    For any other word, such as `--help`, it has all commands, our own with names and help, but without options.
    """
    root = _Parser(prog="fpet", description="Trains, inspects, converts and serves tasks on one frozen ViT.")
    root.add_argument(_VERSION, action="version", version=f"%(prog)s {__version__}")
    subparsers = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    installed = {point.name: point for point in entry_points(group=_ENTRY_POINTS)}
    names = (*COMMANDS, *sorted(installed))
    if word in names or word == _VERSION:
        names = tuple(name for name in names if name == word)
    for name in names:
        if name in installed:
            installed[name].load()(subparsers)
        elif name != word:
            subparsers.add_parser(name, help=COMMANDS[name])
        else:
            import_module(f"fpet.commands.{name.replace('-', '_')}").add_command(subparsers)
    return root


class _Lines(logging.Handler):
    """Prints log records to what `sys.stderr` is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(self.format(record))


@contextmanager
def _told() -> Iterator[None]:
    """Shows what the library logs of its progress."""
    logger, lines = logging.getLogger("fpet"), _Lines()
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before)


def _open_closed() -> None:
    """Opens the null device in place of each of standard input, output and error that is closed: otherwise the next
    files and sockets would get these descriptors, and output of libraries would be written into them."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STANDARD:
        pass
    os.close(opened)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _require_folders() -> None:
    """Raises UnsupportedError without what libraries need as torch is imported: they would end the process, naming
    another file (oneMKL) or none (torch's compiler)."""
    with os_errors_as(UnsupportedError, "the working folder"):
        Path.cwd()
    with os_errors_as(UnsupportedError, "no folder for temporary files; TMPDIR may name one"):
        tempfile.gettempdir()


@contextmanager
def _memory_told(batches: bool) -> Iterator[None]:
    """Raises UnsupportedError in place of Python's and torch's errors for memory that could not be had. batches:
    whether the command has an option for their size."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        from fpet.hardware.room import lacked_memory  # noqa: PLC0415  # imports torch, as whatever raised such an error

        if not lacked_memory(error):
            raise
        less = "; a smaller --batch-size takes less" if batches else ""
        raise UnsupportedError(f"there is not enough memory{less}: {reason(error)}") from error


def _run(given: Sequence[str]) -> int:
    # Pillow's warning about a large picture: it is either read or refused with an error.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit of", Warning)
    try:
        _require_folders()
        word = next((one for one in given if one != "--"), "")
        arguments = parser(word).parse_args(given)
        with _memory_told("batch_size" in arguments):
            return int(arguments.run(arguments))
    except FpetError as error:
        tell(error)
        return _INPUT_ERROR


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; 2 if input or output fail, 130 if interrupted.

    One line on standard error says why, but not of a pipe that is read no further.

    Raises:
        SystemExit: as argparse, for `--help` and `--version` (0), and for a command or option that there is not (2).
    """
    _open_closed()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error does: file names may not be UTF-8
    try:
        try:
            # By default the first process of a container is not ended by SIGTERM, but killed after a while.
            with _told(), ended_by_signals() if os.getpid() == 1 else nullcontext():
                return _run(sys.argv[1:] if argv is None else argv)
        finally:  # also of `--help`, and behind an error
            sys.stdout.flush()  # here, so that a failure is reported below
    except KeyboardInterrupt:
        tell("interrupted")
        return _INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # about a path that the user named
            tell(f"{error.filename}: {error.strerror}")
            return _INPUT_ERROR
        if error.errno not in _UNWRITABLE:
            raise
        if error.errno != errno.EPIPE:  # the reader, such as `head`, closed it on purpose
            tell(f"the output cannot be written: {error.strerror}")
        # Otherwise Python would try again to write the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INPUT_ERROR


if __name__ == "__main__":
    sys.exit(main())
