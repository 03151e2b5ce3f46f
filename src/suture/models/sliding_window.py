"""Large images through a network in overlapping windows."""

from collections.abc import Callable

import torch
from torch import Tensor

OVERLAP = 0.25
"""Least overlap of neighbouring windows, as a share of their side."""
WINDOW_BATCH = 8


def slide_window(predict: Callable[[Tensor], Tensor], images: Tensor, size: tuple[int, int]) -> Tensor:
    """Average predictions over overlapping windows, which count most in their middle.

    Args:
        predict: Maps windows (B, 3, h, w) to probabilities (B, C, h, w).
        images: (B, 3, H, W).
        size: Height and width of the windows, at most those of the images.

    Returns:
        (B, C, H, W).
    """
    batch, _, height, width = images.shape
    corners = [(top, left) for top in window_starts(height, size[0]) for left in window_starts(width, size[1])]
    weight = torch.outer(_taper(size[0], images.device), _taper(size[1], images.device))
    total: Tensor | None = None
    weights = images.new_zeros(height, width)
    for top, left in corners:
        weights[top : top + size[0], left : left + size[1]] += weight
    places = [(number, *corner) for number in range(batch) for corner in corners]
    for first in range(0, len(places), WINDOW_BATCH):
        part = places[first : first + WINDOW_BATCH]
        windows = torch.stack([images[n, :, top : top + size[0], left : left + size[1]] for n, top, left in part])
        predicted = predict(windows.contiguous(memory_format=torch.channels_last))
        if total is None:
            total = predicted.new_zeros(batch, predicted.shape[1], height, width)
        for (n, top, left), one in zip(part, predicted, strict=True):
            total[n, :, top : top + size[0], left : left + size[1]] += one * weight
    assert total is not None
    return total / weights


def window_starts(side: int, window: int) -> list[int]:
    """Spread windows evenly over a side.

    >>> window_starts(100, 100), window_starts(250, 100)
    ([0], [0, 75, 150])
    """
    count = 1 + -(-(side - window) // int(window * (1 - OVERLAP) + 0.5 or 1))
    return [round(place * (side - window) / max(count - 1, 1)) for place in range(count)]


def _taper(length: int, device: torch.device) -> Tensor:
    """Weights from 1 in the middle down to almost 0 at the ends."""
    distance = (torch.arange(length, device=device) + 0.5) / length * 2 - 1
    return (1 - distance.abs()).clamp(min=1e-3)
