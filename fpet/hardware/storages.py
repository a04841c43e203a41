"""The memory under tensors, of which several may be views of one piece."""

from collections.abc import Iterable

from torch import Tensor


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of each storage under the tensors, by its address."""
    found = [tensor.untyped_storage() for tensor in tensors]
    return {storage.data_ptr(): storage.nbytes() for storage in found}
