"""Parameter-efficient tuning of frozen Vision Transformers with token reduction (FPET, CVPR 2025).

What a program usually needs is here under its own name, imported when it is first used: `import fpet` imports no torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fpet.adapters.base import Adapter as Adapter
    from fpet.adapters.base import BlockAdapter as BlockAdapter
    from fpet.backbone import Backbone as Backbone
    from fpet.backbone import create_backbone as create_backbone
    from fpet.backbone import load_backbone as load_backbone
    from fpet.backbone import save_backbone as save_backbone
    from fpet.backbone import save_vit as save_vit
    from fpet.classifier import Classifier as Classifier
    from fpet.data import Dataset as Dataset
    from fpet.data import Reading as Reading
    from fpet.data import Split as Split
    from fpet.data import dataset_of as dataset_of
    from fpet.data import load_dataset as load_dataset
    from fpet.embedded import default_backbone as default_backbone
    from fpet.embedded import task_path as task_path
    from fpet.errors import BackboneError as BackboneError
    from fpet.errors import BusyError as BusyError
    from fpet.errors import DataError as DataError
    from fpet.errors import DivergedError as DivergedError
    from fpet.errors import FpetError as FpetError
    from fpet.errors import ImageError as ImageError
    from fpet.errors import TaskError as TaskError
    from fpet.errors import UnsupportedError as UnsupportedError
    from fpet.errors import UnwritableError as UnwritableError
    from fpet.evaluation import Evaluation as Evaluation
    from fpet.evaluation import evaluate as evaluate
    from fpet.flops import macs as macs
    from fpet.folding import fold as fold
    from fpet.header import Method as Method
    from fpet.header import TaskHeader as TaskHeader
    from fpet.images import to_rgb as to_rgb
    from fpet.inference.mixed import Template as Template
    from fpet.inference.mixed import family as family
    from fpet.inference.task_weights import Weights as Weights
    from fpet.inference.unit_scale import at_unit_scale as at_unit_scale
    from fpet.linear import LowBitLinear as LowBitLinear
    from fpet.linear import per_token as per_token
    from fpet.predictions import Classification as Classification
    from fpet.predictions import Prediction as Prediction
    from fpet.predictions import TokenCounts as TokenCounts
    from fpet.preprocess import Preprocessing as Preprocessing
    from fpet.reducers.base import BipartiteBlock as BipartiteBlock
    from fpet.reducers.base import BlockReducer as BlockReducer
    from fpet.reducers.base import Reducer as Reducer
    from fpet.reducers.base import ReducerAtBlocks as ReducerAtBlocks
    from fpet.task import Task as Task
    from fpet.task import new_model as new_model
    from fpet.task import save_task as save_task
    from fpet.task import save_tensors as save_tensors
    from fpet.temperature import calibrate as calibrate
    from fpet.timm_download import download_backbone as download_backbone
    from fpet.tokens import Geometry as Geometry
    from fpet.tokens import Layout as Layout
    from fpet.tokens import Tokens as Tokens
    from fpet.training.fit import Fitted as Fitted
    from fpet.training.fit import evaluate_fitted as evaluate_fitted
    from fpet.training.fit import fit as fit
    from fpet.training.recipe import Recipe as Recipe
    from fpet.untrained import new_header as new_header
    from fpet.vit import AdaptedViT as AdaptedViT

    __version__: str

_NAMES = {
    "adapters.base": ("Adapter", "BlockAdapter"),
    "backbone": ("Backbone", "create_backbone", "load_backbone", "save_backbone", "save_vit"),
    "classifier": ("Classifier",),
    "data": ("Dataset", "dataset_of", "load_dataset", "Reading", "Split"),
    "embedded": ("default_backbone", "task_path"),
    "errors": (
        "BackboneError",
        "BusyError",
        "DataError",
        "DivergedError",
        "FpetError",
        "ImageError",
        "TaskError",
        "UnsupportedError",
        "UnwritableError",
    ),
    "evaluation": ("evaluate", "Evaluation"),
    "flops": ("macs",),
    "folding": ("fold",),
    "header": ("Method", "TaskHeader"),
    "images": ("to_rgb",),
    "inference.mixed": ("family", "Template"),
    "inference.task_weights": ("Weights",),
    "inference.unit_scale": ("at_unit_scale",),
    "linear": ("LowBitLinear", "per_token"),
    "predictions": ("Classification", "Prediction", "TokenCounts"),
    "preprocess": ("Preprocessing",),
    "reducers.base": ("BipartiteBlock", "BlockReducer", "Reducer", "ReducerAtBlocks"),
    "task": ("new_model", "save_task", "save_tensors", "Task"),
    "temperature": ("calibrate",),
    "timm_download": ("download_backbone",),
    "tokens": ("Geometry", "Layout", "Tokens"),
    "training.fit": ("evaluate_fitted", "fit", "Fitted"),
    "training.recipe": ("Recipe",),
    "untrained": ("new_header",),
    "vit": ("AdaptedViT",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
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
