"""How long one frame waits for its mask: `python benchmarks/latency.py [--frames 1000]`.

What an operating room feels: one frame in memory goes in, its mask at the frame's resolution comes out, with all copies
to the device and back; p50, p95 and p99 after a warm-up. On a GPU a DeepLabV3-ResNet-50 at 480×480 (output stride 8),
replayed as a CUDA graph, against the same launched kernel by kernel; on a CPU the network of the `fast` preset at
256×256, against the same in the plain layout of tensors and with batch norms apart. `--model` takes any other, also an
ONNX file. The floor is what the network's operations take at the pace of a large matrix product, which one frame does
not fill.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is imported

import cv2
import numpy as np
import torch
from common import CUDA, DEVICE, flops, matrix_pace, parser, report

from suture.data.classes import default_colors
from suture.models.model import Model
from suture.models.segmenter import Segmenter, build_segmenter
from suture.prediction.predictor import Predictor

NETWORKS = {
    "cuda": ("deeplabv3", "resnet50", 8, 480),
    "cpu": ("pan", "tu-mobilenetv3_large_100", 16, 256),
}
CLASSES = 10
WARM_UP = 30


def frames(width: int, height: int, count: int = 8) -> list[np.ndarray]:
    """Pictures about as soft as endoscopic video."""
    generator = np.random.default_rng(0)
    coarse = [generator.integers(0, 256, (10, 12, 3), np.uint8) for _ in range(count)]
    return [cv2.resize(one, (width, height), interpolation=cv2.INTER_CUBIC) for one in coarse]


def named(device: str) -> str:
    """The network of a kind of device, in words."""
    architecture, encoder, stride, size = NETWORKS[device]
    return f"{architecture}, {encoder}, output stride {stride}, {size}×{size}"


def make_network(device: str) -> tuple[Segmenter, int]:
    """It with random weights, which take as long as trained ones; its side."""
    architecture, encoder, stride, size = NETWORKS[device]
    torch.manual_seed(0)
    return build_segmenter(architecture, encoder, CLASSES, stride), size


def write_network(folder: Path, device: str) -> str:
    """That as a finished model; what it is, in words."""
    segmenter, size = make_network(device)
    names = tuple(f"class {number}" for number in range(CLASSES))
    Model(segmenter, names, tuple(default_colors(names)), (size, size)).save(folder)
    return named(device)


def milliseconds(predict: Callable[[np.ndarray], np.ndarray], inputs: list[np.ndarray], count: int) -> np.ndarray:
    """Of each of so many frames, one after the other."""
    for index in range(WARM_UP):
        predict(inputs[index % len(inputs)])
    waited = np.empty(count)
    for index in range(count):
        start = time.perf_counter()
        predict(inputs[index % len(inputs)])
        waited[index] = time.perf_counter() - start
    return waited * 1000


def plain(model: Path, device: str) -> tuple[str, Predictor]:
    """The predictor without what makes it fast on its device."""
    with mock.patch("suture.models.fold_batch_norms.fold_batch_norms"):
        predictor = Predictor(model, device)
    if predictor.device.type == "cuda":
        predictor._graph = lambda function, *inputs: function(*inputs)  # type: ignore[assignment]
        return "kernel by kernel", predictor
    predictor.network.module.to(memory_format=torch.contiguous_format)
    return "plain layout, batch norms apart", predictor


def floor(predictor: Predictor) -> float | None:
    """Milliseconds of a frame's operations at the pace of a matrix product; of an exported file they are not known."""
    network = predictor.network
    if not isinstance(network.module, Segmenter) or predictor.device.type != DEVICE.type:
        return None
    image = torch.rand(1, 3, *network.size, device=DEVICE)
    with torch.no_grad():
        return 1000 * flops(lambda: network.module(image)) / matrix_pace()


def main() -> None:
    """Time one frame after the other."""
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="a run folder, a model.safetensors or an ONNX file")
    options.add_argument("--device", default="auto")
    options.add_argument("--frames", type=int, default=1000, help="how many [1000]")
    options.add_argument("--size", default="1280x1024", help="of the frames")
    said = options.parse_args()
    count = said.frames
    width, height = (int(side) for side in said.size.split("x"))
    inputs = frames(width, height)
    with tempfile.TemporaryDirectory() as folder:
        network = (
            str(said.model)
            if said.model
            else write_network(Path(folder), "cpu" if said.device == "cpu" or not CUDA else "cuda")
        )
        model = said.model or Path(folder)
        predictor = Predictor(model, said.device)
        lowest = floor(predictor)
        results = {"suture.Predictor": milliseconds(predictor, inputs, count)}
        if model.suffix.lower() != ".onnx":
            name, slower = plain(model, said.device)
            results[name] = milliseconds(slower, inputs, count)
    print(f"{network}; frames of {width}×{height}, one at a time, {count} of them, on {predictor.device}")
    figures = {name: np.percentile(waited, [50, 95, 99]).tolist() for name, waited in results.items()}
    for name, (p50, p95, p99) in figures.items():
        print(f"{name:18s} p50 {p50:7.2f} ms   p95 {p95:7.2f} ms   p99 {p99:7.2f} ms")
    if len(figures) == 2:
        (ours, *_), (other, *_) = figures.values()
        print(f"{'ratio of p50':18s} {other / ours:11.2f}x")
    if lowest is not None:
        ours = figures["suture.Predictor"][0]
        print(f"{'by FLOPs':18s}     {lowest:7.2f} ms   ({lowest / ours:.1%} of our p50)")
    shown = {"network": network, "frame": [width, height], "frames": count, "ms": figures, "floor_ms": lowest}
    report("latency", shown, said.json)


if __name__ == "__main__":
    main()
