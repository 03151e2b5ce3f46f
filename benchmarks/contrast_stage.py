"""The contrast stage, whole steps with loading from disk: `python benchmarks/contrast_stage.py`.

P1N4 (a sample, a frame of the same shot and four of other videos for every query) on generated footage of EndoVis18's
size, trained by the code that a run uses:

- `shared`, `bank`, `own`: our stage with its three ways to other-video keys;
- `paper`: the paper's way, batches of 4, each query with keys of its own, the loss from all pixel pairs, plain fp32 in
  the default layout, no graph;
- `12gb`: the stage of the preset `endovis18-12gb` as it stands there, in a process that may take no more than a card of
  12 GB has free;
- `preset`: that of the presets `endovis18` and `cadis`, in such a process.

Each of ours is timed loading from disk and on a drawn batch that already sits on the device. The floor is what the bare
networks take for the same frames, in the same run and as CUDA graphs too, and what their operations take at the pace
of a matrix product.
Modes come first, in the order given, and figures are written after each; then the floor, the loader alone and a
checkpoint. What each of them took is said and written too.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from common import CUDA, DEVICE, captured, flops, gpu_seconds, matrix_pace, parser, report, table
from contrast_loss import pairwise_contrast
from stages import Bench, Pace, footage_options, loader_pace, pace, plain_pace, tidy

from suture.data.sampling.keys import KeySettings
from suture.methods.pgvcl import Contrast, ContrastBatch, ContrastSettings
from suture.methods.stage import Total
from suture.training.config import load_config

PROMISED = {"shared": 180.0, "bank": 200.0}
PROMISED_LOADING, PROMISED_MEMORY = 0.95, 24e9
PAPER = 12.4
"""Query frames per second of the paper, on two Titan Xp."""
PAPER_BATCH = 4
MODES = ("shared", "bank", "own", "12gb", "preset", "paper")
PRESETS = {"12gb": "endovis18-12gb", "preset": "endovis18"}
"""Modes whose stage is that of a preset, measured as if on a small card."""
SMALL_CARD = 11 * 2**30
"""Bytes of a 12 GB card for tensors: the CUDA context, which the cap does not count, and the screen take the rest."""


class PairwiseContrast(Contrast):
    """The paper's way: the similarities of all pixel pairs."""

    def loss(self, batch: ContrastBatch) -> Total:
        queries, per_query = batch.own_numbers.shape
        keys, labels = self.momentum(batch.keys.images), batch.keys.labels
        own = queries * per_query
        # Each query's own keys, then those that were drawn for it from other videos.
        order = torch.cat([torch.arange(own, device=keys.device).view(queries, per_query), batch.others], 1)
        return Total(
            *pairwise_contrast(self.online(batch.queries.images), batch.queries.labels, keys[order], labels[order])
        )


def contrast(options: argparse.Namespace, mode: str, steps: int) -> Contrast:
    """The stage of a mode."""
    if mode in PRESETS:
        stated = load_config(Path(), PRESETS[mode], [f"method.contrast.steps={steps}"])
        return Contrast("contrast", ContrastSettings(**stated.method["contrast"]))
    settings = ContrastSettings(
        steps=steps,
        epochs=None,
        batch=min(PAPER_BATCH, options.batch) if mode == "paper" else options.batch,
        keys=KeySettings(mode="paper" if mode == "own" else mode),
    )
    return (PairwiseContrast if mode == "paper" else Contrast)("contrast", settings)


def train(bench: Bench, mode: str, steps: int, resident: bool = False) -> Pace:
    """The pace of one of our modes."""
    warmup = bench.options.warmup
    job = bench.job()
    with tidy():
        return pace(contrast(bench.options, mode, warmup + steps), job, warmup, resident)


def train_as_the_paper(bench: Bench) -> Pace:
    """The pace of the paper's way: after one step of warm-up, as many steps as there is time for."""
    options = bench.options
    return plain_pace(bench, contrast(options, "paper", 1 + options.paper_steps), options.paper_seconds)


@contextmanager
def small_card() -> Iterator[None]:
    """As if the device had no more memory than a card of 12 GB."""
    if CUDA:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, SMALL_CARD / total))
    try:
        yield
    finally:
        if CUDA:
            torch.cuda.set_per_process_memory_fraction(1.0)


def floor(bench: Bench) -> dict[str, Any]:
    """What the bare networks take: one query forward and backward, one key forward; and their operations."""
    options = bench.options
    stage = contrast(options, "shared", 1)
    job = bench.job()
    stage.begin(job)
    stage.to(DEVICE).train()
    images = torch.rand(options.batch, 3, *bench.size, device=DEVICE)

    def query() -> None:
        with torch.autocast(DEVICE.type, job.autocast or torch.bfloat16, enabled=job.autocast is not None):
            loss = stage.online(images).mean()
        loss.backward()
        stage.zero_grad(set_to_none=True)

    def key() -> None:
        with torch.autocast(DEVICE.type, job.autocast or torch.bfloat16, enabled=job.autocast is not None):
            stage.momentum(images)

    torch.backends.cudnn.benchmark = CUDA
    repeats = 10 if CUDA else 2
    return {
        "query_seconds": gpu_seconds(captured(query), repeats) / options.batch,
        "key_seconds": gpu_seconds(captured(key), repeats) / options.batch,
        "query_flops": flops(query) / options.batch,
        "key_flops": flops(key) / options.batch,
        "flops_per_second": matrix_pace(),
        "recorded": CUDA,
    }


