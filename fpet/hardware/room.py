"""Whether there is memory for what is kept in it, and whether an error says that there was not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from fpet.errors import DataError
from fpet.hardware.control_groups import control_groups

# In messages of torch. It has an exception class only for its allocator of a GPU: not for a CPU, nor for memory that
# CUDA takes by itself, as to load a kernel, or cuBLAS.
_NO_MEMORY = ("DefaultCPUAllocator:", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}  # by the version of control groups
_KIB, _GIGA = 1024, 1e9


def lacked_memory(error: BaseException) -> bool:
    """Whether it is Python's or torch's error for memory, of the CPU or a GPU, that could not be allocated."""
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or any(words in str(error) for words in _NO_MEMORY)


def refuse_excess(name: str, images: int, size: tuple[int, int]) -> None:
    """Raises DataError if so many decoded RGB images, uint8 [3, height, width] each, need more memory than there is.

    name: of the data set.
    """
    height, width = size
    needed, there = images * 3 * height * width, most_memory()
    if needed > there:
        raise DataError(
            f"{name} has {images} training and validation images, which are kept in memory: at {height} x {width} "
            f"pixels they take {needed / _GIGA:.1f} GB, and there are {there / _GIGA:.1f}"
        )


def most_memory(system: Path = Path("/")) -> float:
    """Bytes that this process can have at the most: what is free on the machine or can be freed, and no more than its
    control groups allow; infinity where nothing says it (other systems than Linux).

    system: the root of the file system, in which the kernel says so.
    """
    return min(_limits(system), default=math.inf)


def _limits(system: Path) -> Iterator[float]:
    # Where a file is missing, or is not as expected, nothing is known of a limit; "max" is no number, and none.
    with suppress(OSError, ValueError):
        lines = (system / "proc/meminfo").read_text().splitlines()
        yield from (_KIB * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    for version, folder in control_groups("memory", system):
        with suppress(OSError, ValueError):
            yield int((folder / _FILES[version]).read_text())
