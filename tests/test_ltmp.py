"""LTMP against a loop over the tokens of one image, and its masks against tokens that are really gone."""

from __future__ import annotations

import math

import pytest
import torch
from small import ARCHITECTURE, ARGUMENTS, small_backbone, small_header
from torch import Tensor
from torch.nn import functional as F

from fpet.backbone import create_backbone
from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.reducers.ltmp import LTMP, LTMPBlock, importance, presence
from fpet.task import new_model
from fpet.tokens import Geometry, Layout, Tokens
from fpet.vit import AdaptedViT

TOKENS, PREFIX = 12, 2
LAYOUT = Layout(PREFIX, tuple((0, column) for column in range(TOKENS - PREFIX)))


def block_of(merge: float, prune: float) -> LTMPBlock:
    block = LTMPBlock(LAYOUT, tau=0.1).eval()
    torch.nn.init.constant_(block.merge_threshold, merge)
    torch.nn.init.constant_(block.prune_threshold, prune)
    return block


def one_image(seed: int) -> tuple[Tokens, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((1, TOKENS, 6), generator=generator)
    size = torch.randint(1, 4, (1, TOKENS, 1), generator=generator).float()
    query, key = torch.randn((2, 1, 3, TOKENS, 4), generator=generator)
    return Tokens(x, size), query, key


def token_by_token(
    tokens: Tokens, query: Tensor, key: Tensor, merge: float, prune: float
) -> tuple[list[Tensor], list[float]]:
    """What is left of one image, written out; prune is relative to uniform attention."""
    assert tokens.size is not None
    x, size, heads = tokens.x[0], tokens.size[0, :, 0].tolist(), key.shape[1]
    received = [0.0] * TOKENS
    for head in range(heads):
        for i in range(TOKENS):
            q = query[0, head, i]
            scores = [size[j] * math.exp(float(q @ key[0, head, j]) / math.sqrt(4)) for j in range(TOKENS)]
            for j in range(TOKENS):
                received[j] += scores[j] / sum(scores) / (heads * TOKENS)
    metric = key[0].mean(dim=0)
    content, mass, gone = [x[i] * size[i] for i in range(TOKENS)], list(size), set()
    most = list(received)
    for i in range(PREFIX, TOKENS):
        if i % 2 == 0:
            cosines = {j: float(F.cosine_similarity(metric[i], metric[j], dim=0)) for j in range(PREFIX + 1, TOKENS, 2)}
            best = max(cosines, key=lambda j: cosines[j])
            if cosines[best] > merge:
                content[best], mass[best] = content[best] + x[i] * size[i], mass[best] + size[i]
                most[best] = max(most[best], received[i])
                gone.add(i)
    patches = [i for i in range(PREFIX, TOKENS) if i not in gone]
    gone |= {i for i in patches if most[i] <= prune / TOKENS} - {max(patches, key=lambda i: most[i])}
    left = [i for i in range(TOKENS) if i not in gone]
    return [content[i] / mass[i] for i in left], [mass[i] for i in left]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("merge", "prune"), [(0.4, 0.0), (2.0, 0.8), (0.3, 0.9), (0.9, 0.0)])
def test_one_image_is_reduced_as_written_out(merge: float, prune: float, seed: int) -> None:
    tokens, query, key = one_image(seed)
    with torch.inference_mode():
        reduced = block_of(merge, prune)(tokens, query, key)
    x, size = token_by_token(tokens, query, key, merge, prune)
    assert reduced.size is not None
    torch.testing.assert_close(reduced.x[0], torch.stack(x))
    torch.testing.assert_close(reduced.size[0, :, 0], torch.tensor(size))


@pytest.mark.parametrize(
    ("merge", "prune", "left"),
    [(1.1, 0.0, TOKENS), (-1.1, 0.0, PREFIX + 5), (1.1, float(TOKENS), PREFIX + 1), (-1.1, float(TOKENS), PREFIX + 1)],
)
def test_thresholds_can_take_nothing_or_all_but_one(merge: float, prune: float, left: int) -> None:
    tokens, query, key = one_image(0)
    with torch.inference_mode():
        x, size = block_of(merge, prune)(tokens, query, key)
    assert x.shape[1] == left
    assert torch.equal(x[:, :PREFIX], tokens.x[:, :PREFIX])
    if left == TOKENS:
        assert torch.equal(size, tokens.size)
    if left == PREFIX + 5:
        assert size.sum() == tokens.size.sum()


