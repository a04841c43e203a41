"""Which routes ask tasks about images: what they are sent takes room, and they are counted and timed."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module

from fastapi import APIRouter
from fastapi.routing import APIRoute

import service.routes
from service.admission import find_inferring
from service.http.exchange import InferenceRoute


def every_route() -> Iterator[APIRoute]:
    for module in pkgutil.iter_modules(service.routes.__path__, "service.routes."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, APIRouter):
                yield from (route for route in value.routes if isinstance(route, APIRoute))


def test_these_and_no_others_infer() -> None:
    marked = {
        (method, route.path) for route in every_route() if isinstance(route, InferenceRoute) for method in route.methods
    }
    assert marked == {
        ("POST", "/v1/tasks/{task}/classify"),
        ("POST", "/v1/classify"),
        ("POST", "/v1/tasks/{task}/explain"),
        ("POST", "/v2/models/{model}/infer"),
        ("POST", "/v2/models/{model}/versions/{version}/infer"),
    }
    assert len(list(every_route())) > 25


def test_what_was_refused_before_it_was_routed_is_told_its_route() -> None:
    for route in every_route():
        path = re.sub(r"\{\w+\}", "x", route.path)
        for method in route.methods:
            scope = {"type": "http", "method": method, "path": path, "headers": []}
            infers = isinstance(route, InferenceRoute)
            assert find_inferring(scope) == infers, path
            assert getattr(scope.get("route"), "path", None) == (route.path if infers else None)
