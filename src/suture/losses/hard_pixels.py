"""Cross entropy on the pixels that are still hard (OHEM)."""

import math

import torch
from torch import Tensor

from suture.losses.cross_entropy import pixel_losses

THRESHOLD, KEEP = 0.7, 1 / 16


def hard_pixels(
    logits: Tensor, labels: Tensor, ignore: int = 255, threshold: float = THRESHOLD, keep: float = KEEP
) -> tuple[Tensor, Tensor]:
    """Sum of the cross entropies of the hard pixels, and their number.

    Hard are the pixels whose true class has a probability below `threshold`, i.e. a loss above -ln(threshold); in
    each image at least the share `keep` of its labelled pixels, the worst ones, is taken.

    >>> confident = torch.tensor([9.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 8, 8)
    >>> hard_pixels(confident, torch.zeros(1, 8, 8))[1].item()
    4
    """
    return hardest(pixel_losses(logits, labels, ignore), labels != ignore, threshold, keep)


def hardest(
    losses: Tensor, labelled: Tensor, threshold: float = THRESHOLD, keep: float = KEEP
) -> tuple[Tensor, Tensor]:
    """The same of cross entropies that are known (B H W), and which pixels have a label."""
    losses, labelled = losses.flatten(1), labelled.flatten(1)
    limit = -math.log(threshold)
    hard = labelled & (losses > limit)

    # Where too few are hard, the worst of the easy ones make up the number; ranks and counts stay on the device.
    least = torch.ceil(labelled.sum(1, keepdim=True) * keep)
    worst = losses.masked_fill(~labelled, -torch.inf).topk(math.ceil(losses.shape[1] * keep)).values
    rank = torch.arange(worst.shape[1], device=worst.device)
    # "not above" rather than "at most", so that a NaN, which topk ranks first, is summed and noticed.
    added = (rank < least) & ~(worst > limit)

    total = losses.where(hard, 0.0).sum() + worst.where(added, 0.0).sum()
    return total, hard.sum() + added.sum()
