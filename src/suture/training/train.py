"""Train a run: one method on one dataset with one seed, in one folder.

`train` runs the method's stages in order, then scores. Starting the same run again goes on to the same weights.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from suture.checks.check import require_labels, validate_masks
from suture.core.errors import UserError
from suture.core.io import write_json
from suture.core.schemas import labelled_frames
from suture.core.settings import validate_scales
from suture.core.text import NAMED, listed, number
from suture.data import messages
from suture.data.classes import renamed
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset
from suture.data.datasets.folder import require_outside_dataset
from suture.data.fingerprint import Fingerprints
from suture.data.labelling import Labelling, choose
from suture.data.sampling.frames import (
    TrainingFrames,
    add_unlabelled,
    carve_validation,
    find_unlearnt_classes,
    take_fold,
)
from suture.evaluation.scoring import Frames, protocol_of
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import Stage, one_frame_alone
from suture.models.segmenter import Segmenter
from suture.training.callbacks import bar
from suture.training.config import Config, parse_config, set_value, validate_scoring_overrides
from suture.training.data_record import data_record, match_record
from suture.training.distributed import Processes
from suture.training.environment import environment
from suture.training.explain_failures import explain_failures
from suture.training.run_folder import Run, changed_values
from suture.training.run_stages import run_stages, starting_segmenter
from suture.training.session import AnyStage, Opened, Session

__all__ = ["Opened", "Run", "evaluate_run", "open_data", "open_data_of", "train"]


def train(config: Config, folder: Path, console: Console | None = None) -> dict[str, Any]:
    """Run all stages of a config in a folder, or go on with them; return the scores.

    Args:
        config: The complete config.
        folder: The run's folder, new or with a run of the same config.
        console: Where progress is shown; standard error by default.

    Raises:
        UserError: Config, data or folder cannot be used, or the machine lacks something.
    """
    processes = start_processes(config)
    run, stages = Run(folder), list(config.build_method().stages())
    processes.share(lambda: validate(config, stages, run, processes))
    with _locked(run, processes), explain_failures(run.folder):
        session = open_session(config, stages, run, processes, console)
        if not processes.share(lambda: run.is_finished):
            run_stages(session)
        return processes.share(lambda: run.metrics if run.is_scored else None) or score(session)


def start_processes(config: Config) -> Processes:
    """Connect to the other processes of the run, if there are any, and prepare torch."""
    warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")  # new torch only
    warnings.filterwarnings("ignore", message="Grad strides do not match")  # nothing that a user could change
    processes = Processes.start(config.compute)
    if processes.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    return processes


@contextmanager
def _locked(run: Run, processes: Processes) -> Iterator[None]:
    """Hold the run's lock, by the first process for all of them."""
    with ExitStack() as held:
        processes.share(lambda: held.enter_context(run.locked()))
        yield


# Validate


def validate(config: Config, stages: Sequence[AnyStage], run: Run, processes: Processes) -> None:
    """Raise `UserError` if the config cannot work, before the data are read or anything is written."""
    validate_scales(config.evaluation.scales, "evaluation.scales")
    for stage in stages:
        if isinstance(stage, Stage):
            _validate_batch(config, stage, processes)
        else:
            validate_scales(stage.settings.scales, "method.pseudo.scales")
    run.require_free_folder()
    if not run.is_begun:
        require_outside_dataset(run.folder)


def _validate_batch(config: Config, stage: Stage, processes: Processes) -> None:
    """Require batches that processes and accumulated parts can divide, and two frames for DeepLab's batch norm."""
    parts = stage.settings.accumulate * processes.world
    for name, frames in stage.batches.items():
        if frames % parts:
            raise UserError(
                f"{stage.key}.{name} is {frames}, which cannot be divided among "
                f"{number(processes.world, 'process', 'processes')} × accumulate {stage.settings.accumulate}: "
                f"choose a multiple of {parts}."
            )
    # Synchronised over several GPUs, batch norm has the frames of all.
    alone = stage.settings.batch == parts and (processes.world == 1 or processes.device.type != "cuda")
    if alone and config.model.architecture.startswith("deeplab"):
        raise one_frame_alone(stage.key, config.model.architecture)


# Open


def open_session(
    config: Config, stages: Sequence[AnyStage], run: Run, processes: Processes, console: Console | None
) -> Session:
    """Load data and networks, check that they fit the run, and write its config and data."""
    processes.share(lambda: run.require_same_config(config))
    known = processes.share(lambda: run.data if run.is_begun and run.has_data else None)
    opened = processes.first_then_all(lambda: open_data(config))
    is_finished = processes.share(lambda: run.is_finished)
    if not is_finished:
        processes.share(lambda: _validate_data(opened, config, stages))
    segmenter = starting_segmenter(config, len(opened.dataset.classes), processes)
    for stage in stages:
        if isinstance(stage, Stage):
            stage.validate_segmenter(segmenter)
    console = _console(console, processes)
    data = processes.share(lambda: _describe_data(known, config, opened, segmenter, console))
    session = Session(run, config, opened, data, processes, console, segmenter, stages)
    if is_finished:
        processes.share(lambda: run.require_unchanged(config, data))
        _print_overview(session)
        session.print("The run is finished: nothing is trained.")
        return session
    is_trained = processes.share(lambda: all(run.stage(*one).is_done for one in _numbered(stages)))
    machine = None if is_trained else environment(processes.device, processes.precision(config.compute))
    processes.share(lambda: run.begin(config, data, machine))
    _print_overview(session)
    return session


