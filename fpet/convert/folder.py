"""Writing a folder so that a half-written one is never seen."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fpet.errors import FpetError


def write_folder(path: Path, files: Mapping[str, bytes], error: type[FpetError]) -> None:
    """Writes the files beside `path` and renames their folder; `path` itself must not exist.

    Raises:
        `error`: if the folder cannot be written; nothing is left of it.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        for name, data in files.items():
            (temporary / name).write_bytes(data)
        temporary.chmod(0o755)
        temporary.rename(path)
    except BaseException as cause:  # an interrupt as well
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(cause, OSError):
            raise error(f"{path}: cannot be written: {cause.strerror}") from cause
        raise
