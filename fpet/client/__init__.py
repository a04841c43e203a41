"""Asks a running service from Python: `Client`, and `AsyncClient` for asyncio, which differ in nothing else."""

try:
    import httpx as _httpx  # noqa: F401  # optional
except ImportError as error:
    raise ImportError(
        "asking a service needs httpx and anyio, which the extra `client` of this package installs"
    ) from error

from fpet.client.answers import (
    CalibrationPoint,
    Classification,
    Explanation,
    Savings,
    ShadowSavings,
    TaskCalibration,
    TaskInfo,
    TaskSavings,
    Timings,
)
from fpet.client.asynchronous import AsyncClient
from fpet.client.errors import (
    ConflictError,
    DeadlineExceededError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    RefusedImageError,
    ServiceError,
    UnauthorizedError,
    UnreachableError,
)
from fpet.client.synchronous import Client
from fpet.errors import ImageError
from fpet.predictions import Prediction, TokenCounts

__all__ = [
    "AsyncClient",
    "CalibrationPoint",
    "Classification",
    "Client",
    "ConflictError",
    "DeadlineExceededError",
    "Explanation",
    "ForbiddenError",
    "ImageError",
    "InvalidRequestError",
    "NotFoundError",
    "NotReadyError",
    "OverloadedError",
    "Prediction",
    "RefusedImageError",
    "Savings",
    "ServiceError",
    "ShadowSavings",
    "TaskCalibration",
    "TaskInfo",
    "TaskSavings",
    "Timings",
    "TokenCounts",
    "UnauthorizedError",
    "UnreachableError",
]
