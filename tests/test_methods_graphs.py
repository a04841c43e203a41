"""Each forward is one graph, for a compiler and for an exporter."""

from __future__ import annotations

import pytest
import torch
from pairs import IMAGES, TRACED, model_of, new_backbone
from torch.export import Dim

from fpet.backbone import Backbone


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return new_backbone()


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(("adapter", "reducer"), TRACED)
def test_one_graph_holds_the_whole_forward(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        torch.testing.assert_close(compiled(IMAGES), model(IMAGES), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize(("adapter", "reducer"), TRACED)
def test_an_exported_model_takes_another_batch_size(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    program = torch.export.export(model, (IMAGES,), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))
    more = IMAGES.repeat(2, 1, 1, 1)
    with torch.inference_mode():
        torch.testing.assert_close(program.module()(more), model(more), rtol=1e-4, atol=1e-5)
