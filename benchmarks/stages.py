"""What the benchmarks of training share: generated footage on disk, the job of a run on it, and the pace of a stage."""

import gc
import shutil
import tempfile
import time
from argparse import BooleanOptionalAction
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from common import CUDA, DEVICE, flops, synchronize

from suture.core.workers import cores
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.images import MaskFile
from suture.data.labelling import Labelling
from suture.data.sampling.frames import TrainingFrames
from suture.data.store import FrameStore, storage_size
from suture.methods.pseudo_labels import load_pseudo_labels
from suture.methods.stage import Stage, StageContext
from suture.models.segmenter import Segmenter, build_segmenter
from suture.training.callbacks import Curve
from suture.training.config import ComputeSettings
from suture.training.distributed import Processes
from suture.training.loop import Callback, DeviceBatches, TrainingLoop

CLASSES = 12
SHOT = 30
"""Frames of a shot."""
EVERY = 20
"""Of the labelled frames, as EndoVis18 at 5.4 %."""


@dataclass(frozen=True)
class Footage:
    """Generated frames on disk: EndoVis18's numbers by default."""

    folder: Path
    frames: int = 2235
    videos: int = 15
    width: int = 1280
    height: int = 1024

    @property
    def lengths(self) -> list[int]:
        return [self.frames // self.videos + (v < self.frames % self.videos) for v in range(self.videos)]

    def image(self, video: int, index: int) -> Path:
        return self.folder / "frames" / f"v{video:02d}" / f"{index:05d}.png"

    def mask(self, video: int, index: int) -> Path:
        return self.folder / "masks" / f"v{video:02d}__frame_{index:06d}.png"

    def dataset(self) -> Dataset:
        """Its index, made without looking at the disk; labelled frames have masks."""
        names = tuple(f"class {c}" for c in range(CLASSES))
        colors = tuple((20 * c, 255 - 20 * c, 10 * c) for c in range(CLASSES))
        table = ClassTable(names, colors, {c: c for c in range(CLASSES)})
        videos = [
            Video(
                f"v{v:02d}",
                f"case {v:02d}",
                [
                    Frame(i, i, self.image(v, i), MaskFile(self.mask(v, i)) if i % EVERY == 0 else None)
                    for i in range(length)
                ],
                "train",
            )
            for v, length in enumerate(self.lengths)
        ]
        return Dataset("generated", self.folder, table, videos)

    @property
    def labelling(self) -> Labelling:
        return Labelling({f"v{v:02d}": range(0, length, EVERY) for v, length in enumerate(self.lengths)})

    def make(self) -> "Footage":
        """Write what is not there yet, on all cores."""
        done = self.folder / "done"
        if done.exists():
            return self
        shutil.rmtree(self.folder, ignore_errors=True)
        for v in range(self.videos):
            (self.folder / "frames" / f"v{v:02d}").mkdir(parents=True)
        (self.folder / "masks").mkdir()
        began = time.perf_counter()
        chunks = [(self, v, first) for v, length in enumerate(self.lengths) for first in range(0, length, 32)]
        with ProcessPoolExecutor(cores(), get_context("fork")) as pool:
            written = sum(pool.map(_write_chunk, *zip(*chunks, strict=True)))
        done.touch()
        print(
            f"{self.frames} frames of {self.width}×{self.height} in {self.videos} videos written as PNG in "
            f"{time.perf_counter() - began:.0f} s ({written / self.frames / 1e6:.1f} MB each)",
            flush=True,
        )
        return self

    def scene(self, video: int) -> tuple[np.ndarray, np.ndarray]:
        """What a video's camera moves over: soft shapes and their classes, a quarter larger than a frame."""
        rng = np.random.default_rng(video)
        size = (self.width * 5 // 4, self.height * 5 // 4)
        soft = cv2.resize(rng.integers(0, 256, (12, 15, 3), np.uint8), size, interpolation=cv2.INTER_CUBIC)
        labels = cv2.resize(rng.integers(0, CLASSES, (6, 8), np.uint8), size, interpolation=cv2.INTER_NEAREST)
        return soft, labels

    def place(self, index: int) -> tuple[slice, slice]:
        """Where in its scene a frame lies: the camera goes round."""
        x = int((0.5 + 0.5 * np.sin(index / 17)) * (self.width // 4))
        y = int((0.5 + 0.5 * np.cos(index / 23)) * (self.height // 4))
        return slice(y, y + self.height), slice(x, x + self.width)

    def pseudo_labels(self, run: Path, size: tuple[int, int]) -> Path:
        """The files that a run's pseudo-label stage leaves, without its segmenter."""
        folder = run / "pseudo"
        folder.mkdir(parents=True, exist_ok=True)
        for v, length in enumerate(self.lengths):
            labels = self.scene(v)[1]
            unlabelled = [i for i in range(length) if i % EVERY]
            small = [cv2.resize(labels[self.place(i)], size[::-1], interpolation=cv2.INTER_NEAREST) for i in unlabelled]
            np.save(folder / f"v{v:02d}.labels.npy", np.stack(small))
            np.save(folder / f"v{v:02d}.confidence.npy", np.full((len(small), *size), 200, np.uint8))
        return folder


def _write_chunk(footage: Footage, video: int, first: int) -> int:
    cv2.setNumThreads(1)
    soft, labels = footage.scene(video)
    rng = np.random.default_rng([video, first])
    grain = rng.integers(0, 6, (footage.height + 64, footage.width + 64, 3), np.uint8)
    written = 0
    for index in range(first, min(first + 32, footage.lengths[video])):
        place = footage.place(index)
        x, y = rng.integers(0, 64, 2)
        noisy = cv2.add(soft[place], grain[y : y + footage.height, x : x + footage.width])
        _, data = cv2.imencode(".png", noisy, [cv2.IMWRITE_PNG_COMPRESSION, 1])
        footage.image(video, index).write_bytes(data.tobytes())
        written += len(data)
        if index % EVERY == 0:
            cv2.imwrite(str(footage.mask(video, index)), labels[place])
    return written


def footage_options(parser: Any) -> None:
    """How much footage, and where it is kept for the next benchmark."""
    parser.add_argument("--frames", type=int, default=2235 if CUDA else 60)
    parser.add_argument("--videos", type=int, default=15 if CUDA else 5)
    parser.add_argument("--native", type=int, nargs=2, default=(1280, 1024) if CUDA else (160, 128), metavar=("W", "H"))
    parser.add_argument("--size", type=int, default=480 if CUDA else 64, help="training size")
    parser.add_argument("--data", type=Path, help="folder for the generated footage; it is kept there")
    parser.add_argument("--architecture", default="deeplabv3")
    parser.add_argument("--encoder", default="resnet50" if CUDA else "tu-test_resnet")
    parser.add_argument("--workers", type=int, default=min(8, cores()) if CUDA else 0)
    parser.add_argument("--warmup", type=int, default=15 if CUDA else 2, help="steps before the clock starts")
    parser.add_argument("--compile", action=BooleanOptionalAction, default=CUDA, help="as in runs of full length")


class Bench:
    """Footage in its store, from which jobs for stages are made."""

    def __init__(self, options: Any, smallest_crop: float = 0.3) -> None:
        quiet()
        self.options = options
        self.size = (options.size, options.size)
        name = f"suture-{options.frames}x{options.native[0]}x{options.native[1]}"
        folder = options.data or Path(tempfile.gettempdir()) / name
        self.footage = Footage(folder, options.frames, options.videos, *options.native).make()
        dataset, labelling = self.footage.dataset(), self.footage.labelling
        began = time.perf_counter()
        store = FrameStore.open(
            dataset,
            {video.id: video.usable for video in dataset.videos},
            {video.id: labelling[video.id] for video in dataset.videos},
            storage_size(options.size, smallest_crop),
            cache=folder / "cache",
            progress=False,
        )
        print(f"frame store opened in {time.perf_counter() - began:.1f} s, {store.nbytes / 1e9:.2f} GB", flush=True)
        self.frames = TrainingFrames(dataset, labelling, store)
        load_pseudo_labels(self.footage.pseudo_labels(folder / "run", self.size), self.frames)
        self.folder = folder

    def segmenter(self) -> Segmenter:
        torch.manual_seed(0)
        made = build_segmenter(self.options.architecture, self.options.encoder, CLASSES)
        return made.to(memory_format=torch.channels_last)

    def job(self, precision: str = "auto", **changes: Any) -> StageContext:
        """Build what a run gives its stages."""
        compute = ComputeSettings(precision=precision, workers=self.options.workers)
        processes = Processes.start(compute)
        offset = np.cumsum([0, *(-(-length // SHOT) for length in self.footage.lengths)])
        shots = [int(offset[v]) + i // SHOT for v, length in enumerate(self.footage.lengths) for i in range(length)]
        made = StageContext(
            frames=self.frames,
            segmenter=self.segmenter(),
            size=self.size,
            seed=0,
            shots=shots,
            folder=self.folder / "run",
            device=DEVICE,
            autocast=processes.autocast(compute),
            workers=self.options.workers,
            compile=self.options.compile,
            capture=CUDA,
        )
        return replace(made, **changes)


@dataclass(frozen=True)
class Pace:
    """How fast a stage went."""

    frames_per_second: float
    step_ms: float
    steps: int
    """Timed ones."""
    first_seconds: float
    """From the first call to the end of the first step: the loader's start, compiling, recording."""
    start_seconds: float
    """From the first call to the first timed step: the same, and the rest of the warm-up."""
    loss: float
    peak_bytes: int | None
    reserved_bytes: int | None
    captured: bool


class Stopwatch(Callback):
    """Times all steps after the first ones together; with `patience`, only as many as begin within so many seconds."""

    def __init__(self, warmup: int, patience: float | None = None) -> None:
        self.warmup = warmup
        self.patience = patience
        self.steps = 0
        self.start = time.perf_counter()
        self.first = self.began = self.ended = 0.0

    def on_step_end(self, loop: TrainingLoop) -> None:
        step, stage = loop.step, loop.stage
        if step not in (1, self.warmup, stage.total_steps) and self.patience is None:
            return
        synchronize()
        now = time.perf_counter()
        if step == 1:
            # Said at once: where a limit of time ends a benchmark, it is known how far it came.
            self.first = now
            print(f"the first step of {stage.name} is done after {now - self.start:.1f} s", flush=True)
        if step == self.warmup:
            self.began = now
        elif step > self.warmup:
            self.ended, self.steps = now, step - self.warmup
            loop.should_stop = self.patience is not None and now - self.began >= self.patience


class Again:
    """The same batch again and again, in place of a loader."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.batch


def drawn(stage: Stage) -> Any:
    """The first batch of a stage as the loader gives it, moved to the device."""
    workers, stage.context.workers = stage.context.workers, 0
    batch = next(iter(stage.loader(0)))
    stage.context.workers = workers
    return next(iter(DeviceBatches([batch], DEVICE)))


def pace(
    stage: Stage,
    job: StageContext,
    warmup: int,
    resident: bool = False,
    patience: float | None = None,
) -> Pace:
    """Train the stage as a run does and time its steps.

    Where it is `resident`, one batch that already sits on the device takes the loader's place: drawn, and rendered at
    every step. After `patience` seconds no further step is timed.
    """
    stage.begin(job)
    stage.to(DEVICE)
    if resident:
        batch = drawn(stage)
        stage.loader = lambda first: Again(batch)  # type: ignore[assignment, method-assign, return-value]
    if CUDA:
        synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    watch = Stopwatch(warmup, patience)
    with tempfile.TemporaryDirectory() as folder:
        curve = Curve(Path(folder) / "metrics.csv", 10, Path(folder) / "last.ckpt")
        watch.start = time.perf_counter()
        TrainingLoop(stage, [curve, watch]).run()
    took = watch.ended - watch.began
    recordings = getattr(getattr(stage, "captured", None), "recordings", None)
    return Pace(
        frames_per_second=watch.steps * stage.settings.batch / took,
        step_ms=took / watch.steps * 1000,
        steps=watch.steps,
        first_seconds=watch.first - watch.start,
        start_seconds=watch.began - watch.start,
        loss=float(stage.last_loss),
        peak_bytes=torch.cuda.max_memory_allocated() if CUDA else None,
        reserved_bytes=torch.cuda.max_memory_reserved() if CUDA else None,
        captured=bool(recordings),
    )


def step_flops(stage: Stage, job: StageContext) -> int:
    """Operations of a step, forward and backward."""
    stage.begin(job)
    stage.to(DEVICE)
    batch = stage.render(drawn(stage))

    def step() -> None:
        with torch.autocast(DEVICE.type, job.autocast or torch.bfloat16, enabled=job.autocast is not None):
            total = stage.loss(batch)
        (total.loss / total.weight).backward()

    return flops(step)


def plain_pace(bench: Bench, stage: Stage, patience: float) -> Pace:
    """The pace the plain way: fp32 in the default layout, kernel by kernel; as many steps as there is time for."""
    job = bench.job("32", capture=False, compile=False)
    # Channels-last is a layout for tensor cores: in plain fp32, cuDNN's kernels for it are the slow ones.
    job.segmenter.to(memory_format=torch.contiguous_format)
    with full_float32(), tidy():
        return pace(stage, job, 1, patience=patience)


def loader_pace(stage: Stage, job: StageContext, batches: int) -> float:
    """Frames (queries) per second that the loader alone gives, after what its workers had prefetched."""
    stage.begin(job)
    source = iter(stage.loader(0))
    skipped = 4 * max(1, job.workers)
    for _ in range(skipped):
        next(source)
    start = time.perf_counter()
    for _ in range(batches):
        next(source)
    return batches * stage.settings.batch / stage.settings.accumulate / (time.perf_counter() - start)


@contextmanager
def tidy() -> Iterator[None]:
    """Give back the memory of a stage that is done."""
    try:
        yield
    finally:
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()


@contextmanager
def full_float32() -> Iterator[None]:
    """Plain fp32: no TF32 anywhere."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def quiet() -> None:
    """Use TF32 for fp32 numbers, as a run does."""
    if CUDA:
        torch.set_float32_matmul_precision("high")
