"""Where the time of one training step goes: `python benchmarks/profile_step.py --stage contrast`.

A summary by torch.profiler of steps on a drawn batch that already sits on the device (rendered at every step), eagerly,
so that every kernel has its name: kernels by kind and one by one, the time between them in which the device waits for
Python, and the time of rendering. `--trace FILE` keeps the whole trace for chrome://tracing.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from common import CUDA, DEVICE, gpu_seconds, parser, report, seconds, synchronize, table
from contrast_stage import contrast
from stages import Bench, footage_options
from supervised import STAGES, stage_of
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from suture.training.loop import DeviceBatches

KINDS = {
    "resizing and blur": r"grid_sampler|upsample|replication_pad|depthwise",
    "convolution and matrix product": r"conv|gemm|cutlass|cudnn|xmma|wgrad|dgrad|fprop|mm|nvjet|linear",
    "batch norm": r"batch_norm|bn_",
    "copy and cast": r"copy|memcpy|memset|convert|nchw|nhwc|cat",
    "optimiser and averages": r"multi_tensor|foreach|lerp|adam|lars|fused",
    "reduction": r"reduce|sum|norm|softmax|nll",
    "elementwise": r"elementwise|relu|add|mul|div|clamp|where|index|gather|scatter",
}
"""What a kernel's name tells; the first that fits."""


def kind(name: str) -> str:
    """What a kernel does."""
    return next((kind for kind, words in KINDS.items() if re.search(words, name.lower())), "other")


def main() -> None:
    options = parser(__doc__)
    footage_options(options)
    options.add_argument("--stage", choices=("contrast", *STAGES), default="contrast")
    options.add_argument("--mode", choices=("shared", "bank", "own"), default="shared", help="keys of the contrast")
    options.add_argument("--batch", type=int, default=16 if CUDA else 4)
    options.add_argument("--steps", type=int, default=5 if CUDA else 2, help="profiled steps")
    options.add_argument("--top", type=int, default=15)
    options.add_argument("--trace", type=Path)
    chosen = options.parse_args()

    bench = Bench(chosen)
    job = bench.job(capture=False)
    stage: Any
    if chosen.stage == "contrast":
        stage = contrast(chosen, chosen.mode, 100)
    else:
        stage = stage_of(chosen.stage, chosen.batch, 100)
    job.workers = 0
    stage.begin(job)
    stage.to(DEVICE).train()
    stage.on_train_start()
    torch.backends.cudnn.benchmark = CUDA
    optimizer = stage.make_optimizer()
    batch = next(iter(DeviceBatches(stage.loader(0), DEVICE)))

    def step() -> None:
        rendered = stage.render(batch)
        with torch.autocast(DEVICE.type, job.autocast or torch.bfloat16, enabled=job.autocast is not None):
            total = stage.loss(rendered)
            loss = total.loss / total.weight
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        stage.finish_step()  # averages and momentum copies

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if CUDA else [])]
    stage.global_step = 1  # 0 is before any step
    whole = seconds(step, 10 if CUDA else 2)
    rendering = gpu_seconds(lambda: stage.render(batch), 10 if CUDA else 2)
    with profile(activities=activities) as profiler:
        for _ in range(chosen.steps):
            step()
        synchronize()
    if chosen.trace:
        profiler.export_chrome_trace(str(chosen.trace))

    # On a GPU its kernels, without the named ranges around them; elsewhere operators without those that they call.
    events = [e for e in profiler.events() if not CUDA or (e.device_type == DeviceType.CUDA and "#" not in e.name)]
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for event in events:
        times[event.name] += event.time_range.elapsed_us() if CUDA else event.self_cpu_time_total
        counts[event.name] += 1
    busy = sum(times.values()) / 1000 / chosen.steps
    kinds: Counter[str] = Counter()
    for name, time in times.items():
        kinds[kind(name)] += time
    share = {name: time / 1000 / chosen.steps for name, time in kinds.most_common()}
    print(f"{chosen.stage}, batch {chosen.batch}, {chosen.size}×{chosen.size}: a step takes {whole * 1000:.1f} ms;")
    print(
        f"the device computes for {busy:.1f} ms in {sum(counts.values()) // chosen.steps} kernels; "
        f"rendering takes {rendering * 1000:.1f} ms\n"
    )
    print(table(((name, ms, f"{ms / busy:.1%}") for name, ms in share.items()), ("kind", "ms", "share")), "\n")
    top = [(name, ms / 1000 / chosen.steps, counts[name] / chosen.steps) for name, ms in times.most_common(chosen.top)]
    print(table(((name[:90], ms, f"{ms / busy:.1%}", n) for name, ms, n in top), ("kernel", "ms", "share", "calls")))
    figures = {
        "stage": chosen.stage,
        "batch": chosen.batch,
        "size": chosen.size,
        "step_ms": whole * 1000,
        "busy_ms": busy,
        "render_ms": rendering * 1000,
        "kernels": sum(counts.values()) / chosen.steps,
        "kinds": share,
        "top": [{"name": name[:120], "ms": ms, "calls": n} for name, ms, n in top],
    }
    report("profile_step", figures, chosen.json)


if __name__ == "__main__":
    main()
