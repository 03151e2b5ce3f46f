"""Functions of `import suture`: the commands, with the same options."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from suture.core.schemas import is_run
from suture.core.threads import use_passive_openmp_wait
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset as _load_dataset
from suture.training.adapt import adapt_config, adapted_folder
from suture.training.config import load_config
from suture.training.run_folder import Run, default_folder

if TYPE_CHECKING:
    from suture.checks.check_report import CheckReport
    from suture.comparison.queue import QueueOutcome
    from suture.data.labelling import Labelling
    from suture.deployment.export import Exported
    from suture.prediction.predict import PredictionSummary

# Slow imports, such as torch, are inside the functions.

Place = str | Path


def load_dataset(path: Place, source: str = "auto", **options: Any) -> Dataset:
    """Read a dataset: a folder of videos or frames with its `dataset.yaml`, a video file, or a known dataset.

    - `source`: reader of the dataset, such as `cadis`; `auto` recognises it by its layout.
    - `options`: of the source, such as `task=2` for CaDIS.

    >>> dataset = load_dataset("videos")  # doctest: +SKIP
    >>> dataset.classes.names, [video.id for video in dataset.split("train")]  # doctest: +SKIP
    (('background', 'grasper'), ['case01', 'case02'])
    >>> for frame, mask in dataset.pairs("train"): ...  # doctest: +SKIP
    """
    return _load_dataset(Path(path), source, **options)


def check(path: Place, source: str = "auto", *, quiet: bool = False, **options: Any) -> "CheckReport":
    """Validate a dataset; its problems are in the result.

    >>> [problem.what for problem in check("videos").problems]  # doctest: +SKIP
    """
    from suture.checks.check import check as _check

    return _check(load_dataset(path, source, **options), progress=not quiet)


def select(
    path: Place,
    output: Place,
    *,
    every: int | None = None,
    ratio: float | None = None,
    budget: int | None = None,
    frames: Place | None = None,
    by: str | None = None,
    tool: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> "Labelling":
    """Write the frames to label into a folder; of a run, those that its model finds hard.

    - `frames`: file of frames, as `--list`.
    - `by`: `shots`, `appearance` or `model`.
    - `tool`: `cvat`, `labelstudio`, `coco` or `png`, as `--for`.

    >>> select("videos", "label", budget=20)  # doctest: +SKIP
    """
    from suture.annotate.open_run import open_run
    from suture.annotate.select import select as _select

    dataset, predictor = open_run(Path(path)) if is_run(Path(path)) else (load_dataset(path), None)
    by = by or ("model" if predictor else "shots")
    listed = Path(frames) if frames else None
    return _select(
        dataset, Path(output), every, ratio, budget, listed, by, tool, predictor, force=force, progress=not quiet
    )


def train(
    target: Place,
    folder: Place | None = None,
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
    from suture.training.train import train as _train

    config = load_config(Path(target), preset, _overrides(settings))
    run = Run(Path(folder) if folder is not None else default_folder(config))
    _train(config, run.folder, Console(stderr=True, quiet=quiet))
    return run


def evaluate(run: Run | Place, settings: Mapping[str, Any] | None = None, *, quiet: bool = False) -> dict[str, Any]:
    """Score a finished run again: by split, and for completion; `settings` of `compute` and `evaluation` may differ.

    >>> evaluate("runs/videos-stitch-0", {"evaluation.flip": True})["test"]["primary"]  # doctest: +SKIP
    """
    use_passive_openmp_wait()
    from suture.training.train import evaluate_run

    return evaluate_run(_folder(run), _overrides(settings), Console(stderr=True, quiet=quiet))


def adapt(
    run: Run | Place,
    videos: Sequence[Place],
    folder: Place | None = None,
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


def report(
    runs: Run | Place | Sequence[Run | Place],
    output: Place | None = None,
    *,
    videos: Sequence[Place] = (),
    figures: Place | None = None,
    frames: bool = True,
    quiet: bool = False,
) -> Path:
    """Write one HTML page about a run or several, and return its path.

    - `videos`: videos without ground truth to show.
    - `figures`: new folder for the figures of a paper.
    - `frames`: show pictures of patients.

    >>> report(["runs/supervised", "runs/stitch"], "both.html")  # doctest: +SKIP
    """
    from suture.reports.report import write_report

    folders = [_folder(run) for run in ([runs] if isinstance(runs, Run | str | Path) else runs)]
    return write_report(
        folders,
        Path(output) if output else None,
        frames,
        Console(stderr=True, quiet=quiet),
        videos=[Path(video) for video in videos],
        figures=Path(figures) if figures else None,
    )


def compare(file: Place, output: Place | None = None, *, quiet: bool = False, **options: Any) -> "QueueOutcome":
    """Train every run of a comparison file that is not finished, and write the tables.

    - `options`: `devices`, `jobs`, `minutes`, `only` and `collect` of `suture compare`.

    >>> compare("ratios.yaml", devices="0,1").failed  # doctest: +SKIP
    """
    from suture.comparison.compare import compare as _compare

    return _compare(Path(file), Path(output) if output else None, console=Console(stderr=True, quiet=quiet), **options)


def predict(model: Run | Place, video: Place, *, device: str = "auto") -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Predict the frames of a video or of a folder of images one by one, without writing files.

    Yields:
        An RGB frame (H, W, 3) and its mask of class ids (H, W), both uint8.

    >>> for frame, mask in predict("runs/videos-stitch-0", "new.mp4"): ...  # doctest: +SKIP
    """
    from suture.prediction.find_clips import find_clips
    from suture.prediction.predictor import Predictor

    predictor = Predictor(_folder(model), device)
    for clip in find_clips([video], videos_by=predictor.network.videos_by):
        view = clip.find_view(predictor.network.view)
        for frame in clip.frames(range(len(clip))):
            if isinstance(pixels := frame.converted().pixels, np.ndarray):  # otherwise it does not decode
                yield pixels, predictor(pixels, view.of(pixels.shape[:2]))


def predict_files(
    model: Run | Place,
    inputs: Sequence[Place],
    output: Place,
    *,
    device: str = "auto",
    force: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> "PredictionSummary":
    """Write masks, overlays and tables of videos and images, as `suture predict` does.

    - `settings`: of `PredictionSettings`, such as `masks="video"` or `overlay=False`.

    >>> predict_files("runs/videos-stitch-0", ["new.mp4"], "predictions").frames  # doctest: +SKIP
    """
    from suture.prediction.predict import predict as _predict
    from suture.prediction.prediction_settings import PredictionSettings
    from suture.prediction.predictor import Predictor

    console = Console(stderr=True, quiet=quiet)
    predictor = Predictor(_folder(model), device)
    return _predict(predictor, inputs, Path(output), PredictionSettings(**settings), force=force, console=console)


def export(run: Run | Place, output: Place | None = None, **options: Any) -> "Exported":
    """Write a run's model as ONNX, checked against PyTorch, and its model card.

    - `output`: ONNX file; else `model.onnx` in the run folder.
    - `options`: `frame`, `view`, `dynamic`, `logits`, `half` and `force`.

    >>> export("runs/videos-stitch-0").agreement  # doctest: +SKIP
    0.999998
    """
    from suture.deployment.export import export_run

    folder = _folder(run)
    return export_run(folder, Path(output) if output else folder / "model.onnx", **options)


def _folder(run: Run | Place) -> Path:
    return run.folder if isinstance(run, Run) else Path(run)


def _overrides(settings: Mapping[str, Any] | None) -> list[str]:
    # JSON is YAML too; a path is written as its name.
    return [f"{key}={json.dumps(value, default=str)}" for key, value in (settings or {}).items()]
