"""How images are prepared is said in tuples of the right length, however it is given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fpet.errors import UnsupportedError
from fpet.preprocess import Preprocessing


def test_lists_are_as_good_as_tuples() -> None:
    given: Any = Preprocessing([4, 6], [0.1, 0.2, 0.3], [1.0, 2.0, 3.0])  # type: ignore[arg-type]
    assert given == Preprocessing((4, 6), (0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    assert given.normalize(torch.zeros(1, 3, 4, 6, dtype=torch.uint8), torch.float32).shape == (1, 3, 4, 6)


@pytest.mark.parametrize("wrong", [{"size": (4,)}, {"mean": (0.5, 0.5)}, {"std": (1.0, 1.0, 1.0, 1.0)}])
def test_another_number_of_values_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UnsupportedError, match=f"^{name} = .*: it has [23] values$"):
        Preprocessing(**{"size": (4, 6), **wrong})
