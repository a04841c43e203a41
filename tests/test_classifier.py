"""A task from pictures to labels in this process: by what its model computes, whatever form the pictures have."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pictures
import pytest
import torch
from PIL import Image
from serving import write_task
from small import METHODS, small_backbone, small_header

from fpet import Classifier, Task, default_backbone, load_backbone, task_path, to_rgb
from fpet.embedded import embedded
from fpet.errors import ImageError, TaskError, UnsupportedError
from fpet.header import Method
from fpet.task import save_tensors

pytestmark = pytest.mark.usefixtures("one_thread")

SCENES = [pictures.scene(seed=seed) for seed in range(19)]  # more than a batch


@pytest.fixture
def classifier(tmp_path: Path) -> Classifier:
    backbone = small_backbone()
    write_task(tmp_path / "digits.safetensors", small_header(backbone), backbone)
    return Classifier(Task.load(tmp_path / "digits.safetensors"), backbone)


@pytest.mark.parametrize("tokens", ["reduced", "full"])
@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=lambda method: method.kind)
def test_every_method_answers_as_its_model(adapter: Method, reducer: Method, tokens: str, tmp_path: Path) -> None:
    backbone = small_backbone()
    write_task(tmp_path / "digits.safetensors", small_header(backbone, adapter, reducer), backbone)
    task = Task.load(tmp_path / "digits.safetensors")
    answers = Classifier(task, backbone).classify(SCENES, top_k=10, tokens=tokens)  # type: ignore[arg-type]
    model = task.build(backbone)
    model = model if tokens == "reduced" else model.unreduced()
    preprocessing = task.header.preprocessing
    images = torch.stack([preprocessing.resize(to_rgb(scene)) for scene in SCENES])
    with torch.inference_mode():
        merged = model.tokens(preprocessing.normalize(images, torch.float32))
        expected = model.head(model.pool(merged)).softmax(dim=1)
    assert [answer.tokens.into for answer in answers] == [model.tokens_in] * len(SCENES)
    assert [answer.tokens.out for answer in answers] == merged.lengths().tolist()
    for answer, row in zip(answers, expected, strict=True):
        assert answer.best == answer.predictions[0]
        by_index = sorted(answer.predictions, key=lambda one: one.index)
        assert [one.label for one in by_index] == list(task.header.labels)
        assert [one.probability for one in by_index] == pytest.approx(row.tolist(), abs=1e-6)
        ordered = [one.probability for one in answer.predictions]
        assert ordered == sorted(ordered, reverse=True)


def test_a_picture_in_any_form_has_one_answer(classifier: Classifier, tmp_path: Path) -> None:
    path, data = tmp_path / "scene.png", pictures.png()
    path.write_bytes(data)
    scene = Image.open(path)
    forms = [path, str(path), data, bytearray(data), memoryview(data), scene, np.asarray(scene), to_rgb(scene)]
    expected = classifier.classify(path)
    assert len(expected) == 1
    for form in (*forms, io.BytesIO(data)):
        assert classifier.classify(form) == expected  # type: ignore[arg-type]
    forms.append(io.BytesIO(data))  # which is read to its end
    together = classifier.classify(forms), classifier.classify(np.stack([np.asarray(scene)] * 2))  # type: ignore[arg-type]
    assert [len(answers) for answers in together] == [len(forms), 2]
    for answer in itertools.chain(*together):  # products of more rows may be summed in another order
        assert (answer.best.label, answer.tokens) == (expected[0].best.label, expected[0].tokens)
        assert answer.best.probability == pytest.approx(expected[0].best.probability, abs=1e-6)
    assert classifier.classify(np.asarray(scene)[:, ::-1]) == classifier.classify(scene.transpose(Image.Transpose(0)))
    assert classifier.classify([]) == []


def test_pictures_are_read_batch_by_batch(classifier: Classifier) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"no picture"

    with pytest.raises(ImageError, match=r"^image 0: this is in no picture format"):
        classifier.classify(endless())
    assert taken < 100


def test_an_error_stands_in_the_place_of_its_picture(classifier: Classifier, tmp_path: Path) -> None:
    with (tmp_path / "open.txt").open("w+") as text:
        wrong = {
            "missing.png": f"{tmp_path}/missing.png: cannot be read: No such file or directory",
            "folder": f"{tmp_path}/folder: cannot be read: Is a directory",
            pictures.animated("GIF"): "image 2: the image is animated",
            text: f"{tmp_path}/open.txt: the file is open as text; open it in binary mode",
            None: "image 4: an object of type NoneType is no image",
        }
        (tmp_path / "folder").mkdir()
        named = [tmp_path / one if isinstance(one, str) else one for one in wrong]
        answers = classifier.classify_each([*named, *SCENES])  # type: ignore[list-item]
        assert [str(one) for one in answers[:5]] == list(wrong.values())
        assert all(isinstance(one, ImageError) for one in answers[:5])
        assert answers[5:] == classifier.classify(SCENES)
        with pytest.raises(ImageError, match=r"missing\.png"):
            classifier.classify([*SCENES, tmp_path / "missing.png"])


def test_an_answer_that_is_not_finite_is_an_error(classifier: Classifier, tmp_path: Path) -> None:
    task, file, backbone = classifier.task, tmp_path / "large.safetensors", small_backbone()
    large = {**task.tensors, "head.weight": torch.full_like(task.tensors["head.weight"], 3e38)}
    save_tensors(file, task.header, large, backbone)
    (answer,) = Classifier(Task.load(file), backbone).classify_each(SCENES[0])
    assert str(answer) == "image 0: the task's answers in float32 are not finite"


@pytest.mark.parametrize("top_k", [0, -1, 11])
def test_labels_that_are_not_there_are_refused_before_anything_is_read(top_k: int, classifier: Classifier) -> None:
    with pytest.raises(UnsupportedError, match=f"^top_k = {top_k}: the task digits has 10 labels"):
        classifier.classify([b"no picture"], top_k=top_k)
    with pytest.raises(UnsupportedError, match="tokens = 'none'"):
        classifier.classify_each([b"no picture"], tokens="none")  # type: ignore[arg-type]


def test_a_task_of_another_backbone_is_refused() -> None:
    with pytest.raises(TaskError, match="the task belongs to the backbone"):
        Classifier(Task.load(task_path("digits")), small_backbone())


def test_classifiers_share_a_backbone() -> None:
    backbone = load_backbone(default_backbone())
    for name in ("digits", "fashion-mnist"):
        classifier = Classifier(Task.load(task_path(name)), backbone)
        assert classifier.model.backbone is backbone
        samples = sorted((embedded() / "samples" / name).glob("*.png"))
        labels = [classifier.task.header.labels[int(path.stem.split("-")[0])] for path in samples]
        right = [one.best.label == label for one, label in zip(classifier.classify(samples), labels, strict=True)]
        assert sum(right) > 0.7 * len(right)


def test_it_computes_in_the_dtype_of_its_backbone() -> None:
    task, backbone = Task.load(task_path("digits")), load_backbone(default_backbone())
    samples = sorted((embedded() / "samples" / "digits").glob("*.png"))
    before = Classifier(task, backbone)
    exact = before.classify(samples)
    backbone.move("cpu", torch.bfloat16)
    with pytest.raises(UnsupportedError, match="the backbone was moved since this classifier was made"):
        before.classify(samples)
    rounded = Classifier(task, backbone).classify(samples)
    assert exact != rounded
    for one, other in zip(exact, rounded, strict=True):
        assert one.best.probability == pytest.approx(other.best.probability, abs=0.05)
