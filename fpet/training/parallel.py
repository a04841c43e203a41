"""Several processes that train one model, as torchrun starts them: each takes its part of every batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from fpet.errors import TaskError, UnsupportedError
from fpet.words import reason


@dataclass(frozen=True)
class Processes:
    """The processes of one training run; by default a process alone. rank: this one, counted from 0; size: of all."""

    rank: int = 0
    size: int = 1

    def share(self, batch: Tensor) -> Tensor:
        """This process's part of a batch, [B, ...] -> [B / size, ...]; B is a multiple of size."""
        return batch[self.rank :: self.size]

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replaces tensors of one dtype by their means over the processes, in one exchange.

        Raises:
            TaskError: if another process has ended.
        """
        if self.size == 1:
            return
        own = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in own])
        with _all_there():
            distributed.all_reduce(flat)
        flat /= self.size
        for tensor, mean in zip(own, flat.split([tensor.numel() for tensor in own]), strict=True):
            tensor.copy_(mean.view_as(tensor))

    def gather(self, own: Tensor) -> list[Tensor]:
        """The tensors of all processes, of one shape and dtype; returns when every process has given its own.

        Raises:
            TaskError: if another process has ended.
        """
        each = [torch.empty_like(own) for _ in range(self.size)]
        with _all_there():
            distributed.all_gather(each, own)
        return each


@contextmanager
def _all_there() -> Iterator[None]:
    """Raises TaskError if another process of the group ends meanwhile."""
    try:
        yield
    except RuntimeError as error:
        raise TaskError(f"another process of this training has ended, and says why ({reason(error)})") from error


ALONE = Processes()


def local_device(device: str) -> str:
    """The device of this process: `cuda` is the GPU of its own that torchrun numbered, all else as it is.

    Raises:
        UnsupportedError: if it names a GPU that torchrun numbered for another process.
    """
    if not distributed.is_torchelastic_launched() or not device.startswith("cuda"):
        return device
    own = f"cuda:{distributed.get_node_local_rank()}"
    if device not in ("cuda", own):
        raise UnsupportedError(f"{device}: under torchrun this process has {own}; name `cuda`, which is each one's own")
    return own


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """The group that torchrun started this process in, left at the end of the block; alone without torchrun.

    After an error the group is not left: that would wait for processes that wait for this one. torchrun ends them.
    """
    if not distributed.is_torchelastic_launched():
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # or what names no device would use the first GPU, in all processes
        distributed.init_process_group("nccl", device_id=device)
    else:
        distributed.init_process_group("gloo")
    yield Processes(distributed.get_rank(), distributed.get_world_size())
    distributed.destroy_process_group()


def refuse_group(what: str) -> None:
    """Raises UnsupportedError if torchrun started this process: `what` is for one alone."""
    if distributed.is_torchelastic_launched():
        raise UnsupportedError(f"{what} runs in one process, not under torchrun")
