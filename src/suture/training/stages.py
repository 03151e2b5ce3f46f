"""The stages of a run, one after the other: what they are given, how Lightning trains them, what they leave behind.

A stage is done when its `done.json` is there; an unfinished one goes on from its `last.ckpt`.
"""

import hashlib
import importlib
import signal
import time
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from suture.checks.check import as_check_reports, require_classes_to_learn
from suture.core.errors import UserError
from suture.core.io import write_json
from suture.core.schemas import ClockRecord, ShotsRecord, read_record
from suture.core.signals import ended_by
from suture.core.text import NAMED, listed
from suture.core.workers import cores
from suture.data.dataset import WrongMask
from suture.data.fingerprint import Fingerprints
from suture.data.sampling.frames import TrainingFrames
from suture.data.shots import stored_shots
from suture.data.store import FrameStore, storage_size
from suture.evaluation.scoring import frames_to_score
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import START, Stage, StageContext
from suture.models.model import load_model, save_model
from suture.models.segmenter import Segmenter, build_segmenter
from suture.training.best_weights import Best
from suture.training.callbacks import LATE, Bar, Checkpoint, Curve, bar, memory_peak, require_finite
from suture.training.config import Config, LoggerSettings
from suture.training.distributed import Processes
from suture.training.failures import lost_loader
from suture.training.session import Session

AnyStage = Stage | PseudoLabels


def starting_segmenter(config: Config, classes: int, processes: Processes) -> Segmenter:
    """The segmenter that stage 1 starts from."""
    model = config.model

    def build() -> Segmenter:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return build_segmenter(
                model.architecture, model.encoder, classes, model.output_stride, model.weights, model.layout
            )

    segmenter = processes.first_then_all(build)  # the first one downloads weights for all
    return segmenter.to(memory_format=torch.channels_last)  # the layout whose convolutions are the fast ones


def make_job(session: Session, stages: Sequence[AnyStage], segmenter: Segmenter) -> StageContext:
    """What all stages are given: the frames at storage size, their shots, the segmenter."""
    config, processes = session.config, session.processes
    frames = processes.first_then_all(lambda: _frames(session, stages))
    workers = config.compute.workers
    if workers is None:
        workers = min(8, cores(processes.local_world)) if processes.device.type == "cuda" else 0
    return StageContext(
        frames=frames,
        segmenter=segmenter,
        size=config.data.height_width,
        seed=config.seed,
        shots=processes.first_then_all(lambda: _shots(session, frames)),
        folder=session.run.folder,
        device=processes.device,
        autocast=processes.autocast(config.compute),
        workers=workers,
        compile=None if config.compute.compile == "auto" else config.compute.compile,
        # The gradients of a step in fp16 are scaled by what Lightning finds out from step to step.
        capture=processes.device.type == "cuda"
        and processes.world == 1
        and processes.precision(config.compute) != "16",
        rank=processes.rank,
        world=processes.world,
    )


def _frames(session: Session, stages: Sequence[AnyStage], *, masks_alone: bool = False) -> TrainingFrames:
    data, dataset, labelling = session.config.data, session.opened.dataset, session.opened.labelling
    smallest = min(stage.settings.smallest_crop for stage in stages if isinstance(stage, Stage))
    size = data.store_size or storage_size(min(data.height_width), smallest)
    videos = dataset.split("train")
    usable = {} if masks_alone else {video.id: video.usable for video in videos}
    labelled = {video.id: labelling[video.id] for video in videos}
    try:
        store = FrameStore.open(dataset, usable, labelled, size, data.cache, progress=session.processes.first)
    except WrongMask as error:
        raise as_check_reports(dataset, error) from error
    return TrainingFrames(dataset, labelling, store)


