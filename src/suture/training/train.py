"""A run: one method on one dataset with one seed, in one folder.

`train` goes through the method's stages in order, then evaluates. Starting the same run again goes on, to the same
weights as if it had never stopped.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from suture.checks.check import require_labels, validate_masks
from suture.core.errors import UserError
from suture.core.io import write_json
from suture.core.schemas import labelled_frames
from suture.core.settings import validate_scales
from suture.core.text import listed, number
from suture.data import messages as mends
from suture.data.classes import IGNORE, renamed
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset
from suture.data.datasets.folder import require_outside_dataset
from suture.data.fingerprint import Fingerprints
from suture.data.labelling import Labelling, choose
from suture.data.sampling.frames import carve_validation, find_unlearnt_classes
from suture.evaluation.scoring import Frames, frames_to_score, protocol_of
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import Stage, one_frame_alone
from suture.models.segmenter import Segmenter
from suture.training.callbacks import bar
from suture.training.config import Config, parse_config
from suture.training.distributed import Processes
from suture.training.failures import explained
from suture.training.overrides import set_value, validate_scoring_overrides
from suture.training.provenance import as_met, data_record, environment, refuse_renamed
from suture.training.run_folder import Run, changed_values
from suture.training.session import Opened, Session
from suture.training.stages import (
    AnyStage,
    logger_class,
    make_job,
    report_unseen_classes,
    run_stages,
    starting_segmenter,
)

KEPT = 200
"""Bytes that even the smallest networks keep of each pixel while they learn; usual ones keep fifty times as many."""

__all__ = ["Opened", "Run", "evaluate", "evaluate_run", "open_data", "open_data_of", "train"]


def open_data(config: Config, record: Mapping[str, Any] | None = None) -> Opened:
    """Load what a config names, and refuse what would make its scores worthless; `record` is a begun run's."""
    data, dataset = config.data, _load(config, record)
    require_labels(dataset)  # before: what validation holds out is no fault of the dataset
    dataset = carve_validation(dataset, data.validation)
    if not dataset.split("train"):
        raise UserError(f"{data.root} has no training videos: its split must name some under train.")
    return Opened(dataset, choose(dataset, data.labelling))


def open_data_of(record: Mapping[str, Any], config: Config) -> Opened:
    """The data of a run that has learnt, in the split and with the names and labels that its `data.json` has, whatever
    they are today; what was labelled since can be scored."""
    dataset = as_met(record, _load(config, record), Fingerprints(config.data.cache))
    return Opened(dataset, Labelling(labelled_frames(record)))


def _load(config: Config, record: Mapping[str, Any] | None) -> Dataset:
    dataset = load_dataset(config.data.root, config.data.source, **config.data.options)
    dataset.require_whole_cases()
    if record is not None and dataset.missing_videos:
        refuse_renamed(record, dataset, Fingerprints(config.data.cache))
    dataset.require_videos()
    dataset.require_clear_masks()
    return dataset


def train(config: Config, folder: Path, console: Console | None = None) -> dict[str, Any]:
    """Run all stages of a config in a folder, or go on where it was left; evaluate; give the scores."""
    processes = _start(config)
    run = Run(folder)
    stages = list(config.build_method().stages())
    processes.first_only(lambda: _refuse_impossible(config, stages, processes))
    processes.first_only(lambda: validate_memory(config, stages, processes.memory, processes.world, processes.sharing))
    processes.first_only(run.require_free_folder)
    if not run.is_begun:
        processes.first_only(lambda: require_outside_dataset(run.folder))
        processes.first_only(lambda: _refuse_pseudo_scales(stages))
    with _locked(run, processes), explained(run.folder):
        # Told first: a preset that was forgotten this time would fetch weights for nothing, or fail to.
        processes.first_only(lambda: run.require_same_config(config))
        known = processes.first_only(lambda: run.data if run.is_begun and run.has_data else None)
        opened = processes.first_then_all(lambda: open_data(config, known))
        _refuse_unchoosable(opened, stages)
        _refuse_all_labelled(opened, stages)
        finished = processes.agreed(run.is_finished)
        if not finished:
            processes.first_only(lambda: _refuse_wrong_scored(opened, config, stages))
        segmenter = starting_segmenter(config, len(opened.dataset.classes), processes)
        for stage in stages:
            if isinstance(stage, Stage):
                stage.refuse(segmenter)
        terminal = _console(console, processes)
        data = processes.first_only(lambda: _record(known, config, opened, segmenter, terminal))
        session = Session(run, config, opened, data, processes, terminal)
        if finished:
            # Nothing is written: its papers are to tell of the machine that it was trained on.
            processes.first_only(lambda: run.require_unchanged(config, data))
            _announce(session, stages)
            session.console.print("The run is finished: nothing is trained.", highlight=False)
            return processes.agreed(run.metrics)
        trained = processes.agreed(all(run.stage(number, stage.name).is_done for number, stage in enumerate(stages, 1)))
        machine = None if trained else environment(processes.device, processes.precision(config.compute))
        if not trained:
            processes.first_only(lambda: _refuse_unlearnt_validation(session, stages))
        processes.first_only(lambda: run.begin(config, data, machine))
        _announce(session, stages)
        processes.first_only(lambda: report_unseen_classes(session, stages))
        job = make_job(session, stages, segmenter)
        run_stages(session, job, stages)
        if processes.first:
            run.write_model(job.segmenter, opened.dataset, config.data.height_width)
        kept = processes.agreed(run.metrics)
        return kept or evaluate(session, job.segmenter)