def _numbered(stages: Sequence[AnyStage]) -> list[tuple[int, str]]:
    return [(place, stage.name) for place, stage in enumerate(stages, 1)]


def _console(console: Console | None, processes: Processes) -> Console:
    return (console or Console(stderr=True)) if processes.first else Console(quiet=True)


def open_data(config: Config) -> Opened:
    """Load the data that a config names."""
    data, dataset = config.data, _load(config)
    require_labels(dataset)  # before validation takes some
    dataset = carve_validation(dataset, data.validation)
    if not dataset.split("train"):
        raise UserError(f"{data.root} has no training videos: its split must name some under train.")
    labelling = choose(dataset, data.labelling)
    further = [video for path in data.unlabelled for video in load_dataset(path)]
    dataset, seen = add_unlabelled(dataset, further, data.seen)
    return Opened(dataset, labelling, seen)


def open_data_of(record: Mapping[str, Any], config: Config) -> Opened:
    """Load the data of a trained run, with the split, names and labels of its `data.json`."""
    dataset = match_record(record, _load(config), Fingerprints(config.data.cache))
    return Opened(dataset, Labelling(labelled_frames(record)), frozenset(record.get("seen", ())))


def _load(config: Config) -> Dataset:
    dataset = load_dataset(config.data.root, config.data.source, **config.data.options)
    dataset.require_whole_cases()
    dataset.require_videos()
    dataset.require_clear_masks()
    return take_fold(dataset, config.data.fold)


def _validate_data(opened: Opened, config: Config, stages: Sequence[AnyStage]) -> None:
    """Raise `UserError` if the data cannot be learnt from or scored."""
    frames = sum(len(video.usable) for video in opened.dataset.split("train"))
    for stage in stages:
        if isinstance(stage, Stage) and stage.instead and opened.labelling.count == frames:
            raise UserError(
                f"method: all {frames} training frames are labelled and this method learns from unlabelled ones: use "
                f"{stage.instead} (--set method={stage.instead}), or label fewer (data.labelling)."
            )
        if isinstance(stage, PseudoLabels):
            opened.dataset.classes.flip_order(stage.settings.flip)
    _validate_scoring(opened, config)
    start = config.model.start
    if start is not None and (changes := renamed(Run(start).classes, opened.dataset.classes.names)):
        raise UserError(f"model.start: {start} has other classes ({changes}): start from a run on the same classes.")


def _validate_scoring(opened: Opened, config: Config) -> None:
    """Raise `UserError` if protocol or masks cannot be scored."""
    settings = config.evaluation
    opened.dataset.classes.flip_order(settings.flip)
    protocol_of(opened.dataset, settings.include_background).validate_classes(opened.dataset.classes.names)
    sets = opened.frames_to_score(settings.splits, settings.completion)
    places = [(video, index) for frames in sets.values() for video, indices in frames.items() for index in indices]
    validate_masks(opened.dataset, places)


def _describe_data(
    known: Mapping[str, Any] | None, config: Config, opened: Opened, start: Segmenter, console: Console
) -> dict[str, Any]:
    """Make the content of `data.json`; classes that validation leaves out are chosen once, at the first start."""
    dataset = opened.dataset
    record = data_record(dataset, opened.labelling, config, start)
    if opened.seen:
        record["seen"] = sorted(opened.seen)
    if known is not None:
        return record | {key: value for key, value in known.items() if key == "unlearnt"}
    if not config.data.validation:
        return record
    masks = sum(len(video.with_mask) for video in dataset.split("train"))
    with bar("look for classes", masks, console) as (progress, task):
        return record | {
            "unlearnt": find_unlearnt_classes(dataset, config.data.validation, lambda: progress.advance(task))
        }


