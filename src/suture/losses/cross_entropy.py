"""Cross entropy as a sum and a count, so that a mean can be taken over all processes."""

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None = None, ignore: int = 255
) -> tuple[Tensor, Tensor]:
    """Sum of the pixels' cross entropies, and the number of pixels that have a label.

    logits: B C H W; labels: B H W, any integer type; weights: B H W, of each pixel (they do not change the count).

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
    """B H W of cross entropies in fp32, 0 where the label is `ignore`."""
    return F.cross_entropy(logits.float(), labels.long(), ignore_index=ignore, reduction="none")
