"""Scenes that are drawn rather than fetched, asked what VTAB's structured tasks ask (Zhai et al., 2019)."""

from __future__ import annotations

from fpet.data.scenes import counting, ground, sprites, turntable
from fpet.data.scenes.build import Scenes
from fpet.data.source import Source

__all__ = ["SCENES"]

_SCENES = (
    Scenes(
        "sprites-location",
        "16 places of a sprite",
        sprites.location_labels(),
        sprites.draw_location,
        "5ee5219988eaa9042b5e7199238b7cef2aac6942f747bf2a2986c7a4534f271d",
    ),
    Scenes(
        "sprites-orientation",
        "16 orientations of a sprite",
        sprites.orientation_labels(),
        sprites.draw_orientation,
        "022582952def1eef28410abbcd9dabd82f95d4b7e9be4816deb4274914358da9",
    ),
    Scenes(
        "scene-count",
        "3 to 10 coloured objects",
        counting.LABELS,
        counting.draw,
        "063933117e1afabaedc6cdaba087b88794057b52b05264174646c206a920afe8",
    ),
    Scenes(
        "scene-distance",
        "6 distances of the nearest object",
        ground.LABELS,
        ground.draw,
        "d398313ab1fc73f3512b78be545abdaeccb969608cbde27ec568138a0f7a6448",
    ),
    Scenes(
        "scene-azimuth",
        "18 azimuths of a toy",
        turntable.AZIMUTH_LABELS,
        turntable.draw_azimuth,
        "9ef7c8ca0e077fdab58503d640fbadcf57311f2f0b4596d9d107c3794e9b997a",
    ),
    Scenes(
        "scene-elevation",
        "9 elevations above a toy",
        turntable.ELEVATION_LABELS,
        turntable.draw_elevation,
        "c26033c04a0a475d795ffd545a5814c78c330f880d184dc1055a89ec7d14a799",
    ),
)

SCENES: dict[str, Source] = {scenes.name: Source("structured", scenes.summary, scenes.load) for scenes in _SCENES}