def report_unseen_classes(session: Session, stages: Sequence[AnyStage]) -> None:
    """Name the classes that no labelled frame shows; refuse to learn from frames that show none or one.

    The masks alone are stored for it: all frames take long.
    """
    frames = _frames(session, stages, masks_alone=True)
    names, seen = frames.classes.names, set[int]()
    for number in frames.labelled.tolist():
        seen.update(frames.shows(number))
        if len(seen) == len(names):
            break
    shown = [names[position] for position in sorted(seen)]
    require_classes_to_learn(session.opened.dataset, shown, len(frames.labelled))
    unseen = [name for position, name in enumerate(names) if position not in seen]
    if not unseen:
        return
    they = "they" if len(unseen) > 1 else "it"
    session.console.print(
        f"No labelled frame shows {listed(unseen, NAMED)}: {they} cannot be learnt.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _shots(session: Session, frames: TrainingFrames) -> list[int]:
    """The shot of every training frame; found once and kept in `shots.json`."""
    path = session.run.folder / "shots.json"
    if not path.exists():
        another = "Another process is looking for shots: waiting for it."
        with bar("find shots", len(frames), session.console) as (progress, task):
            shots = stored_shots(
                frames.videos,
                cast(FrameStore, frames.pixels),  # as `_frames` has opened it
                progress=lambda done: progress.advance(task, done),
                waiting=lambda: session.console.print(another, highlight=False),
            )
        write_json(path, {video: list(found.starts) for video, found in shots.items()})
    shot_of: list[int] = (frames.places.marked(read_record(path, ShotsRecord)).cumsum() - 1).tolist()
    return shot_of


def run_stages(session: Session, job: StageContext, stages: Sequence[AnyStage]) -> None:
    """Do the stages, or what is left of them; the job's segmenter is in the end the one that the last of them left."""
    weights: dict[str, Path] = {}
    start = {name: tensor.clone() for name, tensor in job.segmenter.state_dict().items()}
    latest, labels = START, None

    def take(origin: str) -> None:
        if origin == START:
            job.segmenter.load_state_dict(start)
            return
        path = weights[origin]
        if not path.is_file():
            raise UserError(
                f"{path} is gone, though its stage is done: put it back, or remove done.json beside it to train the "
                "stage again."
            )
        job.segmenter.load_state_dict(load_model(path, job.segmenter.describe()).state_dict())

    for number, stage in enumerate(stages, 1):
        folder = session.run.stage(number, stage.name).folder
        title = f"stage {number} of {len(stages)}: {stage.name}"
        if not session.processes.agreed(session.run.stage(number, stage.name).is_done):
            take(stage.start_from or latest)
            if isinstance(stage, PseudoLabels):
                _label(session, job, stage, folder, title)
            else:
                if labels is not None:
                    labels.load(job)
                _train(session, job, stage, folder, title)
        if isinstance(stage, PseudoLabels):
            labels = stage
        else:
            latest, weights[stage.name] = stage.name, folder / "weights.safetensors"
    take(latest)


def _label(session: Session, job: StageContext, stage: PseudoLabels, folder: Path, title: str) -> None:
    began, first = time.perf_counter(), session.processes.first
    # What led up to the last finished video, in earlier starts too: those videos are the checkpoints of this stage.
    clock = folder / "clock.json"
    earlier = read_record(clock, ClockRecord)["seconds"] if clock.exists() else 0.0

    def seconds() -> dict[str, float]:
        return {"seconds": round(earlier + time.perf_counter() - began, 3)}

    with bar(title, len(job.frames.unlabelled), session.console) as (progress, task):

        def tell(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)
            if first:
                write_json(clock, seconds())

        stage.run(job, tell)
    session.processes.wait()
    if first:
        write_json(folder / "done.json", {"frames": len(job.frames.unlabelled)} | seconds())
        clock.unlink(missing_ok=True)
    session.processes.wait()


def _train(session: Session, job: StageContext, stage: Stage, folder: Path, title: str) -> None:
    """Train a stage to its end with Lightning, from its last checkpoint if there is one."""
    processes, compute = session.processes, session.config.compute
    checkpoint = folder / "last.ckpt"
    agree = processes.largest if processes.world > 1 else None
    saving = Checkpoint(checkpoint, compute.checkpoint_every, agree, stage.settings.best_every)
    processes.first_only(lambda: folder.mkdir(parents=True, exist_ok=True))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    stage.begin(job)
    best = _best(session, stage, folder)
    trainer = _Trainer(
        max_steps=stage.total_steps,
        max_epochs=-1,
        accumulate_grad_batches=stage.settings.accumulate,
        gradient_clip_val=stage.settings.optimizer.clip,
        callbacks=[
            saving,  # first, so that a look that fails costs no step
            *([best] if best else []),
            Curve(folder / "metrics.csv", compute.log_every, checkpoint),
            Bar(title, session.console),
        ],
        logger=_loggers(compute.logger, folder),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder,
        **processes.trainer_options(compute),
    )
    begun = processes.agreed(checkpoint.exists())
    if begun and not _whole(checkpoint):
        raise UserError(
            f"{checkpoint} is damaged or cut off, so that no training can go on from it: put back a whole copy, or "
            "remove it to begin the stage again."
        )
    with saving.hearing_signals():
        try:
            trainer.fit(stage, ckpt_path=checkpoint if begun else None, weights_only=True)
        except (SystemExit, RuntimeError) as error:
            # Lightning makes another error of Ctrl-C; and a loader's process may have heard a signal too, before it was
            # told not to.
            interrupted = isinstance(error.__context__, KeyboardInterrupt)
            asked = signal.SIGINT if interrupted else saving.asked
            if not asked or not (interrupted or isinstance(error, SystemExit) or lost_loader(error)):
                raise
            _say_end(session, title, saving.kept)
            raise ended_by(asked) from error
        stage.end()
        require_finite(stage, checkpoint, weights=True)
        if processes.first:
            segmenter = stage.outcome()
            outcome: dict[str, Any] = {"loss": float(stage.last_loss), "peak_memory": memory_peak()}
            if best:
                outcome["best"] = best.take(segmenter)
            save_model(segmenter, folder / "weights.safetensors")
            outcome["seconds"] = round(saving.seconds, 3)
            write_json(folder / "done.json", stage.facts() | outcome)
            checkpoint.unlink(missing_ok=True)
        processes.wait()
        asked = saving.heard()
    if asked > LATE:  # in the last step
        _say_end(session, title, stage.total_steps)
        raise ended_by(asked)


def _whole(checkpoint: Path) -> bool:
    """Whether all of a checkpoint is what was written: every part of it has its sum."""
    try:
        with zipfile.ZipFile(checkpoint) as parts:
            return parts.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):  # by which byte is another one
        return False


