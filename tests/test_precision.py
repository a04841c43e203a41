"""Which number formats are emulated, and slow for that, on which device."""

from __future__ import annotations

import pytest
import torch

from fpet.precision import emulation


@pytest.mark.parametrize("instructions", [True, False])
def test_bfloat16_is_emulated_where_there_are_no_instructions_for_it(
    instructions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: instructions)
    cpu = torch.device("cpu")
    emulated = "this cpu has no instructions for bfloat16 that torch knows of: it is emulated, and slower than float32"
    assert emulation("bfloat16", cpu) == ("" if instructions else emulated)
    assert emulation("float32", cpu) == ""