def reducing_model(merge: float, prune: float, **pooling: object) -> AdaptedViT:
    """A model whose blocks all have these thresholds, and whose training aims at half of the cost."""
    torch.manual_seed(0)
    backbone = create_backbone(ARCHITECTURE, {**ARGUMENTS, **pooling})
    model = new_model(small_header(backbone, Method("none"), Method("ltmp", {"target": 0.5})), backbone)
    for block in model.reducer.blocks:
        torch.nn.init.constant_(block.merge_threshold, merge)
        torch.nn.init.constant_(block.prune_threshold, prune)
    return model.eval()


# Of ever stronger contrast, so that they keep different numbers of tokens.
IMAGES = torch.randn((6, 3, 16, 16), generator=torch.Generator().manual_seed(5))
IMAGES = IMAGES * torch.linspace(0.01, 2, 6)[:, None, None, None]
BOTH = (0.3, 0.95)


@pytest.mark.parametrize("pooling", [{}, {"global_pool": "avg"}], ids=["class token", "mean"])
def test_masked_tokens_weigh_nothing(pooling: dict[str, object]) -> None:
    """In training mode all tokens stay; alone and in a batch they are left out: the answers agree."""
    model = reducing_model(*BOTH, **pooling)
    with torch.inference_mode():
        alone = [model.tokens(image[None]) for image in IMAGES]
        lengths = [tokens.x.shape[1] for tokens in alone]
        together = model.tokens(IMAGES)
        assert len(set(lengths)) > 1
        assert together.x.shape[1] == max(lengths) < model.tokens_out
        expected = torch.cat([model(image[None]) for image in IMAGES])
        torch.testing.assert_close(model(IMAGES), expected, rtol=1e-4, atol=1e-5)
        model.train()
        assert model.tokens(IMAGES).x.shape[1] == model.tokens_out
        torch.testing.assert_close(model(IMAGES), expected, rtol=1e-4, atol=1e-5)
    assert together.size is not None
    for i, (tokens, length) in enumerate(zip(alone, lengths, strict=True)):
        torch.testing.assert_close(together.x[i, :length], tokens.x[0], rtol=1e-4, atol=1e-4)
        assert torch.equal(together.size[i, :length], tokens.size[0])
        assert (together.size[i, length:] < 1e-6).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pooling", [{"global_pool": "avg"}, {"class_token": False, "global_pool": "avg"}], ids=str)
def test_a_patch_is_left_to_take_the_mean_of(pooling: dict[str, object], dtype: torch.dtype) -> None:
    model = reducing_model(-1.1, 100.0, **pooling).to(dtype)  # thresholds that no importance is above
    images = IMAGES.to(dtype)
    with torch.inference_mode():
        together = model.tokens(images)
        assert together.lengths().tolist() == [model.backbone.geometry.num_prefix_tokens + 1] * len(images)
        expected = torch.cat([model(image[None]) for image in images])
        assert expected.isfinite().all()
        for training in (False, True):
            torch.testing.assert_close(model.train(training)(images), expected, rtol=0.1, atol=0.05)
            if dtype == torch.float32:
                torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-5)


def test_nothing_is_pruned_at_the_start() -> None:
    backbone = small_backbone()
    model = new_model(small_header(backbone, Method("none"), Method("ltmp")), backbone).eval()
    with torch.inference_mode():
        _, size = model.tokens(IMAGES)
    assert size is not None
    torch.testing.assert_close(size.sum(dim=1), torch.full((6, 1), float(model.tokens_in)))


@pytest.mark.parametrize("thresholds", [BOTH, (0.9, 0.0), (-1.1, 0.0), (1.1, 1.0)])
def test_both_thresholds_of_every_block_have_a_gradient(thresholds: tuple[float, float]) -> None:
    model = reducing_model(*thresholds).train()
    tokens, sizes = model.encode(IMAGES)
    model.pool(tokens).square().sum().backward(retain_graph=True)
    first = model.reducer.blocks[0]
    answers = [first.merge_threshold.grad.clone(), first.prune_threshold.grad.clone()]
    model.zero_grad()
    model.reducer.penalty(sizes).backward()
    for gradient in [*answers, *(parameter.grad for parameter in model.reducer.parameters())]:
        assert gradient.isfinite().all()
        assert gradient.abs().sum() > 0


