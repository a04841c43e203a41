"""The best of an image's classes, by their values."""

from __future__ import annotations

import numpy as np
import pytest

from service.model.work import top_indices


@pytest.mark.parametrize("count", [1, 2, 5, 11, 12])
def test_the_best_are_the_largest_with_the_largest_first(count: int) -> None:
    values = np.random.default_rng(count).permutation(12).astype(np.float32) / 12
    assert top_indices(values, count) == sorted(range(12), key=lambda index: -values[index])[:count]


def test_equal_values_are_told_once_each() -> None:
    assert sorted(top_indices(np.full(7, 0.1, np.float32), 7)) == list(range(7))


def test_where_there_is_one_class_it_is_the_best() -> None:
    assert top_indices(np.ones(1, np.float32), 1) == [0]
