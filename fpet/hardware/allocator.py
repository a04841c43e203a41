"""How the C library gives memory out; only glibc has to be told."""

from __future__ import annotations

import ctypes
import platform

# Of malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_HEAP = 2**26  # bytes; all threads but the first get their memory in pieces of so much
_ARENAS = 8  # each keeps what its threads had at the most: by glibc there would be as many as threads

_GLIBC = ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def keep_freed_memory() -> None:
    """Has the process keep memory that is freed, for what it allocates next.

    Every step of a training, and every batch of a service, allocates and frees tensors of the same sizes. glibc would
    return large ones to the system at once, which then clears each of their pages anew. The process' memory stays what
    it was at the most, until `return_freed_memory`.
    """
    if _GLIBC is not None:
        _GLIBC.mallopt(_M_MMAP_MAX, 0)
        _GLIBC.mallopt(_M_TRIM_THRESHOLD, -1)  # never
        # Nor a whole heap: a thread whose other heaps are just about full would take and return one again and again.
        _GLIBC.mallopt(_M_TOP_PAD, _HEAP)
        _GLIBC.mallopt(_M_ARENA_MAX, _ARENAS)


def return_freed_memory() -> None:
    """Returns to the system what is free by now: worth it after what took much memory and does not repeat."""
    if _GLIBC is not None:
        _GLIBC.malloc_trim(0)
