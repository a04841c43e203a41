"""How many threads torch computes in, which it keeps for each calling thread."""

from __future__ import annotations

import torch


def compute_in(threads: int) -> None:
    """Sets the number of threads in which torch computes for the calling thread and for threads that start later."""
    # The first call makes torch set up this thread from a global, which would otherwise override the second later.
    torch.get_num_threads()
    torch.set_num_threads(threads)
