"""Random views of a batch of RGBA images, so that features survive change of place, colour, background and detail."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Mean and standard deviation by which views are normalised, for each of the three channels.
MEAN = STD = 0.5
# Pixels to which a view's detail is reduced: the tasks' images have 8 and 28, but are filled to the edge.
_LOWEST, _HIGHEST = 10, 40


def augment(rgba: Tensor, size: int, strength: float) -> Tensor:
    """Random views, normalised, of images uint8 [B, h, w, 4]: float32 [B, 3, size, size].

    A mask (a glyph, a symbol of one colour) gets a random thickness and colour. A picture keeps its colours, may be
    mirrored. strength, in [0, 1], scales movement, loss of detail and how often an image is not light on black: a run
    that starts gently leaves its first plateau much sooner.
    """
    images = rgba.permute(0, 3, 1, 2).float() / 255
    alpha, colour = images[:, 3:], images[:, :3]
    is_mask = _is_white(colour)
    alpha = torch.where(_column(is_mask), _thicken(alpha), alpha)
    background = _backgrounds(len(images), size, strength)
    ink = _contrasting(background.mean(dim=(2, 3)))
    painted = is_mask | (torch.rand(len(images)) < 0.1)  # some pictures as silhouettes too
    colour = torch.where(_column(painted), ink[:, :, None, None], colour)
    moved = _move(torch.cat((colour * alpha, alpha), dim=1), ~is_mask, size, strength)
    view = _jitter(moved[:, :3] + (1 - moved[:, 3:]) * background, strength)
    return (_lose_detail(view, strength).clamp(0, 1) - MEAN) / STD


def normalise(rgba: Tensor, size: int) -> Tensor:
    """Plain views, black on white where there is no colour, of images uint8 [B, h, w, 4]: [B, 3, size, size]."""
    images = rgba.permute(0, 3, 1, 2).float() / 255
    alpha, colour = images[:, 3:], images[:, :3]
    flat = torch.where(_column(_is_white(colour)), 1 - alpha, colour * alpha + 1 - alpha).expand(-1, 3, -1, -1)
    return (F.interpolate(flat, (size, size), mode="bilinear", antialias=True) - MEAN) / STD


def _is_white(colour: Tensor) -> Tensor:
    """Which images [B, 3, h, w] are white all over, as masks are stored, bool [B]."""
    return colour.amin(dim=(1, 2, 3)) == 1


def _column(mask: Tensor) -> Tensor:
    return mask[:, None, None, None]


def _uniform(count: int, low: float, high: float) -> Tensor:
    return torch.empty(count).uniform_(low, high)


def _thicken(alpha: Tensor) -> Tensor:
    """A third of the masks with thicker, a third with thinner strokes."""
    thicker = F.max_pool2d(alpha, 5, 1, 2)
    thinner = 1 - F.max_pool2d(1 - alpha, 3, 1, 1)
    choice = _column(torch.rand(len(alpha)))
    return torch.where(choice < 1 / 3, thicker, torch.where(choice < 2 / 3, thinner, alpha))


def _move(images: Tensor, may_mirror: Tensor, size: int, strength: float) -> Tensor:
    """Rotates, scales, stretches, shears and shifts; what comes from outside is transparent."""
    count = len(images)
    angle, shear, shift = (r * strength for r in (math.pi / 10, 0.2, 0.2))
    angles, shears = _uniform(count, -angle, angle), _uniform(count, -shear, shear)
    zoom = _uniform(count, -0.45 * strength, 0.25 * strength).exp()
    stretch = _uniform(count, -0.2 * strength, 0.2 * strength).exp()
    mirror = torch.where(may_mirror & (torch.rand(count) < 0.5), -1.0, 1.0)
    x_scale, y_scale = mirror * zoom * stretch, zoom / stretch
    cos, sin = angles.cos(), angles.sin()
    matrix = torch.stack(
        (
            cos * x_scale,
            (shears * cos - sin) * y_scale,
            _uniform(count, -shift, shift),
            sin * x_scale,
            (shears * sin + cos) * y_scale,
            _uniform(count, -shift, shift),
        ),
        dim=1,
    ).view(count, 2, 3)
    grid = F.affine_grid(matrix, [count, images.shape[1], size, size], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _backgrounds(count: int, size: int, strength: float) -> Tensor:
    """Half black at full strength, a fifth white, 15 % plain, 15 % with a gradient: [count, 3, size, size]."""
    first, second = torch.rand(2, count, 3, 1, 1)
    angle = _uniform(count, 0, 2 * math.pi)[:, None, None]
    line = torch.linspace(-0.7, 0.7, size)
    ramp = (0.5 + angle.cos() * line[None, :, None] + angle.sin() * line[None, None, :]).clamp(0, 1)[:, None]
    choice = _column(torch.rand(count)) / strength
    second = torch.where(choice < 0.15, second, first)
    colours = first + ramp * (second - first)
    return torch.where(choice < 0.3, colours, torch.where(choice < 0.5, 1.0, 0.0))


def _contrasting(background: Tensor) -> Tensor:
    """Random colours [B, 3], each much lighter or much darker than its background's mean colour [B, 3]."""
    lightness = background.mean(dim=1, keepdim=True)
    lighter = 1 - torch.rand_like(background) * (1 - lightness) * 0.4
    darker = torch.rand_like(background) * lightness * 0.4
    return torch.where(lightness < 0.5, lighter, darker)


def _jitter(images: Tensor, strength: float) -> Tensor:
    """Grey-scale (half), saturation, brightness, contrast, inversion (15 % at full strength), a little noise."""
    count = len(images)
    grey = images.mean(dim=1, keepdim=True)
    saturation = torch.where(torch.rand(count) < 0.5, 0.0, _uniform(count, 0.5, 1.5))
    images = grey + _column(saturation) * (images - grey)
    contrast, brightness = _column(_uniform(count, 0.6, 1.3)), _column(_uniform(count, -0.15, 0.15))
    images = ((images - 0.5) * contrast + 0.5 + brightness).clamp(0, 1)
    images = torch.where(_column(torch.rand(count) < 0.15 * strength), 1 - images, images)
    return images + _column(_uniform(count, 0, 0.05)) * torch.randn_like(images)


def _lose_detail(images: Tensor, strength: float) -> Tensor:
    """Half of the views pass through a small resolution, a different one for each quarter."""
    size = images.shape[-1]
    highest = min(_HIGHEST, size)
    lowest = round(highest - strength * (highest - _LOWEST))
    *kept, third, fourth = images.chunk(4)
    views = kept
    for quarter in (third, fourth):
        pixels = int(torch.randint(lowest, highest + 1, ()))
        mode = "bicubic" if torch.rand(()) < 0.5 else "bilinear"
        reduced = F.interpolate(quarter, (pixels, pixels), mode=mode, antialias=True)
        views.append(F.interpolate(reduced, (size, size), mode=mode))
    return torch.cat(views)
