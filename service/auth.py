"""Authorization by Bearer keys: API keys for requests, the admin key for changes of tasks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from pydantic import SecretStr

from service.errors import ForbiddenError, UnauthorizedError

_SCHEME = "bearer "


def check_client(keys: Sequence[SecretStr], admin: SecretStr | None, authorization: str | None) -> None:
    """Accepts a request with one of the API keys or the admin key, and every request if there are no API keys.

    authorization: the header of a request, decoded as Latin-1.

    Raises:
        ForbiddenError: if the key is wrong.
        UnauthorizedError: if the request has no Bearer key.
    """
    if not keys:
        return
    given = _bearer(authorization, "this needs the header 'Authorization: Bearer <API key>'")
    if not _is_one_of(given, [*keys, admin] if admin else keys):
        raise ForbiddenError("the API key is wrong")


def check_admin(key: SecretStr | None, authorization: str | None) -> None:
    """Accepts a request with the admin key.

    authorization: the header of a request, decoded as Latin-1.

    Raises:
        ForbiddenError: if the key is wrong, or the service has none.
        UnauthorizedError: if the request has no Bearer key.
    """
    if key is None:
        raise ForbiddenError("tasks cannot be changed: the service was started without an admin key")
    given = _bearer(authorization, "changing tasks needs the header 'Authorization: Bearer <admin key>'")
    if not _is_one_of(given, [key]):
        raise ForbiddenError("the admin key is wrong")


def _bearer(authorization: str | None, otherwise: str) -> bytes:
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        raise UnauthorizedError(otherwise)
    return authorization[len(_SCHEME) :].encode("latin-1").strip()


def _is_one_of(given: bytes, keys: Sequence[SecretStr]) -> bool:
    """Compares digests, and with every key, so that the time it takes says nothing of any of them."""
    digest = hashlib.sha256(given).digest()
    matches = [hmac.compare_digest(digest, hashlib.sha256(key.get_secret_value().encode()).digest()) for key in keys]
    return any(matches)
