"""Atrous convolutions, forward and backward: `python benchmarks/atrous.py`.

DeepLabV3's three (2,048 channels to 256, nine taps that lie 12, 24 and 36 cells apart) are a third of its operations.

- `torch's`: all taps, also those that meet nothing but the zeros around the features;
- `ours`: without the latter (`suture.models.convolutions`);
- `one product`: not ours, but what might be: libraries have fast kernels for taps that lie side by side; but a tap
  alone is a product of matrices. All taps in one product, then shifted and added.

The floor is what the operations of ours take at the pace of a matrix product, in the same run.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from common import CUDA, DEVICE, captured, flops, gpu_seconds, matrix_pace, parser, report, table
from torch import Tensor, nn
from torch.nn import functional as F

from suture.models.convolutions import AtrousConv

CHANNELS = 2048, 256
GRIDS = ((32, 8), (32, 16), (60, 16)) if CUDA else ((16, 2),)
"""Cells of a side, and frames: at output stride 8 of 256×256 and 480×480 pixels, on a CPU of 128×128."""
DILATIONS = (12, 24, 36)


def taps(side: int, dilation: int) -> Iterator[tuple[int, slice, slice]]:
    """Of one direction: each tap that meets the features, where its result goes, and where it looks."""
    for tap in range(3):
        shift = (tap - 1) * dilation
        if abs(shift) < side:
            yield tap, slice(max(-shift, 0), side - max(shift, 0)), slice(max(shift, 0), side + min(shift, 0))


class OneProduct(nn.Conv2d):
    """All taps that meet the features in one product."""

    def forward(self, features: Tensor) -> Tensor:
        height, width = features.shape[-2:]
        chosen = [(*y, *x) for y in taps(height, self.dilation[0]) for x in taps(width, self.dilation[1])]
        stacked = torch.cat([self.weight[:, :, i, j] for i, _, _, j, _, _ in chosen])[..., None, None]
        products = F.conv2d(features, stacked).chunk(len(chosen), 1)
        found = torch.zeros_like(products[0], dtype=torch.float32)
        for (_, to_y, from_y, _, to_x, from_x), product in zip(chosen, products, strict=True):
            found[..., to_y, to_x] += product[..., from_y, from_x]
        return found.to(features.dtype)


WAYS: dict[str, Callable[..., nn.Conv2d]] = {"torch's": nn.Conv2d, "ours": AtrousConv, "one product": OneProduct}


def make(way: str, side: int, frames: int, dilation: int) -> tuple[nn.Conv2d, Tensor, Tensor]:
    """The layer, features for it, and a gradient of what it makes of them."""
    torch.manual_seed(0)
    as_trained: dict[str, Any] = {
        "device": DEVICE,
        "dtype": torch.bfloat16 if CUDA else torch.float32,
        "memory_format": torch.channels_last,
    }
    layer = WAYS[way](*CHANNELS, 3, padding=dilation, dilation=dilation, bias=False).to(**as_trained)
    features = torch.rand(frames, CHANNELS[0], side, side).to(**as_trained).requires_grad_()
    given = torch.rand(frames, CHANNELS[1], side, side).to(**as_trained)
    return layer, features, given


def milliseconds(layer: nn.Conv2d, features: Tensor, given: Tensor) -> float:
    """Of a forward and backward pass, replayed as a CUDA graph as a training step is."""
    work = captured(lambda: torch.autograd.grad(layer(features), (features, layer.weight), given))
    return 1000 * gpu_seconds(work, 30 if CUDA else 5)


def operations(layer: nn.Conv2d, features: Tensor, given: Tensor) -> int:
    """Of the same."""
    return flops(lambda: layer(features).backward(given))


def main() -> None:
    """Time the ways for every grid and dilation."""
    said = parser(__doc__).parse_args()
    torch.backends.cudnn.benchmark = CUDA
    ceiling = matrix_pace()
    rows = []
    for side, frames in GRIDS:
        for dilation in DILATIONS:
            case = side, frames, dilation
            took = {way: milliseconds(*make(way, *case)) for way in WAYS}
            floor = 1000 * operations(*make("ours", *case)) / ceiling
            rows.append({"side": side, "frames": frames, "dilation": dilation, "ms": took, "floor_ms": floor})
    cells = (
        [
            *(f"{row['side']}×{row['side']}", row["frames"], row["dilation"]),
            *(f"{value:.3g} ({row['ms'][next(iter(WAYS))] / value:.2f}x)" for value in row["ms"].values()),
            f"{row['floor_ms']:.3g} ({row['floor_ms'] / row['ms']['ours']:.1%})",
        ]
        for row in rows
    )
    print(table(cells, ("grid", "frames", "dilation", *(f"{way}, ms" for way in WAYS), "by FLOPs, ms")))
    print(f"by FLOPs: at {ceiling / 1e12:.3g} TFLOP/s, a matrix product's pace; in brackets what ours reaches of it")
    report("atrous", {"rows": rows, "flops_per_second": ceiling}, said.json)


if __name__ == "__main__":
    main()
