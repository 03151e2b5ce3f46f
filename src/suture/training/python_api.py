"""The functions that `import suture` gives: the program's main steps."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from suture.core.threads import use_passive_openmp_wait
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset as _load_dataset
from suture.training.adapt import adapt_config, adapted_folder
from suture.training.config import load_config
from suture.training.run_folder import Run, default_folder


def load_dataset(path: str | Path, source: str = "auto", **options: Any) -> Dataset:
    """Read a dataset: a folder of videos or frames with its `dataset.yaml`, a video file, or a known dataset.

    - `source`: reader of the dataset, such as `cadis`; `auto` recognises it by its layout.
    - `options`: of the source, such as `task=2` for CaDIS.

    >>> dataset = load_dataset("videos")  # doctest: +SKIP
    >>> dataset.classes.names, [video.id for video in dataset.split("train")]  # doctest: +SKIP
    (('background', 'grasper'), ['case01', 'case02'])
    """
    return _load_dataset(Path(path), source, **options)


def train(
    target: str | Path,
    folder: str | Path | None = None,
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Run:
    """Train on a dataset's folder or by a config file, and score the outcome; called again, it goes on where it was.

    - `folder`: the run's; else `runs/DATASET-METHOD-SEED`.
    - `preset`: settings to start from, such as `demo`.
    - `settings`: what to change, by key, as `--set` does: `{"method": "supervised", "method.train.steps": 500}`.
    - `quiet`: without progress bars.

    >>> run = train("videos", settings={"seed": 1})  # doctest: +SKIP
    >>> run.metrics["test"]["primary"]  # doctest: +SKIP
    """
    use_passive_openmp_wait()
    from suture.training.train import train as _train  # seconds, which reading a dataset does without

    config = load_config(Path(target), preset, _overrides(settings))
    run = Run(Path(folder) if folder is not None else default_folder(config))
    _train(config, run.folder, Console(stderr=True, quiet=quiet))
    return run


def adapt(
    run: Run | str | Path,
    videos: Sequence[str | Path],
    folder: str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Run:
    """Train a finished run further, with its labels and the frames of new videos; called again, it goes on.

    - `videos`: files, or folders of videos or frames; labels that they may have are not read.
    - `folder`: the new run's; else `RUN-adapted`.
    - `settings`: what to change, by key, such as `{"method.train.steps": 1000}`.

    >>> adapt("runs/videos-stitch-0", ["new-patient.mp4"]).folder  # doctest: +SKIP
    """
    use_passive_openmp_wait()
    from suture.training.train import train as _train

    start = run if isinstance(run, Run) else Run(Path(run))
    config = adapt_config(start, [Path(video) for video in videos], _overrides(settings))
    adapted = Run(Path(folder) if folder is not None else adapted_folder(start))
    _train(config, adapted.folder, Console(stderr=True, quiet=quiet))
    return adapted


def evaluate(
    run: Run | str | Path, settings: Mapping[str, Any] | None = None, *, quiet: bool = False
) -> dict[str, Any]:
    """Score a finished run again: by split, and for completion; `settings` of `compute` and `evaluation` may differ.

    >>> evaluate("runs/videos-stitch-0", {"evaluation.flip": True})["test"]["primary"]  # doctest: +SKIP
    """
    use_passive_openmp_wait()
    from suture.training.train import evaluate_run

    folder = run.folder if isinstance(run, Run) else Path(run)
    return evaluate_run(folder, _overrides(settings), Console(stderr=True, quiet=quiet))


def _overrides(settings: Mapping[str, Any] | None) -> list[str]:
    # JSON is YAML too; a path is written as its name.
    return [f"{key}={json.dumps(value, default=str)}" for key, value in (settings or {}).items()]
