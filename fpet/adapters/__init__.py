"""Parameter-efficient tuning methods, one file each."""

from collections.abc import Mapping

from fpet.adapters.adaptformer import AdaptFormer
from fpet.adapters.base import Adapter
from fpet.adapters.bitfit import BitFit
from fpet.adapters.convpass import Convpass
from fpet.adapters.fact_tk import FacTTK
from fpet.adapters.fact_tt import FacTTT
from fpet.adapters.full import Full
from fpet.adapters.lora import LoRA
from fpet.adapters.none import LinearProbe
from fpet.adapters.repadapter import RepAdapter
from fpet.adapters.ssf import SSF
from fpet.adapters.vpt import VPTDeep, VPTShallow
from fpet.registry import Registry, build
from fpet.tokens import Geometry

ADAPTERS = Registry(
    "fpet.adapters",
    Adapter,
    {
        "none": LinearProbe,
        "full": Full,
        "bitfit": BitFit,
        "vpt-shallow": VPTShallow,
        "vpt-deep": VPTDeep,
        "lora": LoRA,
        "adaptformer": AdaptFormer,
        "convpass": Convpass,
        "repadapter": RepAdapter,
        "ssf": SSF,
        "fact-tt": FacTTT,
        "fact-tk": FacTTK,
    },
)


def build_adapter(kind: str, geometry: Geometry, arguments: Mapping[str, object]) -> Adapter:
    """A freshly initialised adapter for a backbone of this geometry.

    Raises:
        UnsupportedError: for an unknown kind or argument, or a value that does not fit.
    """
    return build(ADAPTERS, kind, geometry, arguments=arguments)
