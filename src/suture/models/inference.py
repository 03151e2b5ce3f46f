"""Class probabilities of images, optionally averaged over flips and scales."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@torch.no_grad()
def probabilities(
    segmenter: nn.Module,
    images: Tensor,
    *,
    flip: bool = False,
    scales: Sequence[float] = (1.0,),
    autocast: torch.dtype | None = None,
) -> Tensor:
    """B 3 H W in 0…1 to class probabilities B C H W, fp32; the mean over all asked-for versions of the images."""
    size = images.shape[-2:]
    total: Tensor | None = None
    for scale in scales:
        # To a size, not by a factor: where that does not divide the side, the last part of a pixel would be cut off.
        sides = [max(1, round(side * scale)) for side in size]
        scaled = images if scale == 1 else F.interpolate(images, sides, mode="bilinear", antialias=True)
        for mirrored in (False, True) if flip else (False,):
            with torch.autocast(images.device.type, autocast, enabled=autocast is not None):
                logits = segmenter(scaled.flip(-1) if mirrored else scaled).float()
            if scale != 1:
                logits = F.interpolate(logits, size, mode="bilinear", align_corners=False)
            found = (logits.flip(-1) if mirrored else logits).softmax(1)
            total = found if total is None else total + found
    assert total is not None
    return total / (len(scales) * (2 if flip else 1))
