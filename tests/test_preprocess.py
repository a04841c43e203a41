"""How images are prepared is said in tuples of the right length, however it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fpet.errors import UnsupportedError
from fpet.preprocess import Preprocessing, normalize


def test_lists_are_as_good_as_tuples() -> None:
    given: Any = Preprocessing([4, 6], [0.1, 0.2, 0.3], [1.0, 2.0, 3.0])  # type: ignore[arg-type]
    assert given == Preprocessing((4, 6), (0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    assert given.normalize(torch.zeros(1, 3, 4, 6, dtype=torch.uint8), torch.float32).shape == (1, 3, 4, 6)


@pytest.mark.parametrize("wrong", [{"size": (4,)}, {"mean": (0.5, 0.5)}, {"std": (1.0, 1.0, 1.0, 1.0)}])
def test_another_number_of_values_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UnsupportedError, match=f"^{name} = .*: it has [23] values$"):
        Preprocessing(**{"size": (4, 6), **wrong})


@pytest.mark.parametrize("size", [(4.0, 6), (True, 6), ("4", 6)])
def test_a_size_is_of_whole_pixels(size: Any) -> None:
    with pytest.raises(UnsupportedError, match="pixels are whole numbers"):
        Preprocessing(size)


@pytest.mark.parametrize("strict", [True, False])
def test_a_program_with_its_normalisation_takes_any_batch_and_leaves_nothing_behind(strict: bool) -> None:
    """What is kept of a normalisation was once a tensor of the tracing, by which later images were not normalised."""

    class Normalised(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return preprocessing.normalize(images, torch.float32)

    odd = 0.1 + 0.01 * strict  # of which nothing is kept yet
    preprocessing = Preprocessing((4, 6), (odd, 0.2, 0.3), (0.5, 0.6, 0.7))
    images = torch.arange(5 * 3 * 4 * 6, dtype=torch.uint8).view(5, 3, 4, 6)
    axis = torch.export.Dim("images", min=1, max=64)
    program = torch.export.export(Normalised(), (images[:2],), dynamic_shapes=({0: axis},), strict=strict)
    mean, std = (torch.tensor(one)[:, None, None] for one in (preprocessing.mean, preprocessing.std))
    expected = (images / 255 - mean) / std
    torch.testing.assert_close(preprocessing.normalize(images, torch.float32), expected)
    torch.testing.assert_close(program.module()(images), expected)


def test_a_tensor_of_a_tracing_is_not_kept() -> None:
    preprocessing = Preprocessing((4, 6), (0.15, 0.2, 0.3))
    images = torch.zeros(2, 3, 4, 6, dtype=torch.uint8)
    with FakeTensorMode() as mode:
        preprocessing.normalize(mode.from_tensor(images), torch.float32)
    torch.testing.assert_close(preprocessing.normalize(images, torch.float32)[0, 0, 0, 0], torch.tensor(-0.3))


def test_sizes_of_numpy_are_those_of_python() -> None:
    assert Preprocessing((np.int64(4), 6)) == Preprocessing((4, 6))  # type: ignore[arg-type]
    assert type(Preprocessing((np.int64(4), 6)).size[0]) is int  # type: ignore[arg-type]


def test_each_image_is_normalised_by_its_own_or_all_by_one() -> None:
    one, other = Preprocessing((4, 6)), Preprocessing((4, 6), (0.1, 0.2, 0.3))
    images = torch.arange(2 * 3 * 4 * 6, dtype=torch.uint8).view(2, 3, 4, 6)
    both = normalize(images, [one, other], torch.float32)
    assert torch.equal(both[:1], one.normalize(images[:1], torch.float32))
    assert torch.equal(both[1:], other.normalize(images[1:], torch.float32))
    assert torch.equal(normalize(images, [one], torch.float32), one.normalize(images, torch.float32))
    for wrong in ([], [one] * 3):
        with pytest.raises(ValueError, match=f"2 images, but {len(wrong)} preprocessings"):
            normalize(images, wrong, torch.float32)


@pytest.mark.parametrize(
    "wrong", [None, "image", [0], torch.zeros(3, 4, 6, dtype=torch.uint8), torch.zeros(1, 3, 4, 6)]
)
def test_what_are_no_images_is_refused_as_documented(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"images are uint8 \[B, 3, H, W\]"):
        Preprocessing((4, 6)).normalize(wrong, torch.float32)
