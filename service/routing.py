"""Matches requests with some routes before the application's router runs."""

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match
from starlette.types import Scope


def find_route(scope: Scope, routes: Iterable[BaseRoute]) -> bool:
    """Whether the request matches one of the routes in full; its scope is then updated as the router would."""
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            scope.update(found)
            return True
    return False
