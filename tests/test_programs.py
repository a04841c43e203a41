"""Programs of TorchScript answer what the forward in Python does, to the last bit, for batches of any size."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from small import ADAPTFORMER, ARCHITECTURE, ARGUMENTS, BDM, IN_ALL_BLOCKS, METHODS, small_family, small_header
from torch import Tensor, nn

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.backbone import create_backbone
from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.inference import programs, scripts
from fpet.inference.mixed import Template
from fpet.inference.reordered import reorder
from fpet.inference.task_weights import Weights
from fpet.preprocess import Preprocessing
from fpet.reducers import REDUCERS
from fpet.task import Task, new_model, save_task
from fpet.tokens import Tokens
from fpet.vit import AdaptedViT

pytestmark = pytest.mark.usefixtures("one_thread")
IMAGES = torch.randn((5, 3, 16, 16), generator=torch.Generator().manual_seed(0))
LORA = Method("lora", {"dim": 4})
# Which tasks the images of a batch are of.
BATCHES = ((0,), (0, 0), (1, 1, 1, 1, 1), (0, 1), (2, 1, 0), (2, 2, 0, 1, 2))


@pytest.fixture(autouse=True)
def none_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is there from another test."""
    monkeypatch.setattr(scripts, "_made", {})


def traced(made: Sequence[AdaptedViT]) -> tuple[Template, list[Weights]]:
    template, each = Template(made[0]), [Weights.of(model) for model in made]
    reorder(made[0].backbone.vit)
    template.trace([[each[0], each[0]], [each[0]]])
    if template.mixes:
        template.trace([[each[0], each[1]], [each[1], each[0], each[0]]])
    return template, each


@torch.inference_mode()
def compare(template: Template, each: Sequence[Weights], *, reduced: bool) -> None:
    for order in BATCHES:
        if len(set(order)) > 1 and not template.mixes:
            continue
        own = [each[i] for i in order]
        images = IMAGES[: len(order)].to(each[0].flat)
        found = template.features(own, images, reduced=reduced)
        assert torch.equal(found, template.batched(own, reduced=reduced).features(images))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("adapter", "reducer"), [pair for pair in METHODS if pair[1].kind != "ltmp"], ids=str)
