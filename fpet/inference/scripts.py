"""Functions of tokens as scripts of TorchScript, which compute without Python's lock. Each is made once.

TorchScript is deprecated, but the only way that torch has to compute without the lock: AOTInductor keeps it
(pytorch/pytorch issue 197516). Where the environment's PYTORCH_JIT=0 turns it off, there are no scripts.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor
from torch.jit import TracerWarning, optimized_execution  # type: ignore[attr-defined]

from fpet.errors import UnsupportedError
from fpet.tokens import Tokens

Script = Callable[..., Any]

# TorchScript never forgets what it has made, most of a megabyte a script; tasks of a family need about a dozen.
_MOST = 512

# Scripts by a key of all that they depend on. A key may hold the id of an object: it is kept beside the script, so that
# no other object gets that id.
_made: dict[Hashable, tuple[Script, object]] = {}
_alone = threading.Lock()


def script_of(key: Hashable, make: Callable[[], tuple[Script, object]]) -> Script:
    """The script of a key, made if there is none yet.

    make: returns the script, and an object to keep with it for good, since the key holds ids of its parts.

    Raises:
        UnsupportedError: if there are too many already.
    """
    with _alone:
        if key not in _made:
            if len(_made) >= _MOST:
                raise UnsupportedError(f"there are {_MOST} of other models already")
            _made[key] = make()
        return _made[key][0]


def trace(forward: Callable[..., Tokens], tokens: Tokens, *given: Sequence[Tensor] | Tensor) -> Script:
    """Traces a function on tokens and tensors, within `make` of `script_of`; the script takes others of the same dtypes
    and numbers of dimensions.

    Raises:
        UnsupportedError: if what it does depends on a number, and would stay as it was with this one.
    """
    sized = tokens.size is not None

    def flat(x: Tensor, *rest: Any) -> Any:
        size, given = (rest[0], rest[1:]) if sized else (None, rest)
        return _flat(forward(Tokens(x, size), *given))

    # The filters of warnings are the process', so that this is done by one thread at a time.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        script = torch.jit.trace(flat, (*_flat(tokens), *given), check_trace=False)
    for warning in told:
        if issubclass(warning.category, TracerWarning) and (warning.filename, warning.lineno) not in _CHECKS:
            raise UnsupportedError(str(warning.message))
    if not isinstance(script, torch.jit.ScriptFunction):
        raise UnsupportedError("TorchScript is turned off")
    return cast(Script, script)


def run(script: Script, tokens: Tokens, *given: Sequence[Tensor] | Tensor) -> Tokens:
    """Runs a script that `trace` made."""
    with optimized_execution(False):  # which would make several copies of the script, with all that it calls in each
        x, *size = script(*_flat(tokens), *given)
    return Tokens(x, size[0] if size else None)


def held(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors as a list of TorchScript's own, which keeps them. A script drops each argument after its last use; to
    drop a tensor that only Python still holds, it would take the interpreter's lock in the middle of its run."""
    return cast(Sequence[Tensor], _as_script(list(tensors)))


def compiled(function: Callable[..., Tensor]) -> Script:
    """Compiles a function's source to a script, which traced functions can call; not within `make` of `script_of`,
    which holds the same lock.

    Raises:
        UnsupportedError: if there is none.
    """
    try:
        script = _as_script(function)
    except RuntimeError as error:  # torch was built without an operator
        raise UnsupportedError(f"{function.__name__} has no script: {error}") from error
    if not isinstance(script, torch.jit.ScriptFunction):
        raise UnsupportedError("TorchScript is turned off")
    return cast(Script, script)


def _as_script(what: object) -> object:
    with _alone, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        return torch.jit.script(what)


def _flat(tokens: Tokens) -> tuple[Tensor, ...]:
    """Tokens as the tensors that a script takes and returns, which cannot be None."""
    return (tokens.x,) if tokens.size is None else (tokens.x, tokens.size)


def _lines(*functions: object) -> Iterator[tuple[str, int | None]]:
    for function in functions:
        if isinstance(function, FunctionType):
            code = function.__code__
            yield from ((code.co_filename, line) for _, _, line in code.co_lines())


# Lines of torch that check a shape, or format it for a message, on behalf of timm's layers: the trace keeps what they
# read as a constant, which changes no answer.
_CHECKS = frozenset(_lines(torch._assert, Tensor.__format__))
