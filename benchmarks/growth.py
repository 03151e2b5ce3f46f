"""How cost grows with key frames and with the dataset: `python benchmarks/growth.py`.

Keys: the step of the contrast stage on a resident batch with the bank, where 6, 64 and all frames stand for the keys of
a query.

Frames: folders of 32×32 frames, each ten times as large as the one before, whose frame store, shots and pseudo labels
are there already. In a fresh process `suture train` goes on with a run on it, with all it looks at: every frame is
listed and asked for its size and time of change, the data is compared with the run's `data.json`, the store is opened,
the first batch is drawn. Printed are the seconds from the start of the process to that batch, of the very first start
too, which makes the store, the shots and the record, and trains for one step; its private memory (anonymous pages:
mapped files do not count); and how long it draws a batch, which times the number of batches is an epoch.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

PROMISED_STEP, PROMISED_START, PROMISED_MEMORY = 1.10, 2.0, 200e6
SIDE, EVERY, VIDEOS, BATCH = 32, 20, 20, 16
CLASSES = ("tissue", "tool", "vessel")
DRAWN = 100
"""Batches, to know how long one takes."""


def make_folder(root: Path, frames: int) -> None:
    """A folder of frames: few images under many names, since their content does not matter."""
    import cv2
    import numpy as np
    import yaml

    rng = np.random.default_rng(0)
    per_video = frames // VIDEOS
    (root / "masks").mkdir(parents=True)
    for v in range(VIDEOS):
        folder = root / "videos" / f"case{v:02d}"
        folder.mkdir(parents=True)
        image = mask = Path()
        for index in range(per_video):
            if index % 1000 == 0:  # file systems limit the number of links to a file
                image = folder / f"frame_{index:06d}.png"
                cv2.imwrite(str(image), rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8))
            else:
                os.link(image, folder / f"frame_{index:06d}.png")
            if index % EVERY == 0:
                named = root / "masks" / f"case{v:02d}__frame_{index:06d}.png"
                if index == 0:
                    mask = named
                    cv2.imwrite(str(mask), rng.integers(0, len(CLASSES), (SIDE, SIDE), np.uint8))
                else:
                    os.link(mask, named)
    facts = {
        "format": 1,
        "videos": "videos",
        "masks": "masks",
        "classes": [{"name": name, "value": value} for value, name in enumerate(CLASSES)],
        "view": "none",
        "split": {"train": [f"case{v:02d}" for v in range(VIDEOS)]},
    }
    (root / "dataset.yaml").write_text(yaml.safe_dump(facts), encoding="utf-8")


class Begun(Exception):
    """The first batch is there."""


def begin_run(root: Path, started: float) -> dict[str, Any]:
    """In a fresh process: `suture train` itself, up to its first batch of the contrast stage."""
    from suture.cli.train_command import train
    from suture.methods import pseudo_labels as pseudo
    from suture.methods.pgvcl import Contrast
    from suture.training import run_stages
    from suture.training import train as run
    from suture.training.loop import TrainingLoop

    marks = {"process": started}
    found: dict[str, Any] = {}
    do_step = TrainingLoop._do_step

    def marked(name: str, owner: Any, part: str) -> AbstractContextManager[Any]:
        """Note when a part of it is done."""
        do = getattr(owner, part)

        def noted(*given: Any, **named: Any) -> Any:
            result = do(*given, **named)
            marks[name] = time.time()
            return result

        return mock.patch.object(owner, part, noted)

    def first_step(loop: TrainingLoop, batches: Any) -> None:
        stage = loop.stage
        if not isinstance(stage, Contrast):
            do_step(loop, batches)
            return
        next(batches)
        marks["first batch"] = time.time()
        found.update(cpu_seconds=time.process_time(), private_bytes=private_memory(), frames=len(stage.context.frames))
        batches = iter(stage.loader(1))
        start = time.perf_counter()
        for _ in range(DRAWN):
            next(batches)
        found["batch_ms"] = (time.perf_counter() - start) / DRAWN * 1000
        raise Begun

    def three_colours(network: Any, frames: Any, *_: Any, **__: Any) -> Any:
        """What stands in for a network's probabilities (B, C, h, w): there are three classes."""
        return frames.permute(0, 3, 1, 2) / 255

    said = [
        f"data.size={SIDE}",
        f"data.labelling.every={EVERY}",
        "data.store_size=32",
        f"data.cache={root / 'cache'}",
        "model.encoder=tu-test_resnet",
        "model.weights=null",
        "method=pgvcl",
        "method.pretrain.steps=1",
        "method.contrast.keys.mode=shared",
        f"method.contrast.batch={BATCH}",
        "compute.accelerator=cpu",
        "compute.workers=0",
    ]
    with (
        marked("import", run, "start_processes"),
        marked("list", run, "open_data"),
        marked("network", run, "starting_segmenter"),
        marked("record", run.Run, "begin"),
        marked("store", run_stages, "make_context"),
        marked("pseudo labels", pseudo, "load_pseudo_labels"),
        # Only where the run is made.
        mock.patch.object(pseudo, "predict_probabilities", three_colours),
        mock.patch.object(TrainingLoop, "_do_step", first_step),
        suppress(Begun),
    ):
        train(root, root / "run", None, said)
    parts = {name: marks[name] - marks[before] for before, name in itertools.pairwise(marks)}
    return found | {"seconds": marks["first batch"] - started, "parts": parts}