def test_answers_are_those_of_the_forward_in_python(
    tmp_path: Path, adapter: Method, reducer: Method, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, each = traced(small_family(tmp_path, adapter, reducer, dtype=dtype))
    compare(template, each, reduced=True)
    compare(template, each, reduced=False)
    monkeypatch.setattr(programs, "run", None)  # without which no program computes
    with pytest.raises(TypeError), torch.inference_mode():
        template.features([each[0]], IMAGES[:1].to(dtype))


@pytest.mark.parametrize(
    ("adapter", "reducer"),
    [
        (Method("lora", {"dim": 4, "scale": 2.0}), BDM),
        (Method("adaptformer", {"dim": 4}), BDM),
        (Method("adaptformer", {"dim": 4, "scale": 3.0}), BDM),
        (LORA, Method("bdm", {"block": 0, "dim": 4, "refine": False})),
        (LORA, Method("bsm", {"block": 0})),
        (LORA, Method("max-pool", {"block": 0})),
    ],
    ids=str,
)
def test_models_that_look_alike_do_not_share_a_program(tmp_path: Path, adapter: Method, reducer: Method) -> None:
    """Their tensors have the same shapes, but for a reduction's own."""
    (tmp_path / "other").mkdir()
    traced(small_family(tmp_path / "other", LORA, BDM))
    template, each = traced(small_family(tmp_path, adapter, reducer))
    compare(template, each, reduced=True)


def test_backbones_with_another_norm_epsilon_do_not_share_a_program(tmp_path: Path) -> None:
    made = small_family(tmp_path, LORA, BDM)
    traced(made)
    vit = made[0].backbone
    other = create_backbone(vit.architecture, {**vit.arguments, "norm_eps": 0.3}, vit.vit.state_dict())
    again = [AdaptedViT(other, model.adapter, model.reducer, model.head) for model in made]
    template, each = traced([model.eval() for model in again])
    compare(template, each, reduced=True)
    with torch.inference_mode():
        alike = Template(made[0]).features([each[0]], IMAGES[:1])
        assert not torch.allclose(template.features([each[0]], IMAGES[:1]), alike, rtol=1e-2)


def test_models_that_are_alike_share_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = small_family(tmp_path, LORA, BDM)
    traced(made)
    other = create_backbone(made[0].backbone.architecture, made[0].backbone.arguments)
    monkeypatch.setattr(scripts, "_MOST", 0)  # so that nothing can be made any more
    again = [AdaptedViT(other, model.adapter, model.reducer, model.head).eval() for model in made]
    compare(*traced(again), reduced=True)
    with pytest.raises(UnsupportedError, match="no program of TorchScript can be made of the model: there are 0 of"):
        traced(small_family(tmp_path, Method("lora", {"dim": 5}), BDM))


@pytest.mark.parametrize(
    "reducer",
    [
        Method(kind, IN_ALL_BLOCKS.get(kind, {"block": 0}))
        for kind, one in REDUCERS.items()
        if kind != "none" and not one.tokens_vary
    ],
    ids=lambda method: method.kind,
)
def test_so_do_those_of_as_many_patches_as_real_ones_have(
    reducer: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = create_backbone(ARCHITECTURE, {**ARGUMENTS, "img_size": 56})  # 14 x 14 patches
    header = dataclasses.replace(small_header(backbone, LORA, reducer), preprocessing=Preprocessing((56, 56)))

    save_task(tmp_path / "task.safetensors", header, new_model(header, backbone))

    def load_and_trace() -> None:
        model = Task.load(tmp_path / "task.safetensors").build(backbone)
        Template(model).trace([[Weights.of(model)]])

    load_and_trace()
    monkeypatch.setattr(scripts, "_MOST", 0)
    load_and_trace()


def test_parameters_that_one_is_given_and_another_holds_are_told_apart(tmp_path: Path) -> None:
    """As those of the reduction of a linear probe, which tasks share, and of a task that was folded."""
    made = small_family(tmp_path, Method("none"), BDM)
    traced(made)
    model, images = made[0].in_evaluation(), IMAGES[:2]
    with torch.inference_mode():
        batch, answers = programs.Batch(images), model.features(images)
        assert torch.equal(programs.Program(model, (), [(batch, answers)]).features(batch), answers)


def test_nothing_of_a_model_is_kept(tmp_path: Path) -> None:
    made = small_family(tmp_path, Method("lora", {"dim": 3}), BDM)
    template, each = traced(made)
    tensors = [weakref.ref(tensor) for tensor in (*made[0].backbone.vit.parameters(), each[0].flat)]
    del made, template, each
    assert not any(tensor() is not None for tensor in tensors)


def test_images_that_the_model_does_not_take_are_refused(tmp_path: Path) -> None:
    template, each = traced(small_family(tmp_path, LORA, BDM))
    for images, error in ((IMAGES[:1].double(), TypeError), (IMAGES[:1, :, :12], ValueError)):
        with pytest.raises(error, match="images are normalised float32"), torch.inference_mode():
            template.features([each[0]], images)


def test_threads_compute_at_once(tmp_path: Path) -> None:
    template, each = traced(small_family(tmp_path, LORA, BDM))
    with torch.inference_mode():
        expected = [template.features([weights], IMAGES[:1]) for weights in each]

    def same(i: int) -> bool:
        with torch.inference_mode():
            return torch.equal(template.features([each[i]], IMAGES[:1]), expected[i])

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(same, [0, 1, 2] * 50))


@pytest.mark.parametrize("order", [(0,), (0, 1)], ids=["one", "mixed"])
def test_a_program_computes_without_the_interpreters_lock(
    tmp_path: Path, order: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TorchScript takes it to let go of a tensor that only Python holds otherwise, such as a parameter: here but for
    what is each batch's own, which is a few."""
    template, each = traced(small_family(tmp_path, LORA, BDM))
    own, images = 100 * [each[i] for i in order], torch.cat(100 * [IMAGES[: len(order)]])
    began, over, at = threading.Event(), threading.Event(), [0.0]

    def features() -> float:
        """Seconds of the processor that it takes."""
        before = time.thread_time()
        with torch.inference_mode():
            template.features(own, images)
        return time.thread_time() - before

    def begins(script: Any, tokens: Tokens, frozen: Any, flat: Tensor) -> Any:
        held = scripts.held([tokens.x, flat])
        at[0] = time.thread_time()
        began.set()
        done = scripts.run(script, tokens, frozen, flat)
        del held
        return done

    seconds = min(features() for _ in range(3))
    monkeypatch.setattr(programs, "run", begins)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # so that nobody has to let go of it for another
    try:
        thread = threading.Thread(target=lambda: (features(), over.wait()))
        thread.start()
        began.wait()  # until the program has let go of it, which this thread then has
        clock, until = time.pthread_getcpuclockid(thread.ident or 0), time.monotonic() + 10
        while (computed := time.clock_gettime(clock) - at[0]) < seconds / 2 and time.monotonic() < until:
            pass
    finally:
        sys.setswitchinterval(interval)
        over.set()
    thread.join()
    assert computed >= seconds / 2


def test_a_gradient_is_recorded_where_it_is_asked_for(tmp_path: Path) -> None:
    template, each = traced(small_family(tmp_path, LORA, BDM))
    flat = each[0].flat.clone().requires_grad_()
    # Not of all: the sum of what a norm has made does not depend on anything.
    template.features([each[0]._replace(flat=flat)], IMAGES[:1])[0, 0].backward()
    assert flat.grad is not None
    assert flat.grad.abs().sum() > 0


@pytest.mark.parametrize(("name", "kind"), [("blocks.1.mlp.fc1", "Linear"), ("patch_embed", "PatchEmbed")])
def test_a_hook_is_not_left_out(tmp_path: Path, name: str, kind: str) -> None:
    made = small_family(tmp_path, LORA, BDM, dtype=torch.bfloat16)
    made[0].backbone.vit.get_submodule(name).register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match=f"a hook is on a {kind},"):
        traced(made)


def enter(_: BlockAdapter, x: Tensor) -> Tensor:
    return x if x.sum() < 1e9 else -x


def patch_embed(_: Adapter, layer: nn.Module, images: Tensor) -> Tensor:
    return cast(Tensor, layer(images if images.sum() < 1e9 else -images))


@pytest.mark.parametrize(("owner", "site"), [(BlockAdapter, enter), (Adapter, patch_embed)], ids=["block", "front"])
def test_what_asks_for_a_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type[nn.Module], site: Callable[..., Tensor]
) -> None:
    """As a method of another package may: a program would do for all images what it did for the first."""
    monkeypatch.setattr(owner, site.__name__, site)
    with pytest.raises(UnsupportedError, match="Converting a tensor to a Python boolean"):
        traced(small_family(tmp_path, LORA, BDM))


