"""Large images through a network in overlapping windows."""

from collections.abc import Callable

import torch
from torch import Tensor

_OVERLAP = 0.25
"""What neighbouring windows share at least, as a part of their side."""
_AT_ONCE = 8


def by_windows(predict: Callable[[Tensor], Tensor], images: Tensor, size: tuple[int, int]) -> Tensor:
    """Probabilities (B C H W) of images (B 3 H W), averaged over windows of `size` that count most in their middle."""
    batch, _, height, width = images.shape
    corners = [(top, left) for top in starts(height, size[0]) for left in starts(width, size[1])]
    weight = torch.outer(_taper(size[0], images.device), _taper(size[1], images.device))
    total: Tensor | None = None
    weights = images.new_zeros(height, width)
    for top, left in corners:
        weights[top : top + size[0], left : left + size[1]] += weight
    places = [(number, *corner) for number in range(batch) for corner in corners]
    for first in range(0, len(places), _AT_ONCE):
        some = places[first : first + _AT_ONCE]
        cut = torch.stack([images[n, :, top : top + size[0], left : left + size[1]] for n, top, left in some])
        found = predict(cut.contiguous(memory_format=torch.channels_last))
        if total is None:
            total = found.new_zeros(batch, found.shape[1], height, width)
        for (n, top, left), one in zip(some, found, strict=True):
            total[n, :, top : top + size[0], left : left + size[1]] += one * weight
    assert total is not None
    return total / weights


def starts(side: int, window: int) -> list[int]:
    """Where windows begin that cover a side evenly.

    >>> starts(100, 100), starts(250, 100)
    ([0], [0, 75, 150])
    """
    count = 1 + -(-(side - window) // int(window * (1 - _OVERLAP) + 0.5 or 1))
    return [round(place * (side - window) / max(count - 1, 1)) for place in range(count)]


def _taper(length: int, device: torch.device) -> Tensor:
    """1 in the middle, little but something at the ends."""
    distance = (torch.arange(length, device=device) + 0.5) / length * 2 - 1
    return (1 - distance.abs()).clamp(min=1e-3)
