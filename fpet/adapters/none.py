"""Linear probe: nothing but the head is trained."""

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.tokens import Geometry


class LinearProbe(Adapter):
    """No adapter at all. Parameters: 0 (the head is counted apart)."""

    foldable = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(BlockAdapter() for _ in range(geometry.depth))