def private_memory() -> int:
    """Bytes of this process alone, without mapped files."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise SystemExit("This benchmark reads /proc/self/status: it runs on Linux.")


def start_up(frames: int, times: int) -> dict[str, Any]:
    """Make a dataset and its run, then start it again in fresh processes; the fastest start counts."""

    def fresh(root: Path) -> dict[str, Any]:
        command = [sys.executable, __file__, "--begin", str(root), repr(time.time())]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "data"
        make_folder(root, frames)
        time.sleep(2.1)  # a file that was just written is hashed again at the next start
        first = fresh(root)["seconds"]  # with making the store, the shots and pseudo labels
        starts = [fresh(root) for _ in range(times)]
    drawn = min(start["batch_ms"] for start in starts)
    return min(starts, key=lambda start: start["seconds"]) | {"first_seconds": first, "batch_ms": drawn}


def epoch_seconds(row: Mapping[str, Any]) -> float:
    """What the batches of an epoch take."""
    return row["batch_ms"] * row["frames"] / BATCH / 1000


def grow_keys(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The step with ever more keys."""
    from stages import Bench, pace, tidy

    from suture.data.sampling.keys import KeySettings
    from suture.methods.pgvcl import Contrast, ContrastSettings

    bench = Bench(options)
    rows = []
    ways: tuple[Any, ...] = (4, 62, "all")
    for others in ways:
        settings = ContrastSettings(
            steps=options.warmup + options.steps,
            epochs=None,
            batch=options.batch,
            keys=KeySettings(mode="bank", other_videos=others),
        )
        job = bench.job()
        with tidy():
            found = pace(Contrast("contrast", settings), job, options.warmup, resident=True)
        rows.append({"keys": others if others == "all" else others + 2, **asdict(found)})
    return rows


def main() -> None:
    from common import CUDA, parser, report, table
    from stages import footage_options

    options = parser(__doc__)
    footage_options(options)
    options.add_argument("--batch", type=int, default=16 if CUDA else 4)
    options.add_argument("--steps", type=int, default=40 if CUDA else 4, help="timed steps")
    options.add_argument("--sizes", type=int, nargs="+", default=[2000, 20_000, 200_000], help="frames of the folders")
    options.add_argument("--starts", type=int, default=2)
    options.add_argument("--only", choices=("keys", "frames"))
    chosen = options.parse_args()
    figures: dict[str, Any] = {}
    if chosen.only != "frames":
        keys = figures["keys"] = grow_keys(chosen)
        first = keys[0]["step_ms"]
        print(table(([r["keys"], r["step_ms"], f"{r['step_ms'] / first:.2f}x"] for r in keys), ("keys", "ms", "ratio")))
        print(f"promised: at most {PROMISED_STEP:.2f}x", flush=True)
    if chosen.only != "keys":
        rows = figures["frames"] = []
        for frames in chosen.sizes:
            rows.append(start_up(frames, chosen.starts))
            print(f"{frames:,} frames: {rows[-1]['seconds']:.1f} s to the first batch", flush=True)
        small, large, names = rows[0], rows[-1], list(rows[0]["parts"])
        print(
            table(
                (
                    [
                        *(r["frames"], r["first_seconds"], r["seconds"], r["cpu_seconds"]),
                        *(r["parts"][name] for name in names),
                        *(r["private_bytes"] / 1e6, r["batch_ms"], epoch_seconds(r)),
                    ]
                    for r in rows
                ),
                ("frames", "first start s", "start s", "of CPU", *names, "private MB", "batch ms", "epoch s"),
            )
        )
        print(
            f"start-up {large['seconds'] / small['seconds']:.2f}x, in time of the processor "
            f"{large['cpu_seconds'] / small['cpu_seconds']:.2f}x (promised {PROMISED_START:.0f}x), memory "
            f"+{(large['private_bytes'] - small['private_bytes']) / 1e6:.0f} MB (promised "
            f"{PROMISED_MEMORY / 1e6:.0f}), "
            f"an epoch {epoch_seconds(large) / epoch_seconds(small):.0f}x for "
            f"{large['frames'] / small['frames']:.0f}x the frames"
        )
    report("growth", figures, chosen.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--begin"]:
        print(json.dumps(begin_run(Path(sys.argv[2]), float(sys.argv[3]))))
    else:
        main()