def test_a_program_that_answers_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one would of a module that does something else in each forward."""
    made = small_family(tmp_path, LORA, BDM)
    monkeypatch.setattr(AdaptedViT, "features", lambda self, images: 1.1 * self.pool(self.tokens(images)))
    template = Template(made[0])
    weights = Weights.of(made[0])
    with pytest.raises(UnsupportedError, match="answers differ by"):
        template.trace([[weights, weights]])
    monkeypatch.undo()
    compare(template, [weights] * 3, reduced=True)


def test_where_images_decide_how_many_tokens_they_keep_there_is_none(tmp_path: Path) -> None:
    made = small_family(tmp_path, ADAPTFORMER, Method("ltmp", {"target": 0.5}))
    with pytest.raises(UnsupportedError, match="how many tokens"):
        traced(made)


def test_warnings_of_others_are_as_before(tmp_path: Path) -> None:
    filters = list(warnings.filters)
    traced(small_family(tmp_path, Method("lora", {"dim": 6}), BDM))
    assert warnings.filters == filters


_OFF = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from small import BDM, small_family
from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.inference.mixed import Template
from fpet.inference.reordered import reorder, reordered_bytes
from fpet.inference.task_weights import Weights
model = small_family(Path(sys.argv[2]), Method("lora"), BDM)[0]
template, weights = Template(model), Weights.of(model)
try:
    template.trace([[weights, weights]])
except UnsupportedError as error:
    print(error)
with torch.inference_mode():
    print(template.features([weights], torch.zeros(1, 3, 16, 16)).isfinite().all().item())
layer = torch.nn.Linear(192, 768).bfloat16()
reorder(layer)
print(reordered_bytes(layer))
"""


def test_torchscript_may_be_turned_off(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _OFF, str(Path(__file__).parent), str(tmp_path)]
    environment = {**os.environ, "PYTORCH_JIT": "0"}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "no program of TorchScript can be made of the model: TorchScript is turned off",
        "True",
        "0",
    ]
