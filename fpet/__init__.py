"""Parameter-efficient tuning of frozen Vision Transformers with token reduction (FPET, CVPR 2025).

What a program usually needs is here under its own name, imported when it is first used: `import fpet` imports no torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fpet.backbone import Backbone as Backbone
    from fpet.backbone import create_backbone as create_backbone
    from fpet.backbone import load_backbone as load_backbone
    from fpet.backbone import save_backbone as save_backbone
    from fpet.data import Reading as Reading
    from fpet.data import load_dataset as load_dataset
    from fpet.errors import FpetError as FpetError
    from fpet.header import Method as Method
    from fpet.images import to_rgb as to_rgb
    from fpet.mixed import Template as Template
    from fpet.mixed import family as family
    from fpet.recipe import Recipe as Recipe
    from fpet.task import Task as Task
    from fpet.task import new_model as new_model
    from fpet.task import save_task as save_task
    from fpet.task_weights import Weights as Weights
    from fpet.untrained import new_header as new_header
    from fpet.weights import default_backbone as default_backbone
    from fpet.weights import task_path as task_path

    __version__: str

_HOMES = {
    "Backbone": "backbone",
    "create_backbone": "backbone",
    "load_backbone": "backbone",
    "save_backbone": "backbone",
    "Reading": "data",
    "load_dataset": "data",
    "FpetError": "errors",
    "Method": "header",
    "to_rgb": "images",
    "Template": "mixed",
    "family": "mixed",
    "Recipe": "recipe",
    "Task": "task",
    "new_model": "task",
    "save_task": "task",
    "Weights": "task_weights",
    "new_header": "untrained",
    "default_backbone": "weights",
    "task_path": "weights",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """A name of `__all__`; or `__version__`, which only an installed package knows."""
    if name == "__version__":
        try:
            return version("fpet-serve")
        except PackageNotFoundError:
            return "0+uninstalled"
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
