"""What the benchmarks share: options, timing, memory, the facts of the machine, and where figures are written."""

import argparse
import json
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from suture.core.io import write_text
from suture.core.workers import cores

ROOT = Path(__file__).resolve().parents[1]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CUDA = DEVICE.type == "cuda"


def parser(text: str | None) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    return made


def facts() -> dict[str, Any]:
    """Where figures were measured."""
    return {
        "device": torch.cuda.get_device_name() if CUDA else _processor(),
        "cores": cores(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": _commit(),
    }


def report(name: str, figures: Mapping[str, Any], file: Path | None) -> None:
    """Say where this was measured, and write the figures down if asked."""
    here = facts()
    print("; ".join(f"{key} {value}" for key, value in here.items()))
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"benchmark": name, "machine": here, **figures}, indent=1, ensure_ascii=False)
        write_text(file, text + "\n")


def table(rows: Iterable[Sequence[Any]], head: Sequence[str]) -> str:
    """A Markdown table; numbers are given the digits they are worth, and None is a dash."""
    cells = [list(head), *([show(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def show(value: Any) -> str:
    """Three digits of a number."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def synchronize() -> None:
    """Wait for the device."""
    if CUDA:
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], repeats: int = 10, warmup: int = 3, budget: float = 3.0) -> float:
    """The median time of one call, with everything it gave the device to do; fewer calls where they are slow."""
    for _ in range(warmup):
        work()
    synchronize()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < repeats and (len(times) < 2 or time.perf_counter() - began < budget):
        start = time.perf_counter()
        work()
        synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def gpu_seconds(work: Callable[[], Any], repeats: int = 20, warmup: int = 3) -> float:
    """The mean time of one call on the device, calls following each other without waiting."""
    for _ in range(warmup):
        work()
    if not CUDA:
        return seconds(work, repeats, 0)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


def extra_memory(work: Callable[[], Any]) -> int | None:
    """Bytes of GPU memory that one call needs at its worst beyond what is already there; None on the CPU."""
    if not CUDA:
        return None
    work()  # what libraries keep for themselves
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def captured(work: Callable[[], Any]) -> Callable[[], Any]:
    """The work as a CUDA graph, as the training stages do; the work itself on the CPU."""
    if not CUDA:
        return work
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    # Of this thread only: that of a loader which is not gone yet may still pin memory.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph.replay


def bandwidth() -> float:
    """Bytes per second that this device copies, read and write counted: the ceiling of what is bound by memory."""
    source = torch.empty(2**30 if CUDA else 2**27, dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.numel() / gpu_seconds(lambda: target.copy_(source), 10)


def matrix_pace() -> float:
    """Operations per second of a large matrix product (bf16, on a CPU fp32): the ceiling of what is bound by them.

    On a CPU, which others may use too, the fastest of many counts.
    """
    side, dtype = (8192, torch.bfloat16) if CUDA else (1024, torch.float32)
    one, other = torch.randn(2, side, side, device=DEVICE, dtype=dtype)

    def work() -> None:
        one @ other

    return 2 * side**3 / (gpu_seconds(work, 50) if CUDA else min(seconds(work, 1, 0) for _ in range(30)))


def flops(work: Callable[[], Any]) -> int:
    """Floating-point operations of some work, by its matrix products and convolutions."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.compiler.set_stance("force_eager"), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def _processor() -> str:
    try:
        told = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return platform.processor() or platform.machine()
    names = re.findall(r"^Model name:\s*(.+)$", told, re.MULTILINE)
    return f"{names[0]} ({platform.machine()})" if names else platform.machine()


def _commit() -> str:
    named = ROOT / "COMMIT"  # where the tree was carried to a machine without its history
    if named.exists():
        return named.read_text(encoding="utf-8").strip()[:7]
    try:
        asked = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
