"""The demo's training on the CPU, against the plain version of itself: `python benchmarks/cpu.py`.

The same steps, with the same frames and draws. The plain version decodes its frames whenever it needs them, hands them
on whole, augments them one by one, lets the networks compute in torch's default memory format with torch's convolutions
alone, and takes the contrast from the similarities of all pixel pairs. Then one of these after the other is done
Suture's way: what was gained by what. Steps in bfloat16 come last, where the processor computes in it. The floor is
what the operations of our steps take at the pace of a matrix product in fp32, in the same run.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is imported

import numpy as np
import torch
from common import matrix_pace, parser, report, table
from contrast_loss import pairwise_contrast
from rich.console import Console
from stages import pace, quiet, step_flops
from torch import Tensor

from suture.data.dataset import Dataset
from suture.data.sampling.augment import (
    Layer,
    Patches,
    ViewDraw,
    outline,
    recolor,
    render_images,
    render_labels,
    render_nearest,
    resample,
)
from suture.data.store import Fit, FrameStore
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.methods import pgvcl, stitch, strong, supervised
from suture.methods.pgvcl import Contrast, ContrastBatch
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import Stage, StageContext, Total
from suture.models import convolutions, segmenter
from suture.training.config import load_config
from suture.training.distributed import Processes
from suture.training.run_folder import Run
from suture.training.run_stages import make_context, starting_segmenter
from suture.training.session import Session
from suture.training.train import open_data

PROMISED = 2.0
STEPS = {"supervised": 480, "contrast": 60, "stitch": 240}
"""Of `make demo`: a supervised run, one of PGV-CL, whose other two stages are supervised, and one of stitch."""
STAGES = {"pgvcl": {"pretrain": "supervised", "contrast": "contrast"}, "stitch": {"train": "stitch"}}
"""The kind of each stage that is timed, by the method that it is taken from."""
RENDERERS = {
    supervised: (render_images, render_labels),
    pgvcl: (render_images, render_labels),
    stitch: (resample, render_labels),
    strong: (resample, render_labels, render_nearest, recolor),
}
"""What augments a batch, by the module that calls it; the labelled samples of stitch are those of `strong`."""
LADDER = (
    *("plain", "frame store", "cut and augmented as a batch", "channels last", "fast depthwise convolution"),
    *("taps that meet nothing left out", "class sums", "bfloat16"),
)
"""Each of them with all before it."""


def has_bfloat16() -> bool:
    """Whether the processor has instructions for it, so that it is not merely emulated."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    return any(flag in flags.split() for flag in ("amx_bf16", "avx512_bf16", "bf16"))


