"""What exporting brings on a CPU: `python benchmarks/export.py`.

Runs the exported file in ONNX Runtime and the same network in eager PyTorch, one frame at a time on two cores, uint8
frame in to uint8 mask out: the paper's network at its training size, and the preset `fast`, which promises 25 frames
per second at 256×256. Weights are random, as they make no difference to the time. Each figure is the best of several
runs, in turn, so that other work on the machine disturbs as little as it can; ONNX Runtime's median is beside, and what
`suture.Predictor` makes of the same file. The floor is what the network's operations take at the pace of a matrix
product, in the same run.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from common import flops, matrix_pace, parser, report, table

from suture.deployment.export import DeployedSegmenter, ExportFormat, to_onnx
from suture.models.model import Model
from suture.models.segmenter import build_segmenter
from suture.prediction.predictor import Predictor
from suture.training.config import load_config

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


def compare(model: Model, frame: tuple[int, int], ceiling: float) -> dict[str, float]:
    """Frames per second: of ONNX Runtime, eager PyTorch and our predictor at their best, of ONNX Runtime at its median,
    and what the network's operations allow at the pace of the `ceiling`."""
    shape = ExportFormat(frame=frame)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = CORES
    deployed = DeployedSegmenter(model.segmenter, model.size, shape)
    frames = np.random.default_rng(0).integers(0, 256, (1, *frame, 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        file = Path(folder) / "model.onnx"
        file.write_bytes(to_onnx(model, shape))
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        predictor = Predictor(file, "cpu")
        tensor = torch.from_numpy(frames)
        ways: dict[str, Callable[[], Any]] = {
            "eager": lambda: deployed(tensor),
            "onnx": lambda: session.run(None, {"frames": frames}),
            "predictor": lambda: predictor(frames[0]),
        }
        taken: dict[str, list[float]] = {way: [] for way in ways}
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(taken["onnx"]) < 3:
            for way, work in ways.items():
                work()  # the threads of the one before have gone to sleep meanwhile
                taken[way] += [seconds(work) for _ in range(1 if way == "eager" else 3)]
        allowed = ceiling / flops(ways["eager"])
    best = {way: 1 / min(times) for way, times in taken.items()}
    return best | {"onnx_median": 1 / statistics.median(taken["onnx"]), "by_flops": allowed}


def main() -> None:
    """Compare, and hold the preset to its promise."""
    options = parser(__doc__).parse_args()
    torch.set_num_threads(CORES)
    paper, fast = preset_model("endovis18"), preset_model("fast")
    ceiling = matrix_pace()
    rows = [
        {"network": title, "frames": f"{frame[1]}×{frame[0]}"} | compare(model, frame, ceiling)
        for title, model, frame in (
            ("DeepLabV3-ResNet-50, stride 8", paper, paper.size),
            ("preset fast", fast, fast.size),
            ("preset fast", fast, (1080, 1920)),
        )
    ]
    print(table((row.values() for row in rows), rows[0].keys()))
    print(f"by FLOPs: at {ceiling / 1e9:.3g} GFLOP/s, a matrix product's pace")
    print(f"preset fast: {rows[1]['onnx']:.1f} fps at 256×256 on {CORES} cores (promised {PROMISED:.0f})")
    report("export", {"onnxruntime": onnxruntime.__version__, "rows": rows, "flops_per_second": ceiling}, options.json)


if __name__ == "__main__":
    main()
