"""How torch computes on a GPU, where its defaults do not suit many small forwards."""

from __future__ import annotations

import torch


def configure(device: torch.device | str) -> None:
    """Sets for the whole process, if the device is a GPU, what torch leaves open there.

    Attention is not computed by cuDNN. On Hopper and newer torch would prefer it; but it makes a plan for every length
    of sequence and number of images that it meets, in every thread anew, which takes longer than the forward.

    Convolutions of float32 numbers do not round them to TF32, which matrix products do not either by default: a patch
    embedding would else be off by a thousandth, and other tokens merge than on a CPU.
    """
    if torch.device(device).type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cudnn.allow_tf32 = False
        # What was chosen by newer settings, which older torches lack, has precedence; and unless the kinds agree, that
        # above cannot be read any more.
        for kind in ("conv", "rnn"):
            if (settings := getattr(torch.backends.cudnn, kind, None)) is not None:
                settings.fp32_precision = "ieee"
