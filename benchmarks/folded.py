"""Batch norms folded into convolutions, in a network that predicts: `python benchmarks/folded.py`.

- `apart`: batch norms as layers of their own;
- `folded`: into the convolutions before them (`suture.models.fold_batch_norms`), which leaves a bias to add;
- `one kernel`, on a GPU: not ours, but what might be: cuDNN's kernels for a convolution with its bias, what is added to
  its result, and the ReLU after it, in the blocks of the encoder.

Ours is the first on a GPU and the second on a CPU. The network alone is timed, on images that lie on the device: on a
GPU DeepLabV3 with ResNet-50 at 480×480 in bf16, recorded as a CUDA graph, on a CPU that of the preset `fast`. The floor
is what its operations take at the pace of a matrix product.
"""

from types import MethodType
from typing import Any

import torch
from common import CUDA, DEVICE, captured, flops, gpu_seconds, matrix_pace, parser, report, table
from latency import make_network, named
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck

from suture.models.fold_batch_norms import fold_batch_norms

BATCHES = (1, 16) if CUDA else (1,)
WAYS = ("apart", "folded", "one kernel") if CUDA else ("apart", "folded")
OURS = "apart" if CUDA else "folded"


def one_kernel(convolution: nn.Conv2d, images: Tensor, added: Tensor | None = None) -> Tensor:
    """ReLU(convolution + bias + what is added)."""
    weight, bias = (x.bfloat16() for x in (convolution.weight, convolution.bias))
    how: list[Any] = [convolution.stride, convolution.padding, convolution.dilation, convolution.groups]
    if added is None:
        return torch.cudnn_convolution_relu(images, weight, bias, *how)
    return torch.cudnn_convolution_add_relu(images, weight, added, 1.0, bias, *how)


def block(self: Bottleneck, images: Tensor) -> Tensor:
    """What a block of a ResNet computes."""
    images = images.bfloat16()
    inside = one_kernel(self.conv2, one_kernel(self.conv1, images))
    return one_kernel(self.conv3, inside, self.downsample(images) if self.downsample else images)


def network(way: str) -> tuple[nn.Module, int]:
    """It, and the side of its images."""
    made, side = make_network(DEVICE.type)
    made.to(DEVICE).eval()
    if way != "apart":
        fold_batch_norms(made, torch.zeros(1, 3, side, side, device=DEVICE))
    if way == "one kernel":
        for part in made.modules():
            if isinstance(part, Bottleneck):
                part.forward = MethodType(block, part)
    return made.to(memory_format=torch.channels_last).requires_grad_(False), side


def milliseconds(way: str, batch: int) -> tuple[float, int]:
    """Of a batch, and its operations."""
    made, side = network(way)
    images = torch.rand(batch, 3, side, side, device=DEVICE).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def work() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=CUDA):
            made(images)

    return 1000 * gpu_seconds(captured(work), 50 if CUDA else 20), flops(work)


def main() -> None:
    """Time the ways for every batch."""
    said = parser(__doc__).parse_args()
    torch.backends.cudnn.benchmark = CUDA
    ceiling = matrix_pace()
    rows = []
    for batch in BATCHES:
        found = {way: milliseconds(way, batch) for way in WAYS}
        took = {way: ms for way, (ms, _) in found.items()}
        rows.append({"batch": batch, "ms": took, "floor_ms": 1000 * found["apart"][1] / ceiling})
    cells = (
        [
            row["batch"],
            *(f"{value:.3g} ({row['ms']['apart'] / value:.2f}x)" for value in row["ms"].values()),
            f"{row['floor_ms']:.3g} ({row['floor_ms'] / row['ms'][OURS]:.1%})",
        ]
        for row in rows
    )
    print(table(cells, ("frames", *(f"{way}, ms" for way in WAYS), "by FLOPs, ms")))
    print(f"by FLOPs: at {ceiling / 1e12:.3g} TFLOP/s, a matrix product's pace; in brackets what ours reaches of it")
    report("folded", {"rows": rows, "network": named(DEVICE.type), "ours": OURS}, said.json)


if __name__ == "__main__":
    main()
