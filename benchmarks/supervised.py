"""The supervised and the consistency stages, whole steps with loading from disk: `python benchmarks/supervised.py`.

Each stage is trained by the code that a run uses, once loading generated footage from disk and once on a drawn batch
that already sits on the device, and held against what its operations would take at the pace of a matrix product. The
supervised stage is also compared with the plain way (fp32 in the default layout, kernel by kernel) and with the bare
model: the same network, loss and optimiser in the shortest possible loop. What a step of the others costs is told
against one of `strong`, which is supervised training at the same batch.

Figures are written after every stage. Stages that the file has already, of the same commit, machine and settings, are
not measured again: where a limit of time has ended the command, the same command goes on.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from common import CUDA, DEVICE, facts, gpu_seconds, matrix_pace, parser, report, table
from stages import CLASSES, Bench, footage_options, pace, plain_pace, step_flops, tidy

from suture.losses.cross_entropy import cross_entropy
from suture.methods.dmt import Learning, RoundSettings
from suture.methods.pixpro import Propagation, PropagationSettings
from suture.methods.stage import Stage, TrainingSettings
from suture.methods.stitch import Stitch, StitchSettings
from suture.methods.strong import Strong, StrongSettings
from suture.methods.supervised import Supervised
from suture.methods.uamt import UncertaintyAware, UncertaintySettings
from suture.methods.unimatch import UniMatchSettings, WeakToStrong
from suture.models.compile_blocks import compile_blocks

PROMISED = 0.9
STAGES = ("supervised", "strong", "stitch", "unimatch", "uamt", "pixpro", "dmt")
PLAIN_SECONDS = 20.0


def stage_of(name: str, batch: int, steps: int) -> Stage:
    """A stage with its default settings, but for the length and the batch."""
    match name:
        case "supervised":
            return Supervised("train", TrainingSettings(steps=steps, batch=batch))
        case "strong":
            return Strong("train", StrongSettings(steps=steps, batch=batch))
        case "stitch":
            return Stitch("train", StitchSettings(steps=steps, batch=batch))
        case "unimatch":
            return WeakToStrong("train", UniMatchSettings(steps=steps, batch=batch))
        case "uamt":
            return UncertaintyAware("train", UncertaintySettings(steps=steps, batch=batch))
        case "pixpro":
            return Propagation("propagation", PropagationSettings(steps=steps, epochs=None, batch=batch))
        case _:
            settings = RoundSettings(steps=steps, batch=batch, labelled=min(2, batch - 1))
            return Learning("round", settings, rate=0.6, final=True)


def bare(bench: Bench, batch: int) -> float:
    """Images per second of the bare model."""
    job = bench.job()
    segmenter = job.segmenter.to(DEVICE).train()
    if bench.options.compile:
        compile_blocks(segmenter)
    optimizer = torch.optim.AdamW(segmenter.parameters(), 1e-4, weight_decay=0.01, fused=CUDA)
    images = torch.rand(batch, 3, *bench.size, device=DEVICE)
    labels = torch.randint(0, CLASSES, (batch, *bench.size), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE.type, job.autocast or torch.bfloat16, enabled=job.autocast is not None):
            loss, weight = cross_entropy(segmenter(images), labels)
        (loss / weight).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    torch.backends.cudnn.benchmark = CUDA
    return batch / gpu_seconds(step, 20 if CUDA else 2)


def measure(bench: Bench, name: str) -> dict[str, Any]:
    """The row of a stage."""
    chosen, warmup = bench.options, bench.options.warmup
    row: dict[str, Any] = {"batch": chosen.batch if name == "supervised" else chosen.small_batch}
    torch._dynamo.reset()  # a block takes no more than so many shapes, and each stage brings its own
    for way, resident, timed in (("drawn", True, chosen.steps // 2 or 1), ("loaded", False, chosen.steps)):
        job = bench.job()
        with tidy():
            stage = stage_of(name, row["batch"], warmup + timed)
            row[way] = asdict(pace(stage, job, warmup, resident))
            del stage
    with tidy():
        job = bench.job(capture=False, compile=False)
        row["flops_per_frame"] = step_flops(stage_of(name, row["batch"], 1), job) / row["batch"]
    return row


def measured_before(file: Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    """The figures of a file, if they are of the same commit, machine and settings."""
    known = json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else {}
    here = facts()
    named = not here["commit"].endswith(("-dirty", "unknown"))  # else the code may have changed meanwhile
    return known if named and (known.get("machine"), known.get("settings")) == (here, settings) else {}


def main() -> None:
    options = parser(__doc__)
    footage_options(options)
    options.add_argument("--batch", type=int, default=32 if CUDA else 4, help="of the supervised stage")
    options.add_argument("--small-batch", type=int, default=8 if CUDA else 2, help="of the others")
    options.add_argument("--steps", type=int, default=80 if CUDA else 3, help="timed steps")
    options.add_argument("--plain-steps", type=int, default=5 if CUDA else 2, help="timed steps of the plain way")
    options.add_argument("--stages", nargs="+", default=STAGES, choices=STAGES)
    chosen = options.parse_args()

    settings = {key: value for key, value in vars(chosen).items() if isinstance(value, int | float | str)}
    figures = {"settings": settings, "rows": {}} | measured_before(chosen.json, settings)
    rows: dict[str, dict[str, Any]] = figures["rows"]
    bench = Bench(chosen)
    figures["flops_per_second"] = matrix_pace()
    for name in chosen.stages:
        if name in rows:
            continue
        row = measure(bench, name)
        if name == "supervised":
            with tidy():
                row["bare"] = bare(bench, chosen.batch)
            plain = plain_pace(bench, stage_of(name, chosen.batch, 1 + chosen.plain_steps), PLAIN_SECONDS)
            row["plain"] = asdict(plain)
        rows[name] = row
        print(f"{name}: {row['loaded']['frames_per_second']:.1f} frames/s", flush=True)
        report("supervised", figures, chosen.json)

    def cells(name: str) -> list[Any]:
        row = rows[name]
        speed, resident = row["loaded"]["frames_per_second"], row["drawn"]["frames_per_second"]
        fastest, slow = row.get("bare"), row.get("plain", {}).get("frames_per_second")
        strong = rows["strong"]["loaded"]["step_ms"] if "strong" in rows and name != "supervised" else None
        step, peak = row["loaded"]["step_ms"], row["loaded"]["peak_bytes"]
        floor = figures["flops_per_second"] / row["flops_per_frame"]
        return [
            *(name, row["batch"], speed, resident, f"{speed / resident:.1%}"),
            *(fastest, fastest and f"{speed / fastest:.1%}", floor, f"{speed / floor:.1%}"),
            *(slow and f"{speed / slow:.1f}x", step, strong and f"{step / strong:.2f}x", peak and peak / 1e9),
        ]

    print(f"{chosen.size}×{chosen.size}, {chosen.workers} workers, frames of the batch per second:")
    head = (
        "stage",
        "batch",
        "from disk",
        "resident",
        "ratio",
        "bare model",
        "ratio",
        "by FLOPs",
        "ratio",
        "plain way",
        "step ms",
    )
    print(table(map(cells, rows), (*head, "step of strong", "peak GB")))
    print(f"by FLOPs: at {figures['flops_per_second'] / 1e12:.3g} TFLOP/s, a matrix product's pace")
    print(f"promised: {PROMISED:.0%} of the bare model, and {PROMISED:.0%} of the step on a resident batch")


if __name__ == "__main__":
    main()
