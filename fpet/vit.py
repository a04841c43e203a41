"""The project's one forward pass: a frozen timm Vision Transformer with an adapter, a reducer and a head."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from fpet import ends
from fpet.adapters.base import Adapter
from fpet.adapters.none import LinearProbe
from fpet.block import BlockParts, DropPath, adapted_blocks
from fpet.comparison import beyond_tolerance, noise
from fpet.copies import sharing_tensors
from fpet.errors import BackboneError, UnsupportedError
from fpet.header import Method
from fpet.reducers.base import BlockReducer, Reducer
from fpet.reducers.none import NoReduction
from fpet.tokens import Geometry, Layout, Tokens

if TYPE_CHECKING:
    from fpet.backbone import Backbone

_PARITY_TOLERANCE = 1e-4  # relative to the largest value


class AdaptedViT(nn.Module):
    """A frozen backbone adapted to one task.

    The backbone stays in evaluation mode and never receives a gradient; what trains is the adapter, the reducer and the
    head. It is shared, so that `to`, `half` and the like would change it for all of its tasks: for another device or
    type use `Backbone.move` and then `Task.build`. Neither blocks nor their `attn` and `mlp` are called, so that hooks
    on them never fire. `drop_path` is the stochastic depth rate of the last block in training, rising linearly from
    zero at the first. methods: what adapter and reducer were made from, without which no task can be saved.

    Raises:
        UnsupportedError: if adapter and reducer cannot go together.
        ValueError: if `drop_path` is not in [0, 1).
    """

    def __init__(
        self,
        backbone: Backbone,
        adapter: Adapter,
        reducer: Reducer,
        head: nn.Module,
        *,
        drop_path: float = 0.0,
        methods: tuple[Method, Method] | None = None,
    ) -> None:
        super().__init__()
        refuse_misfit(adapter, reducer, backbone.geometry)
        self.backbone = backbone
        self.methods = methods
        self.vit = backbone.vit
        self.adapter = adapter
        self.reducer = reducer
        self.head = head
        if not 0 <= drop_path < 1:
            raise ValueError(f"drop_path = {drop_path} should be in [0, 1)")
        rates = torch.linspace(0, drop_path, backbone.geometry.depth, dtype=torch.float32).tolist()
        self.drop_path = nn.ModuleList(DropPath(rate) for rate in rates)

    @property
    def layout_in(self) -> Layout:
        """Where the tokens lie at the first block, the adapter's prompts among them."""
        return Layout.of(self.backbone.geometry, self.adapter.num_prompts)

    @property
    def tokens_in(self) -> int:
        """Length of the token sequence at the first block."""
        return self.layout_in.num_tokens

    @property
    def tokens_out(self) -> int:
        """Length of the token sequence after the last block; the upper bound where the reducer's `tokens_vary`."""
        return self.reducer.layout_out.num_tokens

    @property
    def mixes(self) -> bool:
        """Whether tasks with these methods may share a batch, a set of weights an image."""
        return self.adapter.mixes and self.reducer.mixes

    def trainable(self) -> nn.ModuleDict:
        """The modules that train and that a task file stores, by the names that they have there."""
        return nn.ModuleDict({"adapter": self.adapter, "reducer": self.reducer, "head": self.head})

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """What trains, as groups for an optimiser: the parameters of methods that must not decay, such as SSF's factors
        and LTMP's thresholds, have a weight decay of 0."""
        methods = (method for method in (self.adapter, self.reducer) if not method.decays)
        kept = [parameter for method in methods for parameter in method.parameters()]
        others = [value for value in self.trainable().parameters() if not any(value is one for one in kept)]
        groups = {"params": others, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}
        return [group for group in groups if group["params"]]

    def unreduced(self) -> AdaptedViT:
        """The same task without token reduction or stochastic depth; adapter and head are shared, with their mode."""
        reducer = NoReduction(self.backbone.geometry, self.layout_in)
        methods = self.methods and (self.methods[0], Method("none"))
        model = AdaptedViT(self.backbone, self.adapter, reducer, self.head, methods=methods)
        return model.train(self.training)

    def in_evaluation(self) -> AdaptedViT:
        """The same task in evaluation mode, while this model keeps its mode; tensors are shared."""
        parts = sharing_tensors(self.adapter), sharing_tensors(self.reducer), sharing_tensors(self.head)
        return AdaptedViT(self.backbone, *parts, methods=self.methods).eval()

    def train(self, mode: bool = True) -> AdaptedViT:
        """Sets the mode of all but the backbone, which stays as `Backbone` has it."""
        self.training = mode
        for child in self.children():
            if child is not self.vit:
                child.train(mode)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> AdaptedViT:
        """As of any module, but for the backbone, which stays frozen."""
        self.trainable().requires_grad_(requires_grad)
        return self

    def tokens(self, images: Tensor) -> Tokens:
        """Normalised images [B, 3, H, W] -> tokens [B, N', C] after the final norm."""
        return self.encode(images)[0]

    def encode(self, images: Tensor) -> tuple[Tokens, list[Tensor | None]]:
        """As `tokens`, and also the sizes [B, N', 1] after each block's reduction.

        Raises:
            TypeError: for what is no tensor of the backbone's dtype.
            ValueError: for images of another shape.
            UnsupportedError: if the reducer leaves another number of tokens than it says.
        """
        tokens, sizes = self._through(self._embed(images), slice(None))
        return self._end(tokens), sizes

    def tokens_of_both(self, images: Tensor, unreduced: AdaptedViT) -> tuple[Tokens, Tokens]:
        """In evaluation, `tokens` of this model and of its `unreduced`; what precedes the first reduction runs once."""
        reduces = (index for index, block in enumerate(self.reducer.blocks) if type(block) is not BlockReducer)
        first = next(reduces, len(self.reducer.blocks))
        tokens, _ = self._through(self._embed(images), slice(first))
        if first == len(self.reducer.blocks):
            same = self._end(tokens)
            return same, same
        again = tokens._replace(x=tokens.x.clone())  # an adapter may write into what enters a block
        (own, _), (full, _) = self._through(tokens, slice(first, None)), unreduced._through(again, slice(first, None))
        return self._end(own), unreduced._end(full)

    def _embed(self, images: Tensor) -> Tokens:
        """Images as `encode` takes them -> the tokens that the first block takes."""
        vit: Any = self.vit
        ends.check_images(images, vit.patch_embed)
        return Tokens(ends.embed(vit, self.adapter, images), None)

    def _through(self, tokens: Tokens, blocks: slice) -> tuple[Tokens, list[Tensor | None]]:
        """Tokens through some of the blocks, and the sizes after each of these."""
        vit: Any = self.vit
        sizes: list[Tensor | None] = []
        parts: Any = zip(vit.blocks, self.adapter.blocks, self.reducer.blocks, self.drop_path, strict=True)
        for left in adapted_blocks(starmap(BlockParts, list(parts)[blocks]), tokens):
            tokens = left
            sizes.append(left.size)
        return tokens, sizes

    def _end(self, tokens: Tokens) -> Tokens:
        """What the last block puts out -> tokens after the final norm."""
        if not self.reducer.tokens_vary and tokens.x.shape[1] != self.tokens_out:
            wrong = f"leaves {tokens.x.shape[1]} tokens, where its layout_out says {self.tokens_out}"
            raise UnsupportedError(f"{type(self.reducer).__name__} {wrong}")
        return ends.norm(self.vit, self.adapter, tokens)

    def features(self, images: Tensor) -> Tensor:
        """Normalised images [B, 3, H, W] -> pooled embedding [B, C], by the backbone's own pooling."""
        return self.pool(self.tokens(images))

    def pool(self, tokens: Tokens) -> Tensor:
        """Tokens [B, N', C] after the final norm -> embedding [B, C]."""
        return ends.pool(self.vit, self.adapter, tokens)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images [B, 3, H, W] -> logits [B, K]."""
        return cast(Tensor, self.head(self.features(images)))


def refuse_misfit(adapter: Adapter, reducer: Reducer, geometry: Geometry) -> None:
    """Checks that every block's adapter finds the tokens as it needs them.

    Raises:
        UnsupportedError: naming adapter, reducer and block, if patches have left the grid that the adapter needs.
    """
    if not adapter.needs_grid:
        return
    grid = Layout.of(geometry, adapter.num_prompts)
    for index, block in enumerate(reducer.blocks):
        if block.layout_out != grid:
            raise UnsupportedError(
                f"{type(adapter).__name__} needs all patches on their grid, which {type(reducer).__name__} does not "
                f"leave there at block {index}: they cannot go together"
            )


def count_parameters(*parts: nn.Module) -> int:
    """The number of parameters of these modules, counted by element."""
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


def check_parity(backbone: Backbone) -> None:
    """Compares the forward with timm's own on one random image.

    Raises:
        BackboneError: if they differ, as after a timm release that changed what a block does.
    """
    vit: Any = backbone.vit
    geometry = backbone.geometry
    plain = LinearProbe(geometry), NoReduction(geometry, Layout.of(geometry)), nn.Identity()
    model, image = AdaptedViT(backbone, *plain).eval(), noise(vit)
    with torch.inference_mode():
        ours = model.tokens(image).x.float()
        theirs = vit.forward_features(image).float()
    difference = beyond_tolerance(ours, theirs, _PARITY_TOLERANCE)
    if difference is not None:
        raise BackboneError(
            f"the forward of {backbone.architecture} differs from timm's by {difference:.2g}: "
            "this timm release is not covered"
        )
