"""Makes timm importable where torchvision lacks its compiled operators.

timm imports torchvision, whose Python code registers shape functions for `torchvision::nms` and `torchvision::qnms`.
Beside a CPU build of torch, a torchvision built for CUDA cannot load the library that defines them, and its import
fails. Declaring the two schemas is enough: nothing in this project calls them.
"""

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[torch.library.Library] = []  # a Library undoes its definitions when it is collected


def declare_missing_operators() -> None:
    """Imports torchvision, declaring the operators that its import needs only if it fails without them."""
    try:
        import torchvision  # noqa: F401, PLC0415
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        _libraries.append(library)
