"""The supervised and the consistency stages, whole steps with loading from disk: `python benchmarks/supervised.py`.

Each stage is trained by the code that a run uses, once loading generated footage from disk and once on a rendered batch
that already sits on the device; figures are written after every stage. The supervised stage is also compared with the
bare model: the same network, loss and optimiser in the shortest possible loop on a resident batch. What a step of the
others costs is told against one of `strong`, which is supervised training at the same batch.
"""

from dataclasses import asdict
from typing import Any

import torch
from common import CUDA, DEVICE, gpu_seconds, parser, report, table
from stages import CLASSES, Bench, flops, footage_options, pace, tidy

from suture.losses.cross_entropy import cross_entropy
from suture.methods.stage import Stage, TrainingSettings
from suture.methods.stitch import Stitch, StitchSettings
from suture.methods.strong import Strong, StrongSettings
from suture.methods.supervised import Supervised
from suture.methods.uamt import UncertaintyAware, UncertaintySettings
from suture.methods.unimatch import UniMatchSettings, WeakToStrong
from suture.models.blocks import compile_blocks

PROMISED = 0.9
STAGES = ("supervised", "strong", "stitch", "unimatch", "uamt")


def stage_of(name: str, batch: int, small: int, steps: int) -> Stage:
    """A stage with its default settings, but for the length and the batch."""
    if name == "supervised":
        return Supervised("train", TrainingSettings(steps=steps, batch=batch))
    if name == "strong":
        return Strong("train", StrongSettings(steps=steps, batch=small))
    if name == "stitch":
        return Stitch("train", StitchSettings(steps=steps, batch=small))
    if name == "unimatch":
        return WeakToStrong("train", UniMatchSettings(steps=steps, batch=small))
    return UncertaintyAware("train", UncertaintySettings(steps=steps, batch=small))


def bare(bench: Bench, batch: int) -> dict[str, float]:
    """Images per second of the bare model."""
    job, _ = bench.job()
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
    pace = batch / gpu_seconds(step, 20 if CUDA else 2)
    return {"images_per_second": pace, "flops_per_image": flops(step) / batch}


def main() -> None:
    options = parser(__doc__)
    footage_options(options)
    options.add_argument("--batch", type=int, default=32 if CUDA else 4, help="of the supervised stage")
    options.add_argument("--small-batch", type=int, default=8 if CUDA else 2, help="labelled ones of the others")
    options.add_argument("--steps", type=int, default=80 if CUDA else 3, help="timed steps")
    options.add_argument("--stages", nargs="+", default=STAGES, choices=STAGES)
    options.add_argument("--tflops", type=float, default=790.0, help="what the device reaches in bf16, for the floor")
    chosen = options.parse_args()

    bench = Bench(chosen)
    with tidy():
        floor = bare(bench, chosen.batch)
    settings = {key: value for key, value in vars(chosen).items() if isinstance(value, int | float | str)}
    rows: dict[str, dict[str, Any]] = {}
    for name in chosen.stages:
        row = rows[name] = {"batch": chosen.batch if name == "supervised" else chosen.small_batch}
        for way, resident, timed in (("rendered", "rendered", chosen.steps // 2 or 1), ("loaded", None, chosen.steps)):
            # The consistency stages are compared with themselves alone: that needs no compiling.
            job, trainer_options = bench.job(compile=chosen.compile and name == "supervised")
            with tidy():
                stage = stage_of(name, chosen.batch, chosen.small_batch, chosen.warmup + timed)
                row[way] = asdict(pace(stage, job, trainer_options, chosen.warmup, resident))
                del stage
        print(f"{name}: {row['loaded']['frames_per_second']:.1f} labelled frames/s", flush=True)
        report("supervised", {"settings": settings, "bare": floor, "rows": rows}, chosen.json)

    def cells(name: str) -> list[Any]:
        row = rows[name]
        speed, rendered = row["loaded"]["frames_per_second"], row["rendered"]["frames_per_second"]
        against = floor["images_per_second"] if name == "supervised" else None
        plain = rows["strong"]["loaded"]["frames_per_second"] if "strong" in rows and name != "supervised" else None
        peak = row["loaded"]["peak_bytes"]
        return [
            *(name, row["batch"], speed, rendered, f"{speed / rendered:.1%}"),
            *(against, against and f"{speed / against:.1%}", row["loaded"]["step_ms"]),
            *(plain and f"{plain / speed:.2f}x", peak and peak / 1e9),
        ]

    print(f"{chosen.size}×{chosen.size}, {chosen.workers} workers, labelled frames per second:")
    head = ("stage", "batch", "from disk", "rendered batch", "ratio", "bare model", "ratio", "step ms")
    print(table(map(cells, rows), (*head, "step of strong", "peak GB")))
    if CUDA:
        print(f"by FLOPs at {chosen.tflops:.0f} TFLOP/s: {chosen.tflops * 1e12 / floor['flops_per_image']:.0f} img/s")
    print(f"promised: {PROMISED:.0%} of the bare model, and {PROMISED:.0%} of the step on a resident batch")


if __name__ == "__main__":
    main()
