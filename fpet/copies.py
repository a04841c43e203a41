"""Copies of modules without copies of their tensors."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def sharing_tensors(module: Module) -> Module:
    """A copy of the module and those below it, whose parameters and buffers are the very same."""
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})