def checkpoint_seconds(bench: Bench) -> float:
    """What one checkpoint costs: a run writes one every 200 steps."""
    stage = contrast(bench.options, "shared", 1)
    job = bench.job(capture=False, compile=False)
    stage.begin(job)
    stage.to(DEVICE)
    state = {"state_dict": stage.state_dict(), "optimizer": [p.clone() for p in stage.online.parameters()]}
    start = time.perf_counter()
    torch.save(state, bench.folder / "checkpoint")
    took = time.perf_counter() - start
    (bench.folder / "checkpoint").unlink()
    return took


@contextmanager
def clock(took: dict[str, float], name: str) -> Iterator[None]:
    """Note how long a part takes; that it begins is said, so that one that never ends has a name."""
    print(f"{name} …", flush=True)
    start = time.perf_counter()
    yield
    took[name] = time.perf_counter() - start


def measure(bench: Bench, mode: str, row: dict[str, Any]) -> None:
    """Fill the row of a mode."""
    steps, resident_steps = bench.options.steps, bench.options.resident_steps
    if mode == "paper":
        row["loaded"] = asdict(train_as_the_paper(bench))
    elif mode in PRESETS:
        row["accumulate"] = contrast(bench.options, mode, steps).settings.accumulate
        with small_card():
            row["loaded"] = asdict(train(bench, mode, steps))
    else:
        row["loaded"] = asdict(train(bench, mode, steps))
        if resident_steps:
            row["drawn"] = asdict(train(bench, mode, resident_steps, resident=True))


def main() -> None:
    options = parser(__doc__)
    footage_options(options)
    options.add_argument("--batch", type=int, default=16 if CUDA else 4)
    options.add_argument("--steps", type=int, default=120 if CUDA else 4, help="timed steps with loading from disk")
    options.add_argument("--resident-steps", type=int, default=40 if CUDA else 4, help="0: none")
    options.add_argument("--paper-steps", type=int, default=5 if CUDA else 2)
    options.add_argument("--paper-seconds", type=float, default=20.0, help="no more of these steps after so long")
    options.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    chosen = options.parse_args()

    settings = {key: value for key, value in vars(chosen).items() if isinstance(value, int | float | str)}
    rows: dict[str, dict[str, Any]] = {}
    took: dict[str, float] = {}
    figures: dict[str, Any] = {"settings": settings, "rows": rows, "seconds": took}
    with clock(took, "footage"):
        bench = Bench(chosen)
    for mode in chosen.modes:
        row: dict[str, Any] = {"bare": None, "by_flops": None}
        try:
            with clock(took, mode):
                measure(bench, mode, row)
        except torch.cuda.OutOfMemoryError:
            print(f"{mode}: does not fit", flush=True)
            continue
        rows[mode] = row
        loaded = row["loaded"]
        print(
            f"{mode}: {loaded['frames_per_second']:.1f} query frames/s; {took[mode]:.1f} s in all, of them "
            f"{loaded['start_seconds']:.1f} s to the first timed step from disk and "
            f"{loaded['steps'] * loaded['step_ms'] / 1000:.1f} s for {loaded['steps']} such steps",
            flush=True,
        )
        report("contrast_stage", figures, chosen.json)
    with clock(took, "floor"), tidy():
        bare = figures["floor"] = floor(bench)
    for mode, row in rows.items():
        if mode != "paper":  # the floor is that of our networks, in bf16 and compiled
            keys = contrast(chosen, mode, 1).settings.keys.encoded
            row["bare"] = 1 / (bare["query_seconds"] + keys * bare["key_seconds"])
            row["by_flops"] = bare["flops_per_second"] / (bare["query_flops"] + keys * bare["key_flops"])
    report("contrast_stage", figures, chosen.json)
    with clock(took, "loader"):
        job = bench.job(capture=False, compile=False)
        figures["loader"] = loader = loader_pace(contrast(chosen, "shared", 10**6), job, 40 if CUDA else 3)
    with clock(took, "checkpoint"):
        figures["checkpoint_seconds"] = saving = checkpoint_seconds(bench)
    report("contrast_stage", figures, chosen.json)

    plain = rows["paper"]["loaded"]["frames_per_second"] if "paper" in rows else None

    def cells(mode: str) -> list[Any]:
        row = rows[mode]
        speed = row["loaded"]["frames_per_second"]
        drawn = row.get("drawn", {}).get("frames_per_second")
        return [
            mode,
            speed,
            drawn,
            drawn and f"{speed / drawn:.1%}",
            *(row["bare"], row["bare"] and f"{speed / row['bare']:.1%}"),
            *(row["by_flops"], row["by_flops"] and f"{speed / row['by_flops']:.1%}"),
            plain and f"{speed / plain:.1f}x",
            row["loaded"]["peak_bytes"] and row["loaded"]["peak_bytes"] / 1e9,
            row["loaded"]["reserved_bytes"] and row["loaded"]["reserved_bytes"] / 1e9,
        ]

    print(f"batch {chosen.batch}, {chosen.size}×{chosen.size}, {chosen.workers} workers, query frames per second:")
    head = ("keys", "from disk", "drawn batch", "ratio", "bare networks", "ratio", "by FLOPs", "ratio")
    print(table(map(cells, rows), (*head, "paper's way", "peak GB", "reserved GB")))
    print(f"loader alone: {loader:.0f} query frames/s; one checkpoint: {saving:.2f} s")
    print("seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in took.items()))
    for mode, promised in PROMISED.items():
        if mode in rows:
            speed = rows[mode]["loaded"]["frames_per_second"]
            hours = 140 * 2235 / speed / 3600
            print(
                f"{mode}: {speed:.0f} (promised {promised:.0f}); EndoVis18's 140 epochs in {hours:.2f} h, "
                f"{speed / PAPER:.0f}x the paper's pace on its two Titan Xp"
            )


if __name__ == "__main__":
    main()
