"""How much of the slower of decoding and model is left when all run at once: `python benchmarks/inference.py`.

`suture predict` on one file: masks and overlay out, decoding, drawing, compressing and encoding included, against
decoding alone and against the model alone (frames in memory in, masks in memory out). Suture promises 85 % of the
slower of the two where the model has a device of its own; on a CPU all of them share the cores. What bounds the whole
shows in the cores' time: the printed milliseconds per frame, divided by the cores, are the least that a frame can take.
Where PyAV is not installed, a folder of JPEG frames takes the video's place.
"""

import importlib.metadata
import io
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is imported

import cv2
import numpy as np
import psutil
from common import CUDA, parser, report, synchronize
from latency import write_network
from rich.console import Console

from suture.deploy.film import to_yuv, video_frame, video_writer
from suture.deploy.inputs import find_clips
from suture.deploy.overlap import cores
from suture.deploy.pipeline import Settings
from suture.deploy.predict import predict
from suture.deploy.predictor import Predictor

PROMISED = 0.85
FPS = 25.0
SIZES = "1280x1024", "960x540"
"""Of the frames: those of EndoVis18, and those of CaDIS."""


def scenes(count: int, width: int, height: int) -> Iterator[np.ndarray]:
    """A soft picture with a little noise that moves: it compresses about as well as endoscopic video does."""
    generator = np.random.default_rng(0)
    soft = cv2.resize(
        generator.integers(0, 256, (14, 18, 3), np.uint8), (2 * width, 2 * height), None, 0, 0, cv2.INTER_CUBIC
    )
    noise = [generator.normal(0, 2, (height, width, 3)).astype(np.int8) for _ in range(8)]
    for index in range(count):
        x, y = round(width / 2 * (1 + np.sin(index / 50))), round(height / 2 * (1 + np.cos(index / 70)))
        yield cv2.add(soft[y : y + height, x : x + width], noise[index % 8], dtype=cv2.CV_8U)


def write_input(folder: Path, frames: Iterator[np.ndarray]) -> Path:
    """A video file, or a folder of JPEG frames."""
    try:
        importlib.metadata.version("av")
    except importlib.metadata.PackageNotFoundError:
        path = folder / "frames"
        path.mkdir()
        for index, frame in enumerate(frames):
            cv2.imwrite(str(path / f"{index:06d}.jpg"), frame)
        return path
    path = folder / "video.mp4"
    with video_writer(path, "libx264", FPS) as video:
        for index, frame in enumerate(frames):
            video.add(video_frame(to_yuv(frame), "yuv420p"), index / FPS)
    return path


def busy_seconds() -> float:
    """The time that cores spent on this process and on those it started, as far as they still run."""
    children = (child.cpu_times() for child in psutil.Process().children())
    return time.process_time() + sum(times.user + times.system for times in children)


def decoding(path: Path) -> float:
    """Frames per second of decoding alone."""
    (clip,) = find_clips([path])
    start = time.perf_counter()
    count = sum(shown.pixels is not None for shown in clip.frames(range(len(clip))))
    return count / (time.perf_counter() - start)


def model(predictor: Predictor, frames: list[np.ndarray], count: int, draw: bool = False) -> float:
    """Frames per second of the model alone: from memory to memory, with the copies to the device and back."""
    batch, prepared = len(frames), predictor.prepare(frames)
    waiting: list[Any] = []
    for number in range(3 + count // batch):
        if number == 3:
            synchronize()
            start = time.perf_counter()
        waiting.append(predictor.begin(prepared, None, draw))
        if len(waiting) > 2:
            list(waiting.pop(0))
    for pending in waiting:
        list(pending)
    return count // batch * batch / (time.perf_counter() - start)


def whole(predictor: Predictor, size: str, said: Namespace) -> dict[str, Any]:
    """The parts and the whole, with frames of one size."""
    settings = Settings(said.masks, not said.no_overlay, view=None)
    width, height = (int(side) for side in size.split("x"))
    few = list(scenes(said.batch, width, height))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = write_input(root, scenes(said.frames, width, height))
        quiet = Console(file=io.StringIO())
        predict(predictor, [path], root / "first", settings, batch=said.batch, console=quiet)  # warm
        began = busy_seconds()
        fps = {"decoding alone": decoding(path)}
        busy = {"decoding alone": busy_seconds() - began}
        fps["model alone"] = model(predictor, few, said.frames)
        drawing = model(predictor, few, said.frames, draw=True) if CUDA and settings.overlay else None
        slower = min(fps.values())
        start, began = time.perf_counter(), busy_seconds()
        predict(predictor, [path], root / "out", settings, batch=said.batch, console=quiet)
        took, busy["all at once"] = time.perf_counter() - start, busy_seconds() - began
        written = sum(file.stat().st_size for file in (root / "out").rglob("*") if file.is_file())
    fps["all at once"] = said.frames / took
    kind = "a folder of JPEG frames, as PyAV is not installed here" if path.is_dir() else "an H.264 file"
    print(f"\n{size}, from {kind}; {written / said.frames / 1000:.0f} kB a frame written")
    milliseconds = {name: 1000 * seconds / said.frames for name, seconds in busy.items()}
    for name, value in fps.items():
        cpu = f", {milliseconds[name]:6.1f} ms of a core per frame" if name in milliseconds else ""
        also = f", {drawing:.1f} fps if it draws the overlays too" if drawing and name == "model alone" else ""
        print(f"{name:16s} {value:8.1f} fps{cpu}{also}")
    print(f"{'cores':16s} {busy['all at once'] / took / cores():8.0%} of the time of {cores()}")
    print(f"{'of the slower':16s} {fps['all at once'] / slower:8.0%}", flush=True)
    figures = {"size": size, "fps": fps, "share": fps["all at once"] / slower, "input": kind}
    return figures | {"cpu_ms_per_frame": milliseconds, "drawing_fps": drawing}


def main() -> None:
    """Time the parts and the whole, for each size."""
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="a run folder, a model.safetensors or an ONNX file")
    options.add_argument("--frames", type=int, default=1500 if CUDA else 100, help="of the input [1500, on a CPU 100]")
    options.add_argument("--batch", type=int, default=16 if CUDA else 1)
    options.add_argument("--masks", choices=("png", "video", "none"), default="png")
    options.add_argument("--no-overlay", action="store_true")
    options.add_argument("--sizes", nargs="+", default=list(SIZES), help=f"of the frames [{' '.join(SIZES)}]")
    said = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        network = str(said.model) if said.model else write_network(Path(folder), "cuda" if CUDA else "cpu")
        predictor = Predictor(said.model or folder)
        print(f"{network}; batch {said.batch} on {predictor.device}; {said.frames} frames")
        print(f"masks: {said.masks}, overlay: {not said.no_overlay}; promised: {PROMISED:.0%} of the slower of the two")
        print("where the model has a device of its own")
        rows = [whole(predictor, size, said) for size in said.sizes]
    report("inference", {"rows": rows, "network": network}, said.json)


if __name__ == "__main__":
    main()
