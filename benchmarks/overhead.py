"""What `suture predict` takes beside decoding, model and encoding: `python benchmarks/overhead.py`.

Frames so small that they cost nothing, and a device that has their masks and overlays ready: what is left is Python,
and the waiting of its threads for its lock. It is measured on all cores, and on one in a process of its own: where more
cores are slower, the lock is fought for.
"""

import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is imported
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/prediction"))

from common import parser, report
from inference import scenes, write_input
from latency import write_network
from predict_files import Here
from rich.console import Console

from suture.prediction.predict import predict
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import Predictor
from suture.prediction.prefetch import cores

WIDTH, HEIGHT, BATCH = 96, 80, 16


def frames_per_second(count: int) -> float:
    """Of the whole way, without a model."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_network(root / "model", "cpu")
        predictor: Any = Predictor(root / "model", "cpu")
        path = write_input(root, scenes(count, WIDTH, HEIGHT))
        predictor.gpu = Here()
        first = predictor.prepare(list(scenes(BATCH, WIDTH, HEIGHT)))
        measured = predictor._measure(first.frames, first.view, True)
        predictor._graph = lambda *_: measured
        for name in ("warm", "timed"):
            start = time.perf_counter()
            predict(
                predictor,
                [path],
                root / name,
                PredictionSettings(view=None),
                batch=BATCH,
                console=Console(file=io.StringIO()),
            )
        return count / (time.perf_counter() - start)


def main() -> None:
    """On all cores, then on one."""
    options = parser(__doc__)
    options.add_argument("--frames", type=int, default=1000)
    options.add_argument("--one-core", action="store_true", help="print the figure of one core only")
    said = options.parse_args()
    if said.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(frames_per_second(said.frames))
        return
    several = frames_per_second(said.frames)
    again = [sys.executable, __file__, "--frames", str(said.frames), "--one-core"]
    one = float(subprocess.run(again, check=True, capture_output=True, text=True).stdout.split()[-1])
    print(f"{said.frames} frames of {WIDTH}×{HEIGHT} in batches of {BATCH}, without a model, frames per second:")
    print(f"{cores()} cores {several:8.0f}\n1 core  {one:8.0f}\nratio   {several / one:8.1f}x")
    report("overhead", {"cores": cores(), "fps": several, "fps_one_core": one}, said.json)


if __name__ == "__main__":
    main()
