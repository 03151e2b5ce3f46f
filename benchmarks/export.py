"""What exporting brings on a CPU: `python benchmarks/export.py`.

Runs the exported file in ONNX Runtime and the same network in eager PyTorch, one frame at a time on two cores, uint8
frame in to uint8 mask out: the paper's network at its training size, and the preset `fast`, which promises 25 frames
per second at 256×256. Weights are random, as they make no difference to the time. Each figure is the best of several
runs, the two in turn, so that other work on the machine disturbs as little as it can; ONNX Runtime's median is beside.
The floor is what the network's operations take at the pace of a matrix product, in the same run.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from common import flops, matrix_pace, parser, report, table

from suture.deploy.export import Deployed, Shape, to_onnx
from suture.models.segmenter import build_segmenter
from suture.models.weights import Model
from suture.runs.config import load_config

PROMISED = 25.0
CORES = 2
CLASSES = 10
SECONDS = 10.0  # for each comparison


def preset_model(preset: str) -> Model:
    """The network of a preset with random weights, and its size."""
    config = load_config(Path("nowhere"), preset)
    model = config.model
    segmenter = build_segmenter(model.architecture, model.encoder, CLASSES, model.output_stride).eval()
    names, colors = zip(*((f"class {i}", (i, i, i)) for i in range(CLASSES)), strict=True)
    return Model(segmenter, names, colors, config.data.height_width)


def seconds(work: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(model: Model, frame: tuple[int, int]) -> tuple[float, float, float, int]:
    """Frames per second of ONNX Runtime and of PyTorch at their best, the median of ONNX Runtime; and operations."""
    shape = Shape(frame=frame)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = CORES
    session = onnxruntime.InferenceSession(to_onnx(model, shape), options, providers=["CPUExecutionProvider"])
    deployed = Deployed(model.segmenter, model.size, shape)
    frames = np.random.default_rng(0).integers(0, 256, (1, *frame, 3), np.uint8)
    ours, plain = [], []
    with torch.inference_mode():
        tensor = torch.from_numpy(frames)
        deployed(tensor)
        session.run(None, {"frames": frames})
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(ours) < 3:
            plain.append(seconds(lambda: deployed(tensor)))
            ours += [seconds(lambda: session.run(None, {"frames": frames})) for _ in range(3)]
        operations = flops(lambda: deployed(tensor))
    return 1 / min(ours), 1 / min(plain), 1 / statistics.median(ours), operations


def main() -> None:
    """Compare, and hold the preset to its promise."""
    options = parser(__doc__).parse_args()
    torch.set_num_threads(CORES)
    paper, fast = preset_model("endovis18"), preset_model("fast")
    ceiling = matrix_pace()
    rows, medians, by_flops = [], [], []
    for title, model, frame in (
        ("DeepLabV3-ResNet-50, stride 8", paper, paper.size),
        ("preset fast", fast, fast.size),
        ("preset fast", fast, (1080, 1920)),
    ):
        fps, eager, median, operations = compare(model, frame)
        medians.append(median)
        by_flops.append(ceiling / operations)
        rows.append((title, f"{frame[1]}×{frame[0]}", fps, eager, fps / eager))
    head = ("network", "frames", "ONNX Runtime, fps", "eager PyTorch, fps", "ratio", "ONNX Runtime, median")
    cells = (
        (*row, median, f"{allowed:.3g} ({row[2] / allowed:.1%})")
        for row, median, allowed in zip(rows, medians, by_flops, strict=True)
    )
    print(table(cells, (*head, "by FLOPs")))
    print(f"by FLOPs: at {ceiling / 1e9:.3g} GFLOP/s, a matrix product's pace; in brackets what ONNX Runtime reaches")
    promised = rows[1][2]
    print(f"preset fast: {promised:.1f} fps at 256×256 on {CORES} cores (promised {PROMISED:.0f})")
    figures = {"rows": rows, "medians": medians, "by_flops": by_flops, "flops_per_second": ceiling}
    report("export", {"onnxruntime": onnxruntime.__version__, **figures}, options.json)


if __name__ == "__main__":
    main()
