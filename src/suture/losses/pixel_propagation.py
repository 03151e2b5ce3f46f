"""Pixel-to-propagation consistency of PixPro (Xie et al., CVPR 2021).

Two cells of two views' feature grids are a positive pair if the distance of their centres in the scene is below a share
of the larger cell's diagonal. There are no negatives.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from suture.losses.precision import full_precision


class Cells(NamedTuple):
    """Cells of each view's feature grid, in coordinates of the scene."""

    centres: Tensor
    """B N 2: x, y"""
    diagonal: Tensor
    """B: of one cell"""


def cells(outlines: Tensor, flip: Tensor, size: tuple[int, int], stride: int) -> Cells:
    """Cells of views of a scene.

    Args:
        outlines: B 6, box and slant of each view, as from `data.sampling.augment.outline`.
        flip: B bool, mirrored views.
        size: Height and width of the views.
        stride: Side of a cell in pixels of a view.

    >>> cells(torch.tensor([[10.0, 0.0, 8.0, 4.0, 0.0, 0.0]]), torch.tensor([True]), (4, 8), stride=4).centres.tolist()
    [[[16.0, 2.0], [12.0, 2.0]]]
    """
    height, width = size
    u = (torch.arange(-(-width // stride), device=flip.device) + 0.5) * stride / width
    v = (torch.arange(-(-height // stride), device=flip.device) + 0.5)[:, None] * stride / height
    u = torch.where(flip[:, None, None], 1 - u, u)
    x, y, across, along, right, down = outlines[:, :, None, None].unbind(1)
    centres = torch.stack((x + u * across + v * right, y + v * along + u * down), -1).flatten(1, 2)
    sides = torch.hypot(across, down) / width, torch.hypot(along, right) / height
    return Cells(centres, stride * torch.hypot(*sides).flatten())


def positive_pairs(a: Cells, b: Cells, distance: float) -> Tensor:
    """Pairs of cells of the views `a` and `b` that show the same place: B N N bool."""
    # Matrix products lose the small differences between large coordinates; torch.cdist is slow for short vectors.
    x, y = (a.centres[:, :, None, axis] - b.centres[:, None, :, axis] for axis in (0, 1))
    limit = distance * torch.maximum(a.diagonal, b.diagonal)
    return x.square_().add_(y.square_()) < limit.square()[:, None, None]


def propagate(pixels: Tensor, values: Tensor, sharpness: float) -> Tensor:
    """Mix the values of similar pixels: z_i = Σ_j max(x_i·x_j, 0)^sharpness · g(x_j), of unit length, B D h w.

    Args:
        pixels: Unit vectors x, B D h w.
        values: Unit vectors g(x), B D h w.
    """
    with full_precision(pixels):
        flat = pixels.float().flatten(2)
        similarity = (flat.mT @ flat).clamp(min=0) ** sharpness
        return F.normalize(values.float().flatten(2) @ similarity, dim=1, eps=1e-6).view_as(values)


def propagation_loss(propagated: Tensor, keys: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over the views of −(mean cosine of their positive pairs), and the number of views with such pairs.

    Args:
        propagated: B D h w of unit length.
        keys: B D h w of unit length.
        positive: B N N bool, pairs of pixels of `propagated` and `keys`.

    >>> z, x = torch.tensor([0.6, 0.8]).view(1, 2, 1, 1), torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)
    >>> loss, views = propagation_loss(z, x, torch.ones(1, 1, 1, dtype=torch.bool))
    >>> round(loss.item(), 4), views.item()
    (-0.6, 1)
    """
    with full_precision(propagated):
        # The sum of cosines with all partners is a dot product with the partners' sum.
        partners = positive.float() @ keys.float().flatten(2).mT
        cosines = (propagated.float().flatten(2).mT * partners).sum((1, 2))
        pairs = positive.sum((1, 2))
        return -(cosines / pairs.clamp(min=1)).sum(), (pairs > 0).sum()
