"""Who may change tasks."""

from __future__ import annotations

import hmac

from pydantic import SecretStr

from service.errors import ForbiddenError, UnauthorizedError

_SCHEME = "bearer "


def check_admin(key: SecretStr | None, authorization: str | None) -> None:
    """Compares the key of a request's Authorization header with the service's, in constant time.

    Raises:
        ForbiddenError: if the key is wrong, or the service has none.
        UnauthorizedError: if the request has none.
    """
    if key is None:
        raise ForbiddenError("tasks cannot be changed: the service was started without an admin key")
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        raise UnauthorizedError("changing tasks needs the header 'Authorization: Bearer <admin key>'")
    given = authorization[len(_SCHEME) :].strip()
    if not hmac.compare_digest(given.encode(), key.get_secret_value().encode()):
        raise ForbiddenError("the admin key is wrong")