class _Trainer(L.Trainer):
    """Hears no signal itself: `Checkpoint` chooses where one ends a training.

    Lightning would keep nothing since the last checkpoint. Several processes it lets talk in the middle of whatever the
    signal meets, and wait for their GPUs before every step.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
        self.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]


def _say_end(session: Session, title: str, kept: int | None) -> None:
    what = "" if kept is None else f"; kept are {kept} steps"
    session.console.print(f"{title} is asked to end{what}", highlight=False, soft_wrap=True)


def _best(session: Session, stage: Stage, folder: Path) -> Best | None:
    """Who watches for the best weights, where a stage asks for them."""
    every = stage.settings.best_every
    if every is None:
        return None
    opened = session.opened
    frames = frames_to_score(opened.dataset, opened.labelling, ["val"], completion=False)["val"]
    masks = [opened.dataset[video].masks[index] for video, indices in frames.items() for index in indices]
    prints = Fingerprints(session.config.data.cache)
    return Best(
        folder,
        every,
        score=lambda segmenter: session.score(segmenter, "val", frames)["primary"]["value"],
        masks=lambda: hashlib.sha256("".join(prints.masks(masks)).encode()).hexdigest(),
    )


def _loggers(further: LoggerSettings | None, folder: Path) -> list[Logger]:
    loggers: list[Logger] = [TensorBoardLogger(folder, name="", version="tensorboard")]
    if further is not None:
        try:
            loggers.append(logger_class(further)(**further.arguments))
        except Exception as error:
            raise UserError(f"compute.logger: {further.kind} cannot be made ({error}).") from error
    return loggers


def logger_class(settings: LoggerSettings) -> type[Logger]:
    """The Lightning logger that a config names."""
    module, _, name = settings.kind.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"compute.logger.kind is {settings.kind!r}, which cannot be imported ({error}).") from error
    if not (isinstance(found, type) and issubclass(found, Logger)):
        raise UserError(f"compute.logger.kind is {settings.kind!r}, which is no logger of Lightning.")
    return found
