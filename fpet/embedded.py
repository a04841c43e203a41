"""Where the embedded default lies: beside the packages in a checkout, inside `fpet` in an installed wheel."""

from pathlib import Path

from fpet.errors import TaskError

BACKBONE = "vit-tiny-p8-112.safetensors"
_PACKAGE = Path(__file__).parent


def embedded() -> Path:
    """The folder with `backbones/`, `tasks/` and `samples/`."""
    installed = _PACKAGE / "_embedded"
    return installed if installed.is_dir() else _PACKAGE.parent / "weights"


def default_backbone() -> Path:
    """The embedded backbone's file."""
    return embedded() / "backbones" / BACKBONE


def tasks_folder() -> Path:
    """The folder of the embedded tasks."""
    return embedded() / "tasks"


def task_path(name: str) -> Path:
    """The file of an embedded task.

    Raises:
        TaskError: if there is none of that name.
    """
    known = {path.stem: path for path in sorted(tasks_folder().glob("*.safetensors"))}
    if name not in known:
        raise TaskError(f"there is no embedded task {name!r}; there are {', '.join(known) or 'none'}")
    return known[name]
