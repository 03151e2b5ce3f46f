"""How much of the slower of decoding and model is left when all run at once: `python benchmarks/inference.py`.

`suture predict` on one file: masks and overlay out, decoding, drawing, compressing and encoding included, against
decoding alone and against the model alone (frames in memory in, masks at their size in memory out: with upload,
resizing and download). Suture promises 85 % of the slower of the two where the model has a device of its own; on a CPU
all of them share the cores. What bounds the whole shows in the cores' time: the printed milliseconds per frame, divided
by the cores, are the least that a frame can take; and in the share of the time in which the GPU computes. A short clip
is timed beside a long one: to begin and to end a clip, the device waits.

The plain way is the same work one by one: a batch is decoded, then predicted, then each of its frames is drawn, written
and encoded. The floor is the bare network: images of its size that lie on the device, nothing else; and what its
operations take at the pace of a matrix product.
"""

import copy
import io
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is imported

import av
import cv2
import numpy as np
import psutil
import torch
from common import CUDA, DEVICE, flops, gpu_seconds, matrix_pace, parser, report, synchronize
from latency import write_network
from rich.console import Console

from suture.models.segmenter import Segmenter
from suture.prediction.clip_files import ClipFiles, PredictedFrame, compare
from suture.prediction.clip_job import ClipJob
from suture.prediction.fast.gpu import Gpu
from suture.prediction.find_clips import find_clips
from suture.prediction.predict import predict
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import Predictor
from suture.prediction.prefetch import cores
from suture.prediction.video_writer import rgb_to_planes, video_frame, video_writer

PROMISED = 0.85
FPS = 25.0
SIZES = "1280x1024", "960x540"
"""Of the frames: those of EndoVis18, and those of CaDIS."""
SHORT = 2000
"""Frames that are made; a longer video shows them again and again."""
ONE_BY_ONE = 320
"""Frames of the plain way."""
BARE_BATCH = 32 if CUDA else 1


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
    """Frames as a video file."""
    path = folder / "video.mp4"
    with video_writer(path, "libx264", FPS) as video:
        for index, frame in enumerate(frames):
            video.add(video_frame(rgb_to_planes(frame), "yuv420p"), index / FPS)
    return path


def repeated(path: Path, times: int) -> Path:
    """The same video, several times on end: packets as they are, nothing is encoded anew."""
    longer = path.with_stem(f"{path.stem}-{times}")
    with av.open(str(path)) as video, av.open(str(longer), "w") as result:
        stream = video.streams.video[0]
        target = result.add_stream_from_template(stream)
        packets = [packet for packet in video.demux(stream) if packet.dts is not None]
        length = round(stream.frames / FPS / stream.time_base)
        for number in range(times):
            for packet in packets:
                again = av.Packet(bytes(packet))
                again.stream, again.time_base, again.is_keyframe = target, packet.time_base, packet.is_keyframe
                again.pts, again.dts = packet.pts + number * length, packet.dts + number * length
                result.mux(again)
    return longer


def busy_seconds() -> float:
    """The time that cores spent on this process and on those it started, as far as they still run."""
    children = (child.cpu_times() for child in psutil.Process().children())
    return time.process_time() + sum(times.user + times.system for times in children)


@contextmanager
def gpu_watched() -> Iterator[list[Any]]:
    """Within, CUDA events are noted down: before and after what a GPU computes of each batch."""
    events: list[Any] = []

    def noted() -> None:
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()

    upload, download = Gpu.upload, Gpu.download

    def uploaded(gpu: Gpu, *given: Any) -> Any:
        there = upload(gpu, *given)
        noted()
        return there

    def downloaded(gpu: Gpu, *given: Any) -> Any:
        noted()
        return download(gpu, *given)

    with mock.patch.object(Gpu, "upload", uploaded), mock.patch.object(Gpu, "download", downloaded):
        yield events


def gpu_busy(events: list[Any]) -> float | None:
    """The share of the time between the first event and the last in which a GPU computed; None where there is none."""
    if not events:
        return None
    computing = sum(start.elapsed_time(end) for start, end in zip(events[::2], events[1::2], strict=True))
    return float(computing / events[0].elapsed_time(events[-1]))


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


def one_by_one(predictor: Predictor, path: Path, out: Path, settings: PredictionSettings, said: Namespace) -> float:
    """Frames per second where nothing is done at the same time, but for the decoder's and the encoder's own threads."""
    (clip,) = find_clips([path])
    count = min(said.frames, ONE_BY_ONE)
    before = None
    start = time.perf_counter()
    with ClipFiles(ClipJob(predictor, clip, out, settings, said.batch).plan) as files:
        for first in range(0, count, said.batch):
            frames = [clip.read(index).pixels for index in range(first, min(first + said.batch, count))]
            for index, (pixels, found) in enumerate(
                zip(frames, predictor.predict(np.stack(frames)), strict=True), first
            ):
                one = files.finish(PredictedFrame(index, clip.frame_name(index), index / FPS, pixels, found.mask))
                if taken := files.add(one):
                    taken.result()
                compare(before, one)
                before = one.thumbnail
    return count / (time.perf_counter() - start)


