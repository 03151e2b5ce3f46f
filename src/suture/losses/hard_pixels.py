"""Cross entropy on hard pixels (online hard example mining, OHEM)."""

import math

import torch
from torch import Tensor

from suture.losses.cross_entropy import pixel_losses

THRESHOLD, KEEP = 0.7, 1 / 16


def hard_pixels(
    logits: Tensor, labels: Tensor, ignore: int = 255, threshold: float = THRESHOLD, keep: float = KEEP
) -> tuple[Tensor, Tensor]:
    """Sum of the cross entropies of the hard pixels, and their number.

    A pixel is hard if its true class has a probability below `threshold`, i.e. a loss above -ln(threshold). In each
    image, at least the share `keep` of the labelled pixels counts, those with the largest losses.

    >>> confident = torch.tensor([9.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 8, 8)
    >>> hard_pixels(confident, torch.zeros(1, 8, 8))[1].item()
    4
    """
    losses, labelled = pixel_losses(logits, labels, ignore).flatten(1), (labels != ignore).flatten(1)
    limit = -math.log(threshold)
    hard = labelled & (losses > limit)

    # Where too few are hard, the worst easy ones are added. Ranks and counts stay on the device.
    least = torch.ceil(labelled.sum(1, keepdim=True) * keep)
    worst = losses.masked_fill(~labelled, -torch.inf).topk(math.ceil(losses.shape[1] * keep)).values
    rank = torch.arange(worst.shape[1], device=worst.device)
    # "not above" instead of "at most": a NaN, which topk ranks first, has to reach the sum.
    added = (rank < least) & ~(worst > limit)

    total = losses.where(hard, 0.0).sum() + worst.where(added, 0.0).sum()
    return total, hard.sum() + added.sum()
