"""Loaded tasks at rest: low-bit weights as they lie in the file, dequantised only when the task is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from fpet.inference.task_weights import Weights, aligned_lengths, refuse_latent
from fpet.linear import FULL_PRECISION
from fpet.packing import quantised_layers
from fpet.quantize import byte_values, code_bytes
from fpet.vit import AdaptedViT

_ARRANGEMENTS = 256  # kept; tasks whose tensors lie alike share one


class _Piece(NamedTuple):
    """A parameter of a task; bits: of each of its numbers in the file."""

    name: str
    shape: torch.Size
    bits: int


class _Coded(NamedTuple):
    """The matrices with the same bits a weight, in the order of their codes.

    names: of the parameters; lengths: of their codes, in bytes; runs: slices of these bytes, each with the slice of the
    unpacked memory that it belongs to.
    """

    names: list[str]
    lengths: list[int]
    runs: list[tuple[slice, slice]]


class _Arrangement(NamedTuple):
    """Where a packed task's tensors belong in the memory of its weights.

    numbers: elements of that memory; kept: by name, the slices of parameters without codes; coded: by bits, the
    matrices with codes; length, head: as in `Weights.within`.
    """

    numbers: int
    kept: Mapping[str, slice]
    coded: Mapping[int, _Coded]
    length: int
    head: Sequence[torch.Size]

    @property
    def quantised(self) -> list[str]:
        """The names of what has codes, as they follow each other."""
        return [name for coded in self.coded.values() for name in coded.names]


@dataclass(frozen=True, eq=False, slots=True)
class PackedWeights:
    """A task's tensors on the CPU, low-bit weights as codes.

    kept: [Q], all other parameters, in the dtype that they compute in; stats: float32 [n, 2], mean and deviation of
    each low-bit matrix; codes: uint8, theirs, one after the other; device: where `unpack` puts the weights.
    """

    kept: Tensor
    stats: Tensor
    codes: Tensor
    device: torch.device
    arrangement: _Arrangement

    @classmethod
    def of(cls, model: AdaptedViT, tensors: Mapping[str, Tensor]) -> PackedWeights:
        """Packs a task's weights. model: as loaded from its file; tensors: of that file.

        Raises:
            UnsupportedError: if they are yet to be rounded.
        """
        refuse_latent(model)
        arrangement = _arrangement(model)
        parameters = dict(model.trainable().named_parameters())
        first = next(iter(parameters.values()))
        kept = [parameters[name].detach().flatten().cpu() for name in arrangement.kept]
        return cls(
            torch.cat(kept) if kept else torch.empty(0, dtype=first.dtype),
            torch.stack([tensors[f"{name}.stats"] for name in arrangement.quantised]),
            torch.cat([tensors[f"{name}.codes"] for name in arrangement.quantised]),
            first.device,
            arrangement,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of these tensors."""
        return self.kept.nbytes + self.stats.nbytes + self.codes.nbytes

    def unpack(self) -> Weights:
        """The weights, equal to the last bit to those that were packed."""
        arrangement = self.arrangement
        pinned = self.device.type == "cuda"  # from such memory the GPU copies by itself, while this thread goes on
        memory = torch.zeros(arrangement.numbers, dtype=self.kept.dtype, pin_memory=pinned)
        places = arrangement.kept.values()
        pieces = self.kept.split([place.stop - place.start for place in places])
        for piece, place in zip(pieces, places, strict=True):
            memory[place] = piece
        counts = [len(coded.names) for coded in arrangement.coded.values()]
        lengths = [sum(coded.lengths) for coded in arrangement.coded.values()]
        parts = zip(arrangement.coded.items(), self.stats.split(counts), self.codes.split(lengths), strict=True)
        for (bits, coded), stats, codes in parts:
            tables = byte_values(stats, bits, memory.dtype)
            # Rows in the tables of all matrices, one below the other: each table has 256 rows, one for each byte.
            rows = torch.repeat_interleave(256 * torch.arange(len(stats)), torch.tensor(coded.lengths)) + codes
            for own, place in coded.runs:
                torch.index_select(tables.flatten(0, 1), 0, rows[own], out=memory[place].view(-1, 8 // bits))
        return Weights.within(memory.to(self.device, non_blocking=pinned), arrangement.length, arrangement.head)


def at_rest(model: AdaptedViT, tensors: Mapping[str, Tensor]) -> Weights | PackedWeights:
    """A task's weights as they are to be held: packed if that takes less than half of the bytes. Arguments and errors
    are those of `PackedWeights.of`.
    """
    weights = Weights.of(model)
    if not quantised_layers(model.trainable()):
        return weights
    packed = PackedWeights.of(model, tensors)
    return packed if 2 * packed.nbytes < weights.nbytes else weights


def _arrangement(model: AdaptedViT) -> _Arrangement:
    quantised = quantised_layers(model.trainable())
    pieces = [
        _Piece(name, parameter.shape, quantised[name].bits if name in quantised else FULL_PRECISION)
        for name, parameter in model.trainable().named_parameters()
    ]
    head = len(list(model.head.parameters()))
    return _arrange(tuple(pieces[:-head]), tuple(pieces[-head:]))


@lru_cache(_ARRANGEMENTS)
def _arrange(methods: tuple[_Piece, ...], head: tuple[_Piece, ...]) -> _Arrangement:
    pieces = (*methods, *head)
    lengths = aligned_lengths([piece.shape for piece in pieces])
    places = list(zip(pieces, accumulate(lengths, initial=0), strict=False))
    kept = {
        piece.name: slice(start, start + piece.shape.numel()) for piece, start in places if piece.bits == FULL_PRECISION
    }
    all_bits = sorted({piece.bits for piece in pieces} - {FULL_PRECISION})
    coded = {bits: _code([(piece, start) for piece, start in places if piece.bits == bits]) for bits in all_bits}
    return _Arrangement(sum(lengths), kept, coded, sum(lengths[: len(methods)]), [piece.shape for piece in head])


def _code(places: Sequence[tuple[_Piece, int]]) -> _Coded:
    coded, first = _Coded([], [], []), 0
    for piece, start in places:
        length = code_bytes(piece.shape.numel(), piece.bits)
        # The last byte may hold more codes than there are weights: there is room until the next tensor.
        end, after = first + length, start + length * 8 // piece.bits
        if coded.runs and coded.runs[-1][1].stop == start:
            before = coded.runs.pop()
            coded.runs.append((slice(before[0].start, end), slice(before[1].start, after)))
        else:
            coded.runs.append((slice(first, end), slice(start, after)))
        coded.names.append(piece.name)
        coded.lengths.append(length)
        first = end
    return coded
