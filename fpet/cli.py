"""The command `fpet`: its own sub-commands, and those of packages installed beside it."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from fpet import __version__
from fpet.commands import (
    classify,
    convert,
    data,
    evaluate,
    flops,
    fold,
    import_backbone,
    methods,
    show,
    sweep,
    tasks,
    train,
    visualize,
)
from fpet.errors import FpetError

# Each adds its sub-command and sets the default `run`: parsed arguments -> exit code.
AddCommand = Callable[["argparse._SubParsersAction[argparse.ArgumentParser]"], None]

COMMANDS: dict[str, AddCommand] = {
    "train": train.add_command,
    "sweep": sweep.add_command,
    "classify": classify.add_command,
    "evaluate": evaluate.add_command,
    "tasks": tasks.add_command,
    "show": show.add_command,
    "data": data.add_command,
    "fold": fold.add_command,
    "convert": convert.add_command,
    "methods": methods.add_command,
    "flops": flops.add_command,
    "visualize": visualize.add_command,
    "import-backbone": import_backbone.add_command,
}
_ENTRY_POINTS = "fpet.commands"
_INPUT_ERROR = 2
_INTERRUPTED = 130
_UNWRITABLE = (errno.ENOSPC, errno.EPIPE)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    root = argparse.ArgumentParser(prog="fpet", description=__doc__)
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    installed = {point.name: point for point in entry_points(group=_ENTRY_POINTS)}
    for add_command in (*COMMANDS.values(), *(installed[name].load() for name in sorted(installed))):
        add_command(subparsers)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit code: 0, or 2 if input or output fail, which one line on
    standard error says."""
    arguments = parser().parse_args(argv)
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()  # here, where an error is still ours to tell
        return code
    except FpetError as error:
        print(f"fpet: {error}", file=sys.stderr)
        return _INPUT_ERROR
    except KeyboardInterrupt:
        print("fpet: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        if error.errno != errno.EPIPE:  # who reads no further, as `head`, knows
            print(f"fpet: the output cannot be written: {error.strerror}", file=sys.stderr)
        # What is left of it would be written, again in vain, when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INPUT_ERROR


if __name__ == "__main__":
    sys.exit(main())
