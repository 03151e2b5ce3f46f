"""Cross entropy as a sum and a count, for means over all processes."""

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None = None, ignore: int = 255
) -> tuple[Tensor, Tensor]:
    """Sum of the pixels' cross entropies, and the number of pixels with a label.

    Args:
        logits: B C H W.
        labels: B H W, any integer type.
        weights: B H W, of each pixel; they do not change the count.

    >>> import torch
    >>> total, count = cross_entropy(torch.zeros(1, 2, 1, 2), torch.tensor([[[1, 255]]]))
    >>> round(total.item(), 4), count.item()
    (0.6931, 1)
    """
    losses = pixel_losses(logits, labels, ignore)
    if weights is not None:
        losses = losses * weights
    return losses.sum(), (labels != ignore).sum()


def pixel_losses(logits: Tensor, labels: Tensor, ignore: int) -> Tensor:
    """Cross entropy of every pixel in fp32, B H W; 0 where the label is `ignore`."""
    return F.cross_entropy(logits.float(), labels.long(), ignore_index=ignore, reduction="none")
