"""No token reduction: the bare sequence length, and the baseline of every comparison."""

from fpet.reducers.base import BlockReducer, Reducer
from fpet.tokens import Geometry, Layout


class NoReduction(Reducer):
    """Keeps all tokens."""

    def __init__(self, geometry: Geometry, layout: Layout) -> None:
        super().__init__(geometry, layout, lambda _, here: BlockReducer(here))
