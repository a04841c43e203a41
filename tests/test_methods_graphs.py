"""Each forward is one graph, for a compiler and for an exporter, and one function, for transforms of functions."""

from __future__ import annotations

import pytest
import torch
from pairs import IMAGES, TRACED, model_of, new_backbone
from torch import Tensor, nn
from torch.export import Dim
from torch.func import functional_call, grad, vmap

from fpet.backbone import Backbone


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return new_backbone(depth=2)  # a graph grows with the blocks, and with it the time


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(("adapter", "reducer"), TRACED)
def test_one_graph_holds_the_whole_forward(backbone: Backbone, adapter: str, reducer: str) -> None:
    """As the compiler takes it from Python; what it makes of a graph's operators, the exporter below does too."""
    model = model_of(backbone, adapter, reducer)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
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
@pytest.mark.parametrize(("adapter", "reducer"), TRACED)
def test_each_image_has_a_gradient_of_its_own(backbone: Backbone, adapter: str, reducer: str) -> None:
    """As for differential privacy, or to see which images a task learns from; in training, but for dropout."""
    model = model_of(backbone, adapter, reducer).train()
    for dropout in (part for part in model.modules() if isinstance(part, nn.Dropout)):
        dropout.eval()
    parameters = {name: each.detach() for name, each in model.named_parameters() if not name.startswith("vit.")}

    def loss(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        logits: Tensor = functional_call(model, parameters, (image[None],))
        return logits.logsumexp(dim=-1).sum()

    found = vmap(grad(loss), (None, 0))(parameters, IMAGES)
    for index, image in enumerate(IMAGES):
        alone = grad(loss)(parameters, image)
        for name in parameters:
            torch.testing.assert_close(found[name][index], alone[name], rtol=1e-3, atol=1e-4)
