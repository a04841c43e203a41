"""Token reductions, one file each."""

from collections.abc import Mapping

from fpet.reducers.base import Reducer
from fpet.reducers.bdm import BDM
from fpet.reducers.bsm import BSM
from fpet.reducers.ltmp import LTMP
from fpet.reducers.none import NoReduction
from fpet.reducers.pool import AveragePool, MaxPool
from fpet.reducers.tome import ToMe
from fpet.registry import Registry, build
from fpet.tokens import Geometry, Layout

REDUCERS = Registry(
    "fpet.reducers",
    Reducer,
    {
        "none": NoReduction,
        "bdm": BDM,
        "bsm": BSM,
        "tome": ToMe,
        "ltmp": LTMP,
        "average-pool": AveragePool,
        "max-pool": MaxPool,
    },
)


def build_reducer(kind: str, geometry: Geometry, layout: Layout, arguments: Mapping[str, object]) -> Reducer:
    """A freshly initialised reducer for token sequences that start in this layout.

    Raises:
        UnsupportedError: for an unknown kind or argument, or a value that does not fit.
    """
    return build(REDUCERS, kind, geometry, layout, arguments=arguments)
