"""How many threads torch computes in, by the thread that asks it to."""

from __future__ import annotations

import torch


def compute_in(threads: int) -> None:
    """Lets torch compute in so many threads whatever the calling one asks for; threads that start later do so too."""
    # The first call makes torch set up this thread from a global, which would otherwise override the second later.
    torch.get_num_threads()
    torch.set_num_threads(threads)
