"""DPT (Ranftl et al., 2021) for vision transformers of timm: four blocks tapped, a light decoder, output at stride 4.

As in UniMatch V2 and Depth Anything: the final norm is applied to every tap, and prefix tokens (class, registers) are
not read. smp's own DPT needs patches of 16 pixels.
"""

import math
import sys
from collections import OrderedDict
from typing import Any

from segmentation_models_pytorch.encoders.timm_vit import TimmViTEncoder
from torch import Tensor, nn
from torch.nn import functional as F

STRIDE = 4
"""Stride of the decoder's output."""


class VitEncoder(TimmViTEncoder):
    """A vision transformer of timm, without its classifier and the blocks after the last tap."""

    def __init__(self, name: str, pretrained: bool, **options: Any) -> None:
        super().__init__(name, pretrained, depth=4, **options)
        if len(set(self.output_strides)) > 1:
            raise ValueError("dpt needs an encoder with one patch size; use upernet or fpn")
        self.model.prune_intermediate_layers(self._output_indices)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Four levels, B D h w, of images B 3 H W."""
        taps = self.model.forward_intermediates(
            images, indices=self._output_indices, norm=True, output_fmt="NLC", intermediates_only=True
        )
        rows = images.shape[-2] // self.output_stride
        # Tokens are channels-last features already; timm would copy them.
        return [tap.unflatten(1, (rows, -1)).permute(0, 3, 1, 2) for tap in taps]

    def convert(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert weights from the names of the network's authors to timm's, and resize the position grid."""
        convert = getattr(sys.modules[type(self.model).__module__], "checkpoint_filter_fn", None)
        needed = {name: tensor for name, tensor in tensors.items() if not name.startswith("decoder_")}
        return convert(needed, self.model) if convert else needed


class DptDecoder(nn.Module):
    """Levels at 4, 2, 1 and ½ times the patch grid, fused from the coarsest to the finest (RefineNet).

    Args:
        in_channels: Channels of the encoder's taps.
        patch: Side of a patch in pixels.
        channels: Channels of the output.
    """

    def __init__(self, in_channels: list[int], patch: int, channels: int = 64) -> None:
        super().__init__()
        self.patch = patch
        widths = [channels * factor // 4 for factor in (3, 6, 12, 24)]
        resizes = [
            nn.ConvTranspose2d(widths[0], widths[0], 4, 4),
            nn.ConvTranspose2d(widths[1], widths[1], 2, 2),
            nn.Identity(),
            nn.Conv2d(widths[3], widths[3], 3, 2, 1),
        ]
        self.reassemble = nn.ModuleList(
            nn.Sequential(nn.Conv2d(depth, width, 1), resize, nn.Conv2d(width, channels, 3, padding=1, bias=False))
            for depth, width, resize in zip(in_channels, widths, resizes, strict=True)
        )
        self.fuse = nn.ModuleList(Fusion(channels, skip=number < 3) for number in range(4))

    def forward(self, levels: list[Tensor]) -> Tensor:
        """Features B D h w, at stride 4 of images whose sides are multiples of 4 and of the patch."""
        rows, columns = (side * self.patch // STRIDE for side in levels[0].shape[-2:])
        scaled = [part(level) for part, level in zip(self.reassemble, levels, strict=True)]
        sizes = [(rows, columns), *(level.shape[-2:] for level in scaled[:-1])]
        state: Tensor = self.fuse[3](scaled[3], sizes[3])
        for number in (2, 1, 0):
            state = self.fuse[number](state, sizes[number], scaled[number])
        return state


class Fusion(nn.Module):
    """Sum of the coarser state and a level, refined, resized and projected."""

    def __init__(self, channels: int, skip: bool) -> None:
        super().__init__()
        self.skip = ResidualConvUnit(channels) if skip else None
        self.refine = ResidualConvUnit(channels)
        self.project = nn.Conv2d(channels, channels, 1)

    def forward(self, state: Tensor, size: tuple[int, int], level: Tensor | None = None) -> Tensor:
        if self.skip is not None:
            state = state + self.skip(level)
        state = F.interpolate(self.refine(state), size, mode="bilinear", align_corners=True)
        projected: Tensor = self.project(state)
        return projected


class ResidualConvUnit(nn.Module):
    """x + conv(ReLU(conv(ReLU(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        refined: Tensor = self.second(self.first(x.relu()).relu())
        return x + refined


class Dpt(nn.Module):
    """Encoder, decoder and head for an encoder `tu-NAME`, like a model of smp."""

    def __init__(
        self, encoder: str, weights: str | bool | None, classes: int, channels: int = 64, **options: Any
    ) -> None:
        super().__init__()
        if not encoder.startswith("tu-"):
            raise ValueError("dpt is for vision transformers of timm: tu-NAME")
        self.encoder = VitEncoder(encoder[3:], bool(weights), **options)
        self.multiple = math.lcm(self.encoder.output_stride, STRIDE)
        self.decoder = DptDecoder(self.encoder.out_channels, self.encoder.output_stride, channels)
        layers: dict[str, nn.Module] = {
            "conv": nn.Conv2d(channels, channels, 3, padding=1),
            "relu": nn.ReLU(inplace=True),
            "classifier": nn.Conv2d(channels, classes, 1),
        }
        self.segmentation_head = nn.Sequential(OrderedDict(layers))
