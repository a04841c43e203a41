"""Evaluation: every image counted once, with and without token reduction, and the bar set by raw pixels."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from picture_files import picture
from sklearn.linear_model import LogisticRegression
from small import ADAPTFORMER, BDM, METHODS, perturb, small_backbone, small_digits, small_header
from torch import Tensor

from fpet.baseline import _pixels, raw_pixel_baseline
from fpet.data import Dataset, Split, load_dataset
from fpet.data.split import ImageTensor
from fpet.errors import DataError, UnsupportedError
from fpet.evaluation import Confusion, Evaluation, answers, classify, evaluate, summary
from fpet.header import Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.task import new_model
from fpet.vit import AdaptedViT

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return small_digits()


@torch.no_grad()
def untrained(adapter: Method, reducer: Method, images: Tensor) -> tuple[TaskHeader, AdaptedViT]:
    """A model with random weights; its head is centred on these images, so that the answers to them vary."""
    backbone = small_backbone()
    header = small_header(backbone, adapter, reducer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = new_model(header, backbone).eval()
        perturb(model.trainable(), 0.3)
        embeddings = model.features(header.preprocessing.normalize(images, torch.float32))
        weight, bias = model.head.parameters()
        weight.copy_(torch.randn(weight.shape) / embeddings.std(dim=0))
        bias.copy_(-weight @ embeddings.mean(dim=0))
    return header, model


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=lambda method: method.kind)
def test_each_image_is_counted_once_and_where_it_belongs(adapter: Method, reducer: Method, digits: Dataset) -> None:
    images = digits.test.resized(Preprocessing((16, 16))).images
    header, model = untrained(adapter, reducer, images)
    counted = answers(model, digits.test, header.preprocessing, batch_size=7)
    targets = digits.test.targets
    found = []
    for matrix, one in ((counted.reduced.matrix(), model), (counted.unreduced.matrix(), model.unreduced())):
        with torch.inference_mode():
            found.append(classify(one, images, header.preprocessing)[0].argmax(dim=1))
        assert len(found[-1].unique()) > 2
        pairs = Counter(zip(targets.tolist(), found[-1].tolist(), strict=True))
        assert {(i, j): int(matrix[i, j]) for i, j in matrix.nonzero().tolist()} == pairs
    reduced, plain = found
    evaluation = summary(model, counted)
    assert evaluation.images == 60
    assert evaluation.accuracy == (reduced == targets).sum() / 60
    assert evaluation.accuracy_unreduced == (plain == targets).sum() / 60
    assert evaluation.agreement == (reduced == plain).sum() / 60
    assert (evaluation.tokens_in, evaluation.tokens_out) == (model.tokens_in, model.tokens_out)
    left = f"{model.tokens_out}.0 tokens on average" if reducer.kind == "ltmp" else f"{model.tokens_out} tokens"
    assert evaluation.tokens_in_words == f"{model.tokens_in} -> {left}"


def test_what_each_image_kept_is_averaged(digits: Dataset) -> None:
    images = digits.test.resized(Preprocessing((16, 16))).images
    header, model = untrained(ADAPTFORMER, Method("ltmp"), images)
    for block in model.reducer.blocks:
        torch.nn.init.constant_(block.merge_threshold, 0.9)
        torch.nn.init.constant_(block.prune_threshold, 0.7)
    normalised = header.preprocessing.normalize(images, torch.float32)
    with torch.inference_mode():
        lengths = [model.tokens(image[None]).x.shape[1] for image in normalised]  # alone, no image is padded
    assert len(set(lengths)) > 2
    given = answers(model, digits.test, header.preprocessing, batch_size=7)
    assert given.tokens_out.tolist() == lengths
    evaluation = summary(model, given)
    assert evaluation.tokens_out == sum(lengths) / 60 < model.tokens_out
    assert evaluation.tokens_in_words == f"17 -> {sum(lengths) / 60:.1f} tokens on average"


def test_neither_batch_size_nor_training_mode_matters(digits: Dataset) -> None:
    header, model = untrained(
        Method("lora", {"dropout": 0.5}), BDM, digits.test.resized(Preprocessing((16, 16))).images
    )
    modes = {name: module.training for name, module in model.train().named_modules()}
    first = evaluate(model, digits.test, header.preprocessing)
    for batch_size in (1, 64):
        assert evaluate(model, digits.test, header.preprocessing, batch_size) == first
    assert {name: module.training for name, module in model.named_modules()} == modes  # it trains on
    assert modes["adapter"]
    assert evaluate(model.eval(), digits.test, header.preprocessing) == first
    with pytest.raises(ValueError, match="batch_size = 0 should be above 0"):
        evaluate(model, digits.test, header.preprocessing, 0)


@pytest.mark.parametrize("reducer", [BDM, Method("none")], ids=lambda method: method.kind)
def test_each_answer_comes_with_its_probability(reducer: Method, digits: Dataset) -> None:
    images = digits.test.resized(Preprocessing((16, 16))).images
    header, model = untrained(Method("lora"), reducer, images)
    given = answers(model, digits.test, header.preprocessing, batch_size=7)
    with torch.inference_mode():
        probabilities, best = classify(model, images, header.preprocessing)[0].softmax(dim=1).max(dim=1)
        plain = classify(model.unreduced(), images, header.preprocessing)[0].argmax(dim=1)
    assert torch.equal(given.reduced.answers, best)
    assert torch.equal(given.unreduced.answers, plain)
    torch.testing.assert_close(given.probabilities, probabilities)
    assert given.reduces == (reducer is BDM)
    assert torch.equal(given.reduced.answers, given.unreduced.answers) != given.reduces
    counted = summary(model, given)
    assert counted == evaluate(model, digits.test, header.preprocessing)


def test_each_class_with_test_images_counts_alike_when_balanced() -> None:
    # 3/4 of a class, 1/2 of another, no image of the third, and the one image of the last.
    targets = torch.tensor([0] * 8 + [1] * 2 + [3])
    counted = Confusion(targets, torch.tensor([0] * 6 + [1] * 2 + [0, 1] + [3]), classes=4)
    assert counted.matrix().tolist() == [[6, 2, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert (counted.images.tolist(), counted.right.tolist()) == ([8, 2, 0, 1], [6, 1, 0, 1])
    assert [counted.mistakes(label).tolist() for label in (0, 3)] == [[0, 2, 0, 0], [0, 0, 0, 0]]
    assert counted.balanced_accuracy == 0.75


@pytest.mark.usefixtures("little_memory")
def test_many_classes_take_no_memory_in_their_square(digits: Dataset) -> None:
    backbone = small_backbone()
    header = small_header(backbone)
    header = dataclasses.replace(header, labels=tuple(map(str, range(100_000))))
    assert evaluate(new_model(header, backbone), digits.test, header.preprocessing).images == 60


def test_probabilities_are_not_rounded_to_what_the_model_computes_in(digits: Dataset) -> None:
    images = digits.test.resized(Preprocessing((16, 16))).images
    header, model = untrained(ADAPTFORMER, BDM, images)
    given = answers(model.to(torch.bfloat16), digits.test, header.preprocessing)
    assert given.probabilities.dtype == torch.float32
    assert not torch.equal(given.probabilities, given.probabilities.bfloat16().float())


def test_what_task_files_state_of_a_test_stays_as_it_is() -> None:
    stated = {"images", "accuracy", "accuracy_unreduced", "agreement", "tokens_in", "tokens_out", "tokens_vary"}
    assert {field.name for field in dataclasses.fields(Evaluation)} == stated


def test_raw_pixels_tell_digits_apart() -> None:
    digits = load_dataset("digits")
    baseline = raw_pixel_baseline(digits)
    assert baseline.images == 597
    assert 0.93 < baseline.accuracy < 0.99
    assert 0.93 < baseline.validation_accuracy < 0.99


def test_the_baseline_fits_on_the_training_images_alone(digits: Dataset) -> None:
    shuffled = dataclasses.replace(digits.train, targets=digits.train.targets.roll(1))
    baseline = raw_pixel_baseline(dataclasses.replace(digits, train=shuffled))
    assert baseline.accuracy < 0.4


def test_the_baseline_does_not_hang_on_rounding() -> None:
    generator = torch.Generator().manual_seed(0)
    faint = torch.randn(9, 20, 20, generator=generator)

    def split(count: int) -> Split:
        targets = torch.arange(count) % len(faint)
        noise = torch.randn(count, 20, 20, generator=generator)
        pixels = 128 + 4 * (noise + 0.3 * faint[targets]).cumsum(1).cumsum(2)  # neighbours are alike, as in pictures
        return Split(ImageTensor(pixels.clamp(0, 255).to(torch.uint8)), targets)

    data = Dataset("noise", tuple("abcdefghi"), "", split(180), split(90), split(9000))
    found = raw_pixel_baseline(data)
    direct = LogisticRegression(C=found.strength, solver="newton-cg", tol=1e-9)  # of all pixels
    inputs, _, tested = (part[:, 0].flatten(1).numpy() for part in _pixels(data))
    direct.fit(inputs, data.train.targets.numpy())
    assert direct.score(tested, data.test.targets.numpy()) == found.accuracy
    order = torch.randperm(180, generator=generator)  # in which sums are rounded
    train = Split(ImageTensor(data.train.images.pixels[order]), data.train.targets[order])
    assert raw_pixel_baseline(dataclasses.replace(data, train=train)) == found


def test_pictures_of_several_sizes_are_resized_for_the_baseline(tmp_path: Path) -> None:
    for index in range(20):
        picture(tmp_path / "ab"[index % 2] / f"{index}.png", 200 * (index % 2) + index, (9 + index % 3, 7))
    baseline = raw_pixel_baseline(load_dataset(str(tmp_path)))
    assert baseline.accuracy == 1


def test_splits_of_several_sizes_are_resized_for_the_baseline(digits: Dataset) -> None:
    larger = digits.test.resized(Preprocessing((16, 16))).images
    mixed = dataclasses.replace(digits, test=dataclasses.replace(digits.test, images=larger))
    assert {part.shape[1:] for part in _pixels(mixed)} == {(3, 64, 64)}


def test_large_pictures_are_resized_for_the_baseline(tmp_path: Path) -> None:
    for index in range(20):
        picture(tmp_path / "ab"[index % 2] / f"{index}.png", 200 * (index % 2) + index, (65, 40))
    assert {part.shape[1:] for part in _pixels(load_dataset(str(tmp_path)))} == {(3, 64, 64)}


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_answers_that_are_not_finite_are_none(value: float, digits: Dataset) -> None:
    preprocessing = Preprocessing((16, 16))
    _, model = untrained(ADAPTFORMER, BDM, digits.test.resized(preprocessing).images)
    with torch.no_grad():
        model.head.get_parameter("weight")[0, 0] = value
    with pytest.raises(UnsupportedError, match=r"60 of 60 images have no answer: .* in float32 are not finite$"):
        answers(model, digits.test, preprocessing)


def test_there_is_something_to_test_on_and_it_has_the_classes_of_the_task(digits: Dataset) -> None:
    preprocessing = Preprocessing((16, 16))
    _, model = untrained(ADAPTFORMER, BDM, digits.test.resized(preprocessing).images)
    with pytest.raises(DataError, match="no test images"):
        evaluate(model, Split([], torch.zeros(0, dtype=torch.int64)), preprocessing)
    with pytest.raises(TypeError, match=r"are a Split, such as `data\.test`, not a Dataset"):
        evaluate(model, digits, preprocessing)  # type: ignore[arg-type]
    strange = dataclasses.replace(digits.test, targets=digits.test.targets - 1)
    with pytest.raises(DataError, match=r"targets of 10 classes are 0 to 9, not -1$"):
        evaluate(model, strange, preprocessing)


def test_what_fails_half_way_leaves_no_threads(digits: Dataset) -> None:
    preprocessing = Preprocessing((16, 16))
    _, model = untrained(Method("none"), Method("none"), digits.test.resized(preprocessing).images)
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="images are normalised"):
        answers(model, digits.test, Preprocessing((8, 8)), 16)
    assert set(threading.enumerate()) <= before