def _record(
    known: Mapping[str, Any] | None, config: Config, opened: Opened, start: Segmenter, console: Console
) -> dict[str, Any]:
    """What the run learns from. What its validation is not asked for is decided once, before the first stage."""
    dataset = opened.dataset
    found = data_record(dataset, opened.labelling, config, start)
    if known is not None:
        return found | {key: said for key, said in known.items() if key == "unlearnt"}
    if not config.data.validation:
        return found
    masks = sum(len(video.with_mask) for video in dataset.split("train"))
    with bar("look for classes", masks, console) as (progress, task):
        return found | {
            "unlearnt": find_unlearnt_classes(dataset, config.data.validation, lambda: progress.advance(task))
        }


def evaluate(session: Session, segmenter: Segmenter, *, keep: bool = True) -> dict[str, Any]:
    """Score new videos and completion, and if they are to be kept write them into `metrics.json`."""
    processes, opened, settings = session.processes, session.opened, session.config.evaluation
    sets = frames_to_score(opened.dataset, opened.labelling, settings.splits, settings.completion)
    if keep:
        processes.first_only(lambda: _refuse_fewer(session.run, sets))
    segmenter.to(processes.device).eval()
    metrics: dict[str, Any] = {}
    for name, frames in sets.items():
        metrics[name] = session.score(segmenter, name, frames, f"evaluate {name}")
    if keep and processes.first:
        write_json(session.run.folder / "metrics.json", metrics)
    return metrics


def evaluate_run(
    folder: Path,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    *,
    origin: str = "the settings given",
) -> dict[str, Any]:
    """Score a finished run again, with other settings of `compute` and `evaluation` if wanted, said by `origin`.

    `metrics.json` holds the scores by the run's own `evaluation` settings; those by others are only given back, so that
    a report or a comparison never mixes them.
    """
    validate_scoring_overrides(overrides, origin)
    run = Run(folder)
    own = run.config
    said = own.model_dump(mode="json")
    for override in overrides:
        set_value(said, override, origin)
    config = parse_config(said, origin)
    validate_scales(config.evaluation.scales, "evaluation.scales")
    if not config.data.root.exists():
        raise UserError(
            f"{run.folder / 'config.yaml'}: data.root leads to {config.data.root}, which does not exist: put the data "
            "or the run back where it was, or write there where the data are now."
        )
    model = run.model()
    processes = _start(config)
    with _locked(run, processes), explained(run.folder):
        data = processes.first_only(lambda: run.data)
        opened = processes.first_then_all(lambda: open_data_of(data, config))
        session = Session(run, config, opened, data, processes, _console(console, processes))
        _refuse_other_classes(session, model.names)
        processes.first_only(lambda: _refuse_wrong_scored(opened, config))
        _say(_notes(opened.dataset), session.console)
        keep = config.evaluation == own.evaluation
        if not keep:
            session.console.print("Scores by other settings than the run's own: shown, but not kept in metrics.json.")
        return evaluate(session, model.segmenter, keep=keep)


