"""Each forward is one graph, for a compiler and for an exporter, and one function, for transforms of functions."""

from __future__ import annotations

import pytest
import torch
from pairs import IMAGES, TRACED, model_of, new_backbone
from torch import Tensor
from torch.export import Dim
from torch.func import functional_call, grad, vmap

from fpet.backbone import Backbone

# LTMP leaves out as many tokens as the batch allows, which a transform does not tell.
WITH_FIXED_LENGTHS = [pair for pair in TRACED if pair[1] != "ltmp"]


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


@pytest.mark.filterwarnings("ignore")  # torch's, of operators that take one image after another
@pytest.mark.parametrize(("adapter", "reducer"), WITH_FIXED_LENGTHS)
def test_each_image_has_a_gradient_of_its_own(backbone: Backbone, adapter: str, reducer: str) -> None:
    """As for differential privacy, or to see which images a task learns from: the sum is that of the batch."""
    model = model_of(backbone, adapter, reducer)
    parameters = {name: each.detach() for name, each in model.named_parameters() if not name.startswith("vit.")}

    def loss(parameters: dict[str, Tensor], images: Tensor) -> Tensor:
        logits: Tensor = functional_call(model, parameters, (images,))
        return logits.logsumexp(dim=-1).sum()

    each = vmap(grad(lambda parameters, image: loss(parameters, image[None])), (None, 0))(parameters, IMAGES)
    whole = grad(loss)(parameters, IMAGES)
    for name in parameters:
        torch.testing.assert_close(each[name].sum(dim=0), whole[name], rtol=1e-3, atol=1e-4)
