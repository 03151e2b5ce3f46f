"""Projection head for contrastive learning."""

from torch import Tensor, nn
from torch.nn import functional as F


class Projector(nn.Module):
    """1×1 conv → BN → ReLU → 1×1 conv, then unit length per pixel.

    >>> import torch
    >>> Projector(256)(torch.rand(2, 256, 4, 5)).norm(dim=1).allclose(torch.ones(2, 4, 5))
    True
    """

    def __init__(self, in_channels: int, hidden: int = 512, out: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, hidden, 1, bias=False),  # the batch norm has the bias
            nn.BatchNorm2d(hidden),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, out, 1),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Unit vectors, B out h w, of features, B D h w."""
        return unit(self.layers(features))


def unit(vectors: Tensor) -> Tensor:
    """Normalise B D h w to unit length per pixel, in fp32: bf16 is too coarse for a length."""
    return F.normalize(vectors.float(), dim=1, eps=1e-6)