def _refuse_fewer(run: Run, sets: Mapping[str, Frames]) -> None:
    """Scores of fewer frames never take the place of others: a disk may be unmounted, a folder renamed."""
    before: dict[str, Any] = {}
    with suppress(UserError):  # what cannot be read is no loss, and to be made again
        before = run.metrics
    told = []
    for which, scores in before.items():
        now = sets.get(which, {})
        fewer = {video: one["frames"] - len(now.get(video, ())) for video, one in scores["videos"].items()}
        if lost := {video: count for video, count in fewer.items() if count > 0}:
            told.append(f"{which}: {sum(lost.values())} of {scores['overall']['frames']}, such as of {min(lost)}")
    if told:
        raise UserError(
            f"{run.folder / 'metrics.json'} holds scores of frames that can no longer be scored ({'; '.join(told)}): "
            "put back their videos, masks and cases as they were, or move the file away to score what is left."
        )


def _refuse_other_classes(session: Session, names: Sequence[str]) -> None:
    """A model's class 3 must be the labels' class 3, or its scores mean nothing."""
    folder, dataset = session.run.folder, session.opened.dataset
    if changed := renamed(names, dataset.classes.names):
        raise UserError(
            f"{folder} was trained with other classes than {dataset.root} has now ({changed}): "
            "restore the class table that it was trained with, or train another run."
        )
    if others := changed_values(session.data, dataset.classes.meanings):
        raise UserError(
            f"{folder} was trained with masks whose values mean other classes now ({'; '.join(others)}): restore "
            f"what {dataset.root} said of them, or train another run."
        )


