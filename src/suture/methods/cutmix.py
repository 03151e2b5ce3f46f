"""CutMix (Yun et al., 2019): patches of other frames of the batch, in images and in their labels."""

import numpy as np
import torch
from torch import Tensor

from suture.methods.stage import all_gather


def draw_patch(rng: np.random.Generator, share: float) -> np.ndarray:
    """Draw a box of 2 % to 40 % of the area and aspect 0.3 to 1/0.3, in fractions; empty but for a share of draws."""
    u = rng.random(5)
    area, aspect = 0.02 + 0.38 * u[1], 0.3 ** (1 - 2 * u[2])
    width, height = min(1.0, (area * aspect) ** 0.5), min(1.0, (area / aspect) ** 0.5)
    left, top = u[3] * (1 - width), u[4] * (1 - height)
    return np.array([left, top, left + width, top + height]) * (u[0] < share)


def in_boxes(boxes: Tensor, size: tuple[int, ...]) -> Tensor:
    """Mark the pixels whose centres lie in boxes (left, top, right, bottom, in fractions): B H W.

    >>> in_boxes(torch.tensor([[0.5, 0.0, 1.0, 0.5]]), (2, 2)).int().tolist()
    [[[0, 1], [0, 0]]]
    """
    height, width = size
    x = (torch.arange(width, device=boxes.device) + 0.5) / width
    y = (torch.arange(height, device=boxes.device) + 0.5) / height
    left, top, right, bottom = boxes[..., None].unbind(1)
    return ((y >= top) & (y < bottom))[:, :, None] & ((x >= left) & (x < right))[:, None, :]


def cut_mix(x: Tensor, patched: Tensor, rank: int) -> Tensor:
    """Replace the `patched` pixels (B H W) of images (B 3 H W) or labels (B H W) by those of another sample.

    The other sample is the one before it in the batch of all processes.

    >>> cut_mix(torch.tensor([[[1, 1]], [[2, 2]], [[3, 3]]]), torch.tensor([[[True, False]]] * 3), rank=0).tolist()
    [[[3, 1]], [[1, 2]], [[2, 3]]]
    """
    others = all_gather(x).roll(1, 0)[rank * len(x) :][: len(x)]
    return torch.where(patched[:, None] if x.ndim == 4 else patched, others, x)
