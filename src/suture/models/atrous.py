"""Atrous convolutions without the taps that meet nothing.

DeepLab looks 12, 24 and 36 cells to each side, and its grid of features often has no more cells than that: 32 at 256
pixels and output stride 8. Of a tap that lies outside from everywhere only zeros come, and nothing is learnt by it; to
leave it out gives the same values and gradients, of a convolution of nine taps for a ninth of the work.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def use_atrous(network: nn.Module) -> None:
    """Let the atrous convolutions of a network leave out such taps; weights and values stay what they are."""
    for part in network.modules():
        if type(part) is nn.Conv2d and max(part.dilation) > 1 and keeps_size(part):
            part.__class__ = Atrous


class Atrous(nn.Conv2d):
    """A convolution that keeps the size."""

    def forward(self, features: Tensor) -> Tensor:
        weight, padding = reaching(self, features)
        return F.conv2d(features, weight, self.bias, self.stride, padding, self.dilation, self.groups)


def keeps_size(part: nn.Conv2d) -> bool:
    """Whether the result of a convolution has the size of its features, with zeros around these."""
    even = all(
        isinstance(pad, int) and 2 * pad == dilation * (side - 1) and side % 2
        for pad, dilation, side in zip(part.padding, part.dilation, part.kernel_size, strict=False)
    )
    return even and part.stride == (1, 1) and part.padding_mode == "zeros"


def reaching(layer: nn.Conv2d, features: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The taps of a layer that keeps the size which meet the features from somewhere, and the padding they need."""
    weight, padding = layer.weight, [int(pad) for pad in layer.padding]
    for direction, (side, taps, dilation) in enumerate(
        zip(features.shape[2:], layer.kernel_size, layer.dilation, strict=True)
    ):
        if isinstance(side, torch.SymInt):  # what is exported for any size
            continue
        reach = min(taps // 2, (side - 1) // dilation)
        if reach < taps // 2:
            weight = weight.narrow(2 + direction, taps // 2 - reach, 2 * reach + 1)
            padding[direction] = reach * dilation
    return weight, tuple(padding)