def _start(config: Config) -> Processes:
    # Lightning's hints are for people who write Trainers.
    for name in ("lightning", "lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
    warnings.filterwarnings("ignore", message="Grad strides do not match")  # nothing that a user could mend
    processes = Processes.start(config.compute)
    if processes.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    return processes


def _console(console: Console | None, processes: Processes) -> Console:
    return (console or Console(stderr=True)) if processes.first else Console(quiet=True)


@contextmanager
def _locked(run: Run, processes: Processes) -> Iterator[None]:
    """The run's lock, held by the first process for all of them."""
    with ExitStack() as held:
        processes.first_only(lambda: held.enter_context(run.locked()))
        yield


def _refuse_impossible(config: Config, stages: Sequence[AnyStage], processes: Processes) -> None:
    """What would only come to light hours later."""
    if config.compute.logger is not None:
        logger_class(config.compute.logger)
    for stage in stages:
        if isinstance(stage, Stage):
            parts = stage.settings.accumulate * processes.world
            for name, frames in stage.batches.items():
                if frames % parts:
                    raise UserError(
                        f"{stage.key}.{name} is {frames}, which cannot be divided among "
                        f"{number(processes.world, 'process', 'processes')} × accumulate {stage.settings.accumulate}: "
                        f"choose a multiple of {parts}."
                    )
            # DeepLab's batch norm on pooled features needs two values; synchronised over several GPUs, it has them.
            alone = stage.settings.batch == parts and (processes.world == 1 or processes.device.type != "cuda")
            if alone and config.model.architecture.startswith("deeplab"):
                raise one_frame_alone(stage.key, config.model.architecture)


def validate_memory(config: Config, stages: Sequence[AnyStage], memory: int, world: int = 1, sharing: int = 1) -> None:
    """A step that cannot fit into its part of so many bytes of memory: the system would end it without a word."""
    height, width = config.data.height_width
    for stage in stages:
        if isinstance(stage, Stage):
            frames = stage.settings.batch // (stage.settings.accumulate * world)
            needed = frames * height * width * KEPT
            if needed * sharing > memory:
                shared = f", shared by {sharing} processes: let fewer share it," if sharing > 1 else ":"
                raise UserError(
                    f"data.size is {height}×{width}: in the stage {stage.name}, {number(frames, 'frame')} of that size "
                    f"at a time need more than {needed / 2**30:,.0f} GiB, and the memory here is "
                    f"{memory / 2**30:,.0f} GiB{shared} lower data.size or {stage.key}.batch, or raise "
                    f"{stage.key}.accumulate."
                )


def _refuse_unchoosable(opened: Opened, stages: Sequence[AnyStage]) -> None:
    """The best weights can only be chosen where there are validation videos to choose by."""
    key = _choosing(stages)
    if key and not frames_to_score(opened.dataset, opened.labelling, ["val"], completion=False):
        raise UserError(
            f"{key}.best_every is set, but there are no validation videos with masks to choose by: "
            "name some training cases or videos in data.validation."
        )


def _refuse_unlearnt_validation(session: Session, stages: Sequence[AnyStage]) -> None:
    """And only by masks that show something which counts in their scores; most often the first one does."""
    dataset, key = session.opened.dataset, _choosing(stages)
    if key is None:
        return
    names, shown = dataset.classes.names, set[str]()
    counted = session.protocol("val").counted(names)
    for video in dataset.split("val"):
        for index in video.with_mask:
            ids = np.unique(dataset.read_mask(video, index))
            shown.update(names[position] for position in ids if position != IGNORE)
            if shown.intersection(counted):
                return
    only = listed([name for name in names if name in shown]) or "ignored pixels"
    raise UserError(
        f"{key}.best_every is set, but the validation masks of {dataset.root} show only {only}, expected a class that "
        "is learnt and scored: choose other training cases or videos in data.validation."
    )


def _choosing(stages: Sequence[AnyStage]) -> str | None:
    """The first stage that hands on its best weights, by its place in the config."""
    return next((stage.key for stage in stages if isinstance(stage, Stage) and stage.settings.best_every), None)


def _refuse_wrong_scored(opened: Opened, config: Config, stages: Sequence[AnyStage] = ()) -> None:
    """Rules or sizes that nothing can be scored by, and masks that nothing can be scored on, or weights chosen by."""
    settings = config.evaluation
    validate_scales(settings.scales, "evaluation.scales")
    protocol_of(opened.dataset, settings.include_background).validate_classes(opened.dataset.classes.names)
    splits = {*settings.splits} | ({"val"} if _choosing(stages) else set())
    sets = frames_to_score(opened.dataset, opened.labelling, sorted(splits), settings.completion)
    places = [(video, index) for frames in sets.values() for video, indices in frames.items() for index in indices]
    validate_masks(opened.dataset, places)


def _refuse_pseudo_scales(stages: Sequence[AnyStage]) -> None:
    """Told to new runs alone: one that was begun cannot change them any more."""
    for stage in stages:
        if isinstance(stage, PseudoLabels):
            validate_scales(stage.settings.scales, "method.pseudo.scales")


def _refuse_all_labelled(opened: Opened, stages: Sequence[AnyStage]) -> None:
    """A method that learns from unlabelled frames needs some: told before all frames are stored, which takes long."""
    instead = next((stage.instead for stage in stages if isinstance(stage, Stage) and stage.instead), None)
    frames = sum(len(video.usable) for video in opened.dataset.split("train"))
    if instead and opened.labelling.count == frames:
        raise UserError(
            f"method: all {frames} training frames are labelled and this method learns from unlabelled ones: use "
            f"{instead} (--set method={instead}), or label fewer (data.labelling)."
        )


def _notes(dataset: Dataset) -> list[str]:
    """What is told of a dataset that is learnt from, or scored on."""
    by_id = dataset.labels_by_id
    return [*dataset.notes, *([f"{mends.by_id(by_id)}; {mends.BY_ID}."] if by_id else [])]


def _say(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def _announce(session: Session, stages: Sequence[AnyStage]) -> None:
    config, dataset, labelling = session.config, session.opened.dataset, session.opened.labelling
    videos = dataset.split("train")
    frames = sum(len(video.usable) for video in videos)
    cases, masks = len({video.case for video in videos}), sum(len(video.with_mask) for video in videos)
    chosen = f", by data.labelling, of {masks} with masks" if labelling.count < masks else ""
    by_name = " (told apart by the names of images)" if dataset.videos_by == "name" else ""
    lost = dataset.unmatched_masks
    left_out = [f"{number(len(lost), 'mask')} of no frame, such as {Path(lost[0]).name}: {mends.NAME}."] if lost else []
    _say([*_notes(dataset), *left_out], session.console)
    session.console.print(
        f"{dataset.name}: {number(len(videos), 'training video')}{by_name} of {number(cases, 'case')}, {frames} "
        f"frames, {labelling.count} labelled ({labelling.ratio(dataset):.1%}{chosen}); "
        f"{config.method['name']}, seed {config.seed}: {' → '.join(stage.name for stage in stages)}",
        highlight=False,
        soft_wrap=True,
    )
    learnt = [video for video in videos if video.usable]
    of_cases = len({video.case for video in learnt})
    hints = [stage.hint(of_cases, len(learnt)) for stage in stages if isinstance(stage, Stage)]
    _say([hint for hint in hints if hint], session.console)
