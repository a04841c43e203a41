"""TorchScript programs for forwards on a CPU, where those in Python would wait for each other's interpreter lock.

On a GPU one thread launches all operators, and captured forwards (`service.model.captures`) do without most of that.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from weakref import WeakSet

import torch
from torch import nn

from fpet.comparison import noise
from fpet.errors import UnsupportedError
from fpet.inference.programs import Batch, Program
from fpet.inference.reordered import reorder
from fpet.inference.task_weights import Weights
from fpet.vit import AdaptedViT
from service.model.folded import Instance
from service.model.loaded import Family

logger = logging.getLogger(__name__)


class ProgramMaker:
    """Makes the programs of families, once each, and of folded tasks; what has no program runs in Python.

    vit: of the backbone, whose weights they share. Any thread may call the methods.
    """

    def __init__(self, device: torch.device, vit: nn.Module) -> None:
        self._useful = device.type == "cpu"
        self._vit = vit
        self._tried: WeakSet[Family] = WeakSet()
        self._lock = threading.Lock()

    def claim(self, family: Family) -> bool:
        """Whether the caller is to make the family's programs: once, never where the number of tokens varies."""
        with self._lock:
            wanted = self._useful and not family.template.tokens_vary and family not in self._tried
            self._tried.add(family)
            return wanted

    def add_to(self, family: Family, own: Weights, *, mixed: bool) -> None:
        """Makes the programs of a family; own: weights of one of its tasks; mixed: for batches of several tasks too."""
        other = own._replace(flat=1.5 * own.flat)  # so that a program that takes one for the other is noticed
        examples = [[[own, own], [own]]]
        if mixed and family.template.mixes:
            examples.append([[own, other], [other, own, own]])
        with self._lock:
            reorder(self._vit)
        try:
            for weights in examples:
                family.template.trace(weights)
        except UnsupportedError as error:
            logger.warning("tasks like %s run in Python: %s", family.header.name, error)

    def added_to(self, instance: Instance, name: str) -> Instance:
        """A folded task with programs; itself if there can be none."""
        if not self._useful or instance.reduced.reducer.tokens_vary:
            return instance
        try:
            programs = {True: _program(instance.reduced), False: _program(instance.full)}
        except UnsupportedError as error:
            logger.warning("the folded task %s runs in Python: %s", name, error)
            return instance
        return replace(instance, programs=programs)


@torch.inference_mode()
def _program(model: AdaptedViT) -> Program:
    noisy = noise(model.vit, 2)
    return Program(model, (), [(Batch(images), model.features(images)) for images in (noisy, noisy[:1])])