def whole(array: np.ndarray, draw: ViewDraw, scene: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In place of `suture.data.sampling.augment.cut`: the frame as it is."""
    box, slant = outline(draw, scene, array.shape)
    return array, box.astype(np.float32), slant.astype(np.float32)


def one_by_one(render: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Render samples one after the other, as the usual transforms do."""

    def plain(batch: Any, *others: Any) -> Tensor:
        count = len(batch.flip if isinstance(batch, Patches) else batch.sizes if isinstance(batch, Layer) else batch)
        return torch.cat([render(*(alone(one, i) for one in (batch, *others))) for i in range(count)])

    return plain


def alone(batch: Any, i: int) -> Any:
    """One sample of patches, a layer or a tensor; what is said of all of them, as it is."""
    if isinstance(batch, Patches):
        return Patches(*(alone(part, i) for part in batch))
    if isinstance(batch, Layer):
        ends = batch.sizes.prod(1).cumsum(0)
        height, width = batch.sizes[i].tolist()
        pixels = batch.pixels[ends[i] - height * width : ends[i]]
        return Layer(pixels, batch.sizes[i : i + 1], batch.boxes[i : i + 1], alone(batch.slants, i), height, width)
    return batch[i : i + 1] if isinstance(batch, Tensor) else batch


def pairs(stage: Contrast, batch: ContrastBatch) -> Total:
    """In place of `Contrast.loss`: the similarities of all pixel pairs, with the same keys."""
    queries, per_query = batch.own_numbers.shape
    keys, labels = stage.momentum(batch.keys.images), batch.keys.labels
    own = torch.arange(queries * per_query).view(queries, per_query)
    order = torch.cat([own, batch.others], 1)
    query = stage.online(batch.queries.images)
    return Total(*pairwise_contrast(query, batch.queries.labels, keys[order], labels[order]))


class Decoded:
    """In place of `FrameStore.open`: frames are decoded whenever they are needed."""

    def __init__(self, dataset: Dataset, _: Any, __: Any, size: int, *___: Any, **____: Any) -> None:
        self.dataset = dataset
        self.fits = {video.id: Fit.of(video, size) for video in dataset}

    def frame(self, video: str, index: int) -> np.ndarray:
        return self.fits[video].frame(self.dataset[video].read(index), index)

    def labels(self, video: str, index: int) -> np.ndarray:
        return self.fits[video].labels(self.dataset.read_mask(self.dataset[video], index), index)

    def inside(self, video: str) -> np.ndarray:
        return self.fits[video].inside()


@contextmanager
def plainly(reached: int) -> Iterator[None]:
    """What is not reached yet on the ladder, the plain way."""
    with ExitStack() as held:
        if reached < LADDER.index("frame store"):
            held.enter_context(mock.patch.object(FrameStore, "open", Decoded))
        if reached < LADDER.index("cut and augmented as a batch"):
            held.enter_context(mock.patch("suture.data.sampling.augment.cut", whole))
            for module, renders in RENDERERS.items():
                for render in renders:
                    held.enter_context(mock.patch.object(module, render.__name__, one_by_one(render)))
        if reached < LADDER.index("fast depthwise convolution"):
            torchs = partial(convolutions.replace_convolutions, depthwise=False)
            held.enter_context(mock.patch.object(segmenter, "replace_convolutions", torchs))
        if reached < LADDER.index("taps that meet nothing left out"):
            every_tap = lambda layer, _: (layer.weight, layer.padding)  # noqa: E731
            held.enter_context(mock.patch.object(convolutions.AtrousConv, "inner_taps", every_tap))
        if reached < LADDER.index("class sums"):
            held.enter_context(mock.patch.object(Contrast, "loss", pairs))
        yield


class Demo:
    """The demo's data, and the jobs of its stages."""

    def __init__(self, folder: Path, frames: int) -> None:
        self.folder = folder
        if not (folder / "data").exists():
            write_synthetic(folder / "data", SyntheticSettings(frames=frames), workers=2)

    def job(self, method: str, reached: int, steps: int) -> tuple[StageContext, dict[str, Stage]]:
        """The job and a method's stages by their kind, with as many steps."""
        kinds = STAGES[method]
        said = [
            f"method={method}",
            "data.labelling.every=10",  # as in the Makefile
            *(f"method.{stage}.steps={steps}" for stage in kinds),
            f"data.cache={self.folder / 'cache'}",
            f"compute.precision={'bf16' if reached == LADDER.index('bfloat16') else '32'}",
            "compute.accelerator=cpu",
            "compute.workers=0",
        ]
        config = load_config(self.folder / "data", preset="demo", overrides=said)
        opened, processes = open_data(config), Processes.start(config.compute)
        stages = list(config.build_method().stages())
        network = starting_segmenter(config, len(opened.dataset.classes), processes)
        if reached < LADDER.index("channels last"):
            network.to(memory_format=torch.contiguous_format)
        run, quiet = Run(self.folder / "run"), Console(quiet=True)
        job = make_context(Session(run, config, opened, {}, processes, quiet, network, stages))
        for labels in stages:
            if isinstance(labels, PseudoLabels):
                labels.run(job)
                labels.load(job)
        trained = {kinds[stage.name]: stage for stage in stages if isinstance(stage, Stage) and stage.name in kinds}
        return job, trained


def measure(demo: Demo, options: argparse.Namespace, reached: int) -> dict[str, float]:
    """Milliseconds of a step of every kind."""
    found = {}
    with plainly(reached):
        for method in STAGES:
            job, stages = demo.job(method, reached, options.warmup + options.steps)
            for kind, stage in stages.items():
                found[kind] = pace(stage, job, options.warmup).step_ms
    return found


def floor(demo: Demo) -> dict[str, float]:
    """Milliseconds that the operations of our steps take at the pace of a matrix product."""
    pace_of_products, operations = matrix_pace(), {}
    for method in STAGES:
        job, stages = demo.job(method, LADDER.index("class sums"), 1)
        operations |= {kind: step_flops(stage, job) for kind, stage in stages.items()}
    return {kind: 1000 * count / pace_of_products for kind, count in operations.items()}


def row_of(way: str, ms: dict[str, float]) -> dict[str, Any]:
    """What a way takes for a step of every kind, and for all of the demo's."""
    return {"way": way, **ms, "seconds": sum(ms[kind] * STEPS[kind] for kind in STEPS) / 1000}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--data", type=Path, help="folder for the generated videos; they are kept there")
    options.add_argument("--frames", type=int, default=60, help="of each video, as the demo's")
    options.add_argument("--warmup", type=int, default=2)
    options.add_argument("--steps", type=int, default=6, help="timed steps")
    options.add_argument("--rounds", type=int, default=3, help="the fastest of so many rounds counts")
    options.add_argument("--busy", action="store_true", help="count CPU seconds: others use this machine too")
    chosen = options.parse_args()
    quiet()
    reached = range(len(LADDER) if has_bfloat16() else len(LADDER) - 1)
    clock = time.process_time if chosen.busy else time.perf_counter
    with tempfile.TemporaryDirectory() as folder, mock.patch("time.perf_counter", clock):
        demo = Demo(chosen.data or Path(folder), chosen.frames)
        lowest = row_of("by FLOPs", floor(demo))
        rounds = [[measure(demo, chosen, step) for step in reached] for _ in range(chosen.rounds)]
    rows = [
        row_of(LADDER[step], {kind: min(found[step][kind] for found in rounds) for kind in STEPS}) for step in reached
    ]
    before = [rows[0], *rows]
    cells = [
        [*row.values(), f"{last['seconds'] / row['seconds']:.2f}x", f"{rows[0]['seconds'] / row['seconds']:.2f}x"]
        for row, last in zip(rows, before, strict=False)
    ]
    cells.append([*lowest.values(), None, f"{rows[0]['seconds'] / lowest['seconds']:.2f}x"])
    print(table(cells, ("way", *(f"{kind} ms" for kind in STEPS), "demo s", "gained", "in all")))
    if not has_bfloat16():
        print("this processor has no bfloat16")
    ours = rows[LADDER.index("class sums")]
    print(f"ours against plain: {rows[0]['seconds'] / ours['seconds']:.2f}x (promised {PROMISED:.0f}x)")
    print(f"ours: {lowest['seconds'] / ours['seconds']:.1%} of the pace that the operations would allow")
    report("cpu", {"rows": rows, "floor": lowest, "steps": STEPS, "bfloat16": has_bfloat16()}, chosen.json)


if __name__ == "__main__":
    main()
