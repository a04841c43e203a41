"""Flat shapes as tests on points: which are inside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# (u, v) -> inside; u to the right and v down, both float64 of one shape. Every shape lies within the unit circle.
Shape = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]]


def circle(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The unit circle."""
    return u * u + v * v <= 1


def ellipse(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Twice as wide as high."""
    return u * u + 4 * v * v <= 1


def square(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A square of side 1.4."""
    return np.maximum(np.abs(u), np.abs(v)) <= 0.7


def triangle(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.bool_]:
    """An equilateral triangle that stands on its side, its base at v = 0.5."""
    return (v <= 0.5) & (1.75 * np.abs(u) <= 1 + v)


def cross(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Two crossed bars."""
    across, along = np.minimum(np.abs(u), np.abs(v)), np.maximum(np.abs(u), np.abs(v))
    return (across <= 0.35) & (along <= 0.9)


def heart(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The curve (x^2 + y^2 - 1)^3 = x^2 y^3, its centre of mass at the origin."""
    x, y = 1.3 * u, 0.29 - 1.3 * v
    xx, yy = x * x, y * y
    r = xx + yy - 1
    return r * r * r <= xx * yy * y
