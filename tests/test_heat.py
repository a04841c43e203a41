"""A task is hot by its share of the latest images, and that is told now and then, however its share wavers."""

from __future__ import annotations

import gc
import math
import weakref

import pytest

from service.model.heat import Heat


class Name:
    """A key that can be forgotten."""


A, B = Name(), Name()


def batches_until_hot(heat: Heat[Name], task: Name, images: dict[Name, int]) -> int:
    return next(count for count in range(1, 1000) if task in heat.add(images))


def test_a_task_alone_is_hot_once_enough_images_were_seen() -> None:
    assert 220 <= batches_until_hot(Heat(0.2), A, {A: 1}) <= 226  # 1 - exp(-n / 1000) = 0.2
    assert batches_until_hot(Heat(0.2), A, {A: 16}) == 14  # as many images


def test_a_task_below_the_threshold_never_becomes_hot() -> None:
    heat: Heat[Name] = Heat(0.2)
    became = {task for _ in range(1000) for task in heat.add({A: 1, B: 9})}
    assert became == {B}
    assert (round(heat.share(A), 3), round(heat.share(B), 3)) == (0.1, 0.9)


def test_it_is_told_once_in_a_thousand_images_until_the_task_has_been_cold() -> None:
    heat: Heat[Name] = Heat(0.2)
    assert [count for count in range(200) if heat.add({A: 16})] == [13, 76, 139]
    for _ in range(20):  # down to a share of about 0.2
        heat.add({B: 80})
    assert heat.add({A: 1}) == [A]
    heat.add({B: 400})
    assert heat.share(A) < 0.2
    assert heat.add({A: 200}) == []  # above it again
    for _ in range(40):
        heat.add({B: 80})
    assert heat.add({A: 300}) == [A]


@pytest.mark.parametrize(("others", "told"), [(500, False), (800, True)])  # its share was 0.105, or 0.078
def test_a_task_has_been_cold_below_half_of_the_share(others: int, told: bool) -> None:
    heat: Heat[Name] = Heat(0.2)
    assert batches_until_hot(heat, A, {A: 16}) == 14
    heat.add({B: others})
    assert heat.add({A: 150}) == ([A] if told else [])


def test_a_share_fades_with_the_images_of_others() -> None:
    heat: Heat[Name] = Heat(0.2)
    heat.add({A: 500})
    before = heat.share(A)
    heat.add({B: 1000})
    assert heat.share(A) == pytest.approx(before / math.e)


def test_a_task_that_has_been_cold_is_told_anew_however_slowly_it_becomes_hot() -> None:
    heat: Heat[Name] = Heat(0.2)
    assert batches_until_hot(heat, A, {A: 16}) == 14
    heat.add({B: 800})
    assert heat.share(A) < 0.1
    assert heat.add({A: 60}) == []
    assert 0.1 < heat.share(A) < 0.2
    assert heat.add({A: 100}) == [A]  # less than a thousand images after it was told


def test_the_usual_batch_follows_the_latest() -> None:
    heat: Heat[Name] = Heat(0.2)
    assert heat.batch(A) == (1, 0)
    heat.add({A: 8, B: 1})
    assert (heat.batch(A), heat.batch(B)) == ((8, 1), (1, 8))
    heat.add({A: 2})
    assert heat.batch(A) == (7, 1)  # 0.8 * 8 + 0.2 * 2
    for _ in range(20):
        heat.add({A: 2})
    assert (heat.batch(A), heat.batch(B)) == ((2, 0), (1, 8))


def test_heat_ignores_batches_apart_for_mean_batch_sizes() -> None:
    heat: Heat[Name] = Heat(0.2)
    heat.add({A: 4, B: 12})
    for _ in range(20):
        heat.add({A: 16}, apart=True)
    assert heat.batch(A) == (4, 12)


def test_no_task_is_kept_alive() -> None:
    heat: Heat[Name] = Heat(0.2)
    name = Name()
    heat.add({name: 1})
    reference = weakref.ref(name)
    del name
    gc.collect()
    assert reference() is None
