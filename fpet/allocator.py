"""How the C library gives memory out."""

from __future__ import annotations

import ctypes
import platform

# Of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Has the process keep memory that is freed, for what it allocates next; only glibc has to be told.

    Every step of a training allocates and frees tensors of the same sizes. glibc would return those above 32 MiB to the
    system at once, which then clears each of their pages anew. It is for a process that does nothing but train: its
    memory stays what it was at the most.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)  # never