def test_the_threshold_has_the_gradient_of_a_sigmoid_and_the_attention_none() -> None:
    tokens, query, key = one_image(0)
    block = LTMPBlock(LAYOUT, tau=0.2).train()
    torch.nn.init.constant_(block.merge_threshold, 2.0)  # so that nothing merges
    torch.nn.init.constant_(block.prune_threshold, 0.9)
    query.requires_grad_()
    key.requires_grad_()
    x, size = block(tokens, query, key)
    (x.sum() + size.sum()).backward()
    assert query.grad is key.grad is None
    assert tokens.size is not None
    soft = torch.sigmoid((importance(query, key, tokens.size) - 0.9 / TOKENS) / 0.2)[:, PREFIX:].detach()
    expected = -(tokens.size[:, PREFIX:] * soft * (1 - soft)).sum() / 0.2 / TOKENS
    assert block.prune_threshold.grad == pytest.approx(float(expected), rel=1e-4)


def test_the_gradient_of_a_mask_is_that_of_attention_weights() -> None:
    """d out / d mask of softmax attention with weights m_j e_j: e_j (v_j - out) / sum, also where m_j is zero."""
    torch.manual_seed(0)
    exponentials, values = torch.rand(7, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    mask = torch.tensor([1.0, 1, 0, 1, 0, 1, 1], dtype=torch.float64, requires_grad=True)
    weights = (exponentials.log() + (mask + 1e-10).log()).softmax(dim=0)
    (gradient,) = torch.autograd.grad((weights @ values)[0], mask)
    total = (exponentials * mask).sum()
    expected = exponentials * (values[:, 0] - (exponentials * mask) @ values[:, 0] / total) / total
    torch.testing.assert_close(gradient, expected.detach(), rtol=1e-6, atol=1e-8)


def test_the_penalty_is_the_distance_of_the_cost_from_the_target() -> None:
    geometry = Geometry(2, 8, 32, 2, 4, (2, 3), 1, 48)
    reducer = LTMP(geometry, Layout.of(geometry), target=0.4)
    gone = 2e-10
    sizes = [
        torch.tensor([[1.0, 1, gone, 2, 1, gone, 1], [1.0, 1, 1, 1, 1, 1, 1]])[..., None],
        torch.tensor([[1.0, 1, gone, 3, gone, gone, gone], [1.0, gone, 1, 1, 2, 1, 1]])[..., None],
    ]

    def macs(before: int, after: int) -> int:
        return before * 4 * 64 + 2 * before * before * 8 + after * 2 * 8 * 32

    whole = 2 * macs(7, 7)
    costs = [(macs(7, 5) + macs(5, 3)) / whole, (macs(7, 7) + macs(7, 6)) / whole]
    penalty = reducer.penalty(sizes)
    assert float(penalty) == pytest.approx((sum(costs) / 2 - 0.4) ** 2, rel=1e-5)


def test_presence_is_one_or_nothing_whatever_the_size() -> None:
    size = torch.tensor([1.0, 5.0, 1e-10, 7e-10])
    torch.testing.assert_close(presence(size), torch.tensor([1.0, 1.0, 0.0, 0.0]))


def test_the_penalty_alone_brings_the_cost_to_the_target() -> None:
    model = reducing_model(0.9, 0.0).train()
    optimizer = torch.optim.Adam(model.reducer.parameters(), lr=0.02)
    penalties = []
    for _ in range(60):
        _, sizes = model.encode(IMAGES)
        penalty = model.reducer.penalty(sizes)
        optimizer.zero_grad()
        penalty.backward()
        optimizer.step()
        penalties.append(penalty.item())
    assert penalties[0] > 0.1
    assert penalties[-1] < 0.01


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"target": 0.0}, "target = 0.0"), ({"target": 1.5}, "target = 1.5"), ({"tau": 0.0}, "tau = 0.0")],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, float], named: str) -> None:
    backbone = small_backbone()
    with pytest.raises(UnsupportedError, match=named):
        new_model(small_header(backbone, Method("none"), Method("ltmp", dict(arguments))), backbone)


def test_masked_tokens_ask_for_nothing() -> None:
    """Importance is that among the tokens present, however many masked ones pad the sequence."""
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn((2, 1, 3, TOKENS, 4), generator=generator)
    size = torch.ones(1, TOKENS, 1)
    size[:, -5:] = 1e-10
    among = importance(query[:, :, :-5], key[:, :, :-5], size[:, :-5])
    padded = importance(query, key, size)
    torch.testing.assert_close(padded[:, :-5], among)
    assert padded[:, -5:].max() < 1e-6