def bare(predictor: Predictor) -> dict[str, float] | None:
    """Frames per second of the network alone, in bf16 and compiled on a GPU; of an exported file there is none."""
    if not isinstance(predictor.network.module, Segmenter):
        return None
    network = copy.deepcopy(predictor.network.module)
    images = torch.rand(BARE_BATCH, 3, *predictor.network.size, device=DEVICE)
    images = images.contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def work() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=CUDA):
            network(images)

    operations, ceiling = flops(work), matrix_pace()
    torch.backends.cudnn.benchmark = CUDA
    if CUDA:
        network.compile(dynamic=False)
    fps = BARE_BATCH / gpu_seconds(work, 30 if CUDA else 5)
    by_flops = BARE_BATCH * ceiling / operations
    print(f"the bare network: {fps:.1f} fps in batches of {BARE_BATCH}; by FLOPs {by_flops:.1f}", flush=True)
    return {"batch": BARE_BATCH, "fps": fps, "fps_by_flops": by_flops, "flops_per_second": ceiling}


def whole(predictor: Predictor, size: str, said: Namespace) -> dict[str, Any]:
    """The parts and the whole, with frames of one size."""
    settings = PredictionSettings(said.masks, not said.no_overlay, view=None)
    width, height = (int(side) for side in size.split("x"))
    few = list(scenes(said.batch, width, height))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        short = min(said.frames, SHORT)
        path = clip = write_input(root, scenes(short, width, height))
        if said.frames > short:
            path = repeated(clip, said.frames // short)
        quiet = Console(file=io.StringIO())
        predict(predictor, [clip], root / "first", settings, batch=said.batch, console=quiet)  # warm
        began = busy_seconds()
        fps = {"decoding alone": decoding(path)}
        busy = {"decoding alone": busy_seconds() - began}
        fps["model alone"] = model(predictor, few, said.frames)
        drawing = model(predictor, few, said.frames, draw=True) if CUDA and settings.overlay else None
        slower = min(fps.values())
        if path != clip:
            start = time.perf_counter()
            predict(predictor, [clip], root / "short", settings, batch=said.batch, console=quiet)
            fps["a short clip"] = short / (time.perf_counter() - start)
        fps["one by one"] = one_by_one(predictor, clip, root / "one by one", settings, said)
        start, began = time.perf_counter(), busy_seconds()
        with gpu_watched() as events:
            predict(predictor, [path], root / "out", settings, batch=said.batch, console=quiet)
        took, busy["all at once"] = time.perf_counter() - start, busy_seconds() - began
        computing = gpu_busy(events)
        written = sum(file.stat().st_size for file in (root / "out").rglob("*") if file.is_file())
    fps["all at once"] = said.frames / took
    print(f"\n{size}; {written / said.frames / 1000:.0f} kB a frame written")
    milliseconds = {name: 1000 * seconds / said.frames for name, seconds in busy.items()}
    for name, value in fps.items():
        cpu = f", {milliseconds[name]:6.1f} ms of a core per frame" if name in milliseconds else ""
        also = f", {drawing:.1f} fps if it draws the overlays too" if drawing and name == "model alone" else ""
        print(f"{name:16s} {value:8.1f} fps{cpu}{also}")
    print(f"{'cores':16s} {busy['all at once'] / took / cores():8.0%} of the time of {cores()}")
    if computing is not None:
        print(f"{'GPU busy':16s} {computing:8.0%}")
    print(f"{'of the slower':16s} {fps['all at once'] / slower:8.0%}")
    print(f"{'over one by one':16s} {fps['all at once'] / fps['one by one']:8.1f}x", flush=True)
    figures = {"size": size, "fps": fps, "share": fps["all at once"] / slower}
    return figures | {"cpu_ms_per_frame": milliseconds, "drawing_fps": drawing, "gpu_busy": computing}


def main() -> None:
    """Time the parts and the whole, for each size."""
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="a run folder, a model.safetensors or an ONNX file")
    options.add_argument(
        "--frames",
        type=int,
        default=8000 if CUDA else 100,
        help=f"of the input [8000, on a CPU 100]; a multiple of {SHORT:,} if more",
    )
    options.add_argument("--batch", type=int, default=16 if CUDA else 1)
    options.add_argument("--masks", choices=("png", "video", "none"), default="png")
    options.add_argument("--no-overlay", action="store_true")
    options.add_argument("--sizes", nargs="+", default=list(SIZES), help=f"of the frames [{' '.join(SIZES)}]")
    said = options.parse_args()
    if said.frames > SHORT and said.frames % SHORT:
        options.error(f"--frames is {said.frames}, expected at most {SHORT} or a multiple of it")
    with tempfile.TemporaryDirectory() as folder:
        network = str(said.model) if said.model else write_network(Path(folder), "cuda" if CUDA else "cpu")
        predictor = Predictor(said.model or folder)
        print(f"{network}; batch {said.batch} on {predictor.device}; {said.frames} frames")
        print(f"masks: {said.masks}, overlay: {not said.no_overlay}; promised: {PROMISED:.0%} of the slower of the two")
        print("where the model has a device of its own")
        # One for each size: it records a graph for a few kinds of frames only, whole or in planes, drawn over or not.
        rows = [whole(Predictor(said.model or folder), size, said) for size in said.sizes]
        report("inference", {"rows": rows, "network": network}, said.json)
        alone = bare(predictor)
    report("inference", {"rows": rows, "network": network, "bare": alone}, said.json)


if __name__ == "__main__":
    main()