def _print_overview(session: Session) -> None:
    """Print videos, labels and stages of the run, and hints of its method."""
    config, dataset, labelling = session.config, session.opened.dataset, session.opened.labelling
    videos = dataset.split("train")
    frames = sum(len(video.usable) for video in videos)
    cases, masks = len({video.case for video in videos}), sum(len(video.with_mask) for video in videos)
    chosen = f", by data.labelling, of {masks} with masks" if labelling.count < masks else ""
    by_name = " (separated by the names of images)" if dataset.videos_by == "name" else ""
    session.print(*dataset.notes)
    if lost := dataset.unmatched_masks:
        session.print(f"{number(len(lost), 'mask')} of no frame, such as {Path(lost[0]).name}: {messages.NAME}.")
    session.print(
        f"{dataset.name}: {number(len(videos), 'training video')}{by_name} of {number(cases, 'case')}, {frames} "
        f"frames, {labelling.count} labelled ({labelling.ratio(dataset):.1%}{chosen}); "
        f"{config.method['name']}, seed {config.seed}: {' → '.join(stage.name for stage in session.stages)}"
    )
    without = [video.id for video in videos if not labelling[video.id]]
    if without:
        uses = any(isinstance(stage, Stage) and not stage.labels_alone for stage in session.stages)
        are = "are unlabelled data" if uses else "are not used by this method"
        session.print(f"{number(len(without), 'video')} without labels {are}: {listed(without, NAMED)}.")
    if session.opened.seen:
        session.print("Videos for validation or test are trained on without their labels: their scores are `seen`.")
    with_frames = [video for video in videos if video.usable]
    for stage in session.stages:
        if isinstance(stage, Stage) and (
            hint := stage.hint(len({video.case for video in with_frames}), len(with_frames))
        ):
            session.print(hint)


# Score


def score(session: Session, *, keep: bool = True) -> dict[str, Any]:
    """Score the session's segmenter on new videos and completion; write `metrics.json` unless `keep` is False.

    Labels that are a run's outcome are scored in completion alone.
    """
    processes, opened, settings = session.processes, session.opened, session.config.evaluation
    labels = next((stage for stage in session.stages if isinstance(stage, PseudoLabels) and stage.is_outcome), None)
    splits = () if labels else settings.splits
    sets = opened.frames_to_score(splits, settings.completion)
    masks = None
    if labels:
        masks = labels.masks(session.run.folder, TrainingFrames(opened.dataset, opened.labelling, pixels=None))
    if keep:
        processes.share(lambda: _require_no_lost_scores(session.run, sets))
    session.segmenter.to(processes.device).eval()
    metrics = {
        name: session.score(session.segmenter, name, frames, f"evaluate {name}", masks) for name, frames in sets.items()
    }
    if keep and processes.first:
        write_json(session.run.folder / "metrics.json", metrics)
    return metrics


def _require_no_lost_scores(run: Run, sets: Mapping[str, Frames]) -> None:
    """Raise if scores of fewer frames would replace others, as when a disk is not mounted."""
    before: dict[str, Any] = {}
    with suppress(UserError):  # a damaged file holds nothing to lose
        before = run.metrics
    for name, scores in before.items():
        lost = scores["overall"]["frames"] - sum(map(len, sets.get(name, {}).values()))
        if lost > 0:
            raise UserError(
                f"{run.folder / 'metrics.json'} holds scores of {number(lost, 'frame')} of {name} that cannot be "
                "scored now: put their videos and masks back, or move the file away to score the rest."
            )


def evaluate_run(
    folder: Path, overrides: Sequence[str] = (), console: Console | None = None, *, origin: str = "the settings given"
) -> dict[str, Any]:
    """Score a trained run again.

    Args:
        folder: The run folder.
        overrides: Other settings of `compute` and `evaluation`, as `KEY=VALUE`. With other settings of `evaluation`
            the scores are returned, but not written: those in `metrics.json` are by the run's own settings.
        console: Where progress is shown; standard error by default.
        origin: Source of the overrides, for messages.
    """
    validate_scoring_overrides(overrides, origin)
    run = Run(folder)
    own = run.config
    settings = own.model_dump(mode="json")
    for override in overrides:
        set_value(settings, override, origin)
    config = parse_config(settings, origin)
    validate_scales(config.evaluation.scales, "evaluation.scales")
    model = run.model()
    processes = start_processes(config)
    with _locked(run, processes), explain_failures(run.folder):
        data = processes.share(lambda: run.data)
        opened = processes.first_then_all(lambda: open_data_of(data, config))
        stages = list(config.build_method().stages())
        session = Session(run, config, opened, data, processes, _console(console, processes), model.segmenter, stages)
        _require_same_classes(session, model.names)
        processes.share(lambda: _validate_scoring(opened, config))
        session.print(*opened.dataset.notes)
        keep = config.evaluation == own.evaluation
        if not keep:
            session.print("Scores by other settings than the run's own: shown, but not kept in metrics.json.")
        return score(session, keep=keep)


def _require_same_classes(session: Session, names: Sequence[str]) -> None:
    """Raise `UserError` if the dataset's classes are not those of the trained model."""
    dataset = session.opened.dataset
    changes = renamed(names, dataset.classes.names) or "; ".join(changed_values(session.data, dataset.classes.meanings))
    if changes:
        raise UserError(
            f"{session.run.folder} was trained with other classes than {dataset.root} has now ({changes}): "
            "restore the class table and the values of masks that it was trained with, or train another run."
        )
