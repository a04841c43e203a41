"""`fpet serve`: every option of `Settings` as a flag."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Literal, NoReturn, get_args, get_origin

from pydantic import ValidationError

from fpet.errors import BackboneError, FpetError
from fpet.files import require_regular
from fpet.signals import ended_by_signals, listen_no_longer
from service.errors import reason_of
from service.logs import configure
from service.settings import PREFIX, SECRETS, Settings

logger = logging.getLogger(__name__)

_DESCRIPTION = """Serves the tasks of a folder over HTTP; /docs describes the interface. A flag wins over the
environment, which wins over the default."""
_INPUT_ERROR = 2


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `serve`."""
    parser = subparsers.add_parser("serve", help="serve tasks over HTTP", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    for name, field in Settings.model_fields.items():
        if name in SECRETS:
            option = f"--{name.replace('_', '-')}"
            parser.add_argument(option, nargs="?", action=_Refused, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
            continue
        default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
        shown = "" if default in (None, "") else f"; default {default}"
        chosen, switch = get_origin(field.annotation) is Literal, field.annotation is bool
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            nargs="?" if switch else None,
            const="true" if switch else None,
            choices=get_args(field.annotation) if chosen else None,
            metavar=None if chosen else "true|false" if switch else name.rsplit("_", 1)[-1].upper(),
            help=f"{field.description} [{PREFIX}{name.upper()}{shown}]",
        )


class _Refused(argparse.Action):
    """A secret as an option, which is not repeated: everybody on the machine can read a command line."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Ends the process."""
        (option,) = self.option_strings
        parser.error(f"{option} is no option: give {PREFIX}{self.dest.upper()}, or {option}-file")


def run(arguments: argparse.Namespace) -> int:
    """Serves until SIGTERM, SIGHUP or SIGINT; returns the exit code: 2 if an option is wrong, 1 if it cannot start.

    Raises:
        FpetError: if the address, the backbone or the task folder cannot be used. Where the log has objects this is
            one of them instead, and the code is 2.
    """
    try:
        settings = read_settings(arguments)
    except ValidationError as error:
        for problem in error.errors():
            print(f"fpet serve: {_where(problem['loc'])}{reason_of(problem)}", file=sys.stderr)
        return _INPUT_ERROR
    try:
        return _serve(settings)
    except FpetError as error:
        if settings.log_format != "json":
            raise
        configure(settings.log_level, settings.log_format)  # which it may not be yet
        logger.error("%s", error)
        return _INPUT_ERROR


def _serve(settings: Settings) -> int:
    from service.http.listening import require_free  # noqa: PLC0415
    from service.tasks.folder import require_folder  # noqa: PLC0415

    require_free(settings.host, settings.port)
    # Again when they are opened; but until then torch is loaded and the hardware timed.
    if settings.tasks is not None:
        require_folder(settings.tasks)
    is_folder = settings.backbone is not None and os.path.isdir(settings.backbone)  # noqa: PTH112  # raises nothing
    if settings.backbone is not None and not is_folder:  # of which more is said then
        require_regular(settings.backbone, BackboneError)
    configure(settings.log_level, settings.log_format)
    if unknown := Settings.unknown_variables():
        logger.warning("the environment has variables that are no options: %s", ", ".join(unknown))
    if settings.processes > 1:
        from service.supervisor import supervise  # noqa: PLC0415

        listen_no_longer()
        return supervise(settings)
    with ended_by_signals():
        # torch is imported from here on, so that neither --help nor a supervisor has to hold it.
        from service.process import prepare, serve  # noqa: PLC0415

        server = prepare(settings)
    listen_no_longer()
    return serve(server)


def read_settings(arguments: argparse.Namespace) -> Settings:
    """The flags that were given, over the environment, over the defaults."""
    given = {name: value for name, value in vars(arguments).items() if name in Settings.model_fields}
    return Settings(**given)


def _where(location: tuple[int | str, ...]) -> str:
    if not location:
        return ""
    name = str(location[0])
    variable = PREFIX + name.upper()
    return f"{variable}: " if name in SECRETS else f"--{name.replace('_', '-')} ({variable}): "
