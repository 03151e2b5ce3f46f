"""Run the stages of a run: their input, training and output files.

A stage is done when its `done.json` exists. An unfinished stage resumes from its `last.ckpt`.
"""

import time
from pathlib import Path
from typing import Any, cast

import torch

from suture.checks.check import require_classes_to_learn
from suture.core.errors import UserError
from suture.core.io import write_json
from suture.core.schemas import ShotsRecord, read_record
from suture.core.signals import ended_by
from suture.core.text import NAMED, listed
from suture.core.workers import cores
from suture.data.sampling.frames import TrainingFrames
from suture.data.shots import stored_shots
from suture.data.store import FrameStore, storage_size
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import START, Stage, StageContext
from suture.models.model import load_model, save_model
from suture.models.model_files import WEIGHTS
from suture.models.segmenter import Segmenter, build_segmenter
from suture.training.best_weights import BestWeights
from suture.training.callbacks import (
    CHECKPOINT_DUE,
    Checkpoint,
    Curve,
    StageProgress,
    TensorBoard,
    bar,
    memory_peak,
    require_finite,
)
from suture.training.config import Config, LoggerSettings
from suture.training.distributed import Processes
from suture.training.explain_failures import is_lost_loader
from suture.training.loop import TrainingLoop
from suture.training.session import Session


def starting_segmenter(config: Config, classes: int, processes: Processes) -> Segmenter:
    """Build the segmenter that the first stage starts from; the first process downloads its weights."""
    model = config.model

    def build() -> Segmenter:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            segmenter = build_segmenter(
                model.architecture,
                model.encoder,
                classes,
                model.output_stride,
                None if model.start else model.weights,
                model.layout,
                freeze_encoder=model.freeze_encoder,
                gradient_checkpointing=model.gradient_checkpointing,
            )
        if model.start is not None:
            segmenter.load_state_dict(load_model(model.start / WEIGHTS, segmenter.describe()).state_dict())
        return segmenter

    segmenter = processes.first_then_all(build)
    return segmenter.to(memory_format=torch.channels_last)  # faster convolutions


def make_context(session: Session) -> StageContext:
    """Open the frame store, detect shots, and collect what all stages need."""
    config, processes = session.config, session.processes
    frames = processes.first_then_all(lambda: open_frames(session))
    processes.share(lambda: _print_unseen_classes(session, frames))
    workers = config.compute.workers
    if workers is None:
        workers = min(8, cores(processes.local_world)) if processes.device.type == "cuda" else 0
    return StageContext(
        frames=frames,
        segmenter=session.segmenter,
        size=config.data.height_width,
        seed=config.seed,
        shots=processes.first_then_all(lambda: _shots(session, frames)),
        folder=session.run.folder,
        device=processes.device,
        autocast=processes.autocast(config.compute),
        workers=workers,
        compile=None if config.compute.compile == "auto" else config.compute.compile,
        # fp16 cannot be captured: its gradient scale changes between steps. Checkpointing reads the random state.
        capture=processes.device.type == "cuda"
        and not config.model.gradient_checkpointing
        and processes.world == 1
        and processes.precision(config.compute) != "16",
        rank=processes.rank,
        world=processes.world,
    )


def open_frames(session: Session) -> TrainingFrames:
    """Open the training frames in the frame store."""
    data, dataset, labelling = session.config.data, session.opened.dataset, session.opened.labelling
    smallest = min((stage.settings.smallest_crop for stage in session.stages if isinstance(stage, Stage)), default=1)
    size = data.store_size or storage_size(min(data.height_width), smallest)
    videos = dataset.split("train")
    usable = {video.id: video.usable for video in videos}
    labelled = {video.id: labelling[video.id] for video in videos}
    store = FrameStore.open(dataset, usable, labelled, size, data.cache, progress=session.processes.first)
    return TrainingFrames(dataset, labelling, store)


def _print_unseen_classes(session: Session, frames: TrainingFrames) -> None:
    """Print the classes that no labelled frame shows; require two classes that some frame shows."""
    seen = {position for labelled in frames.labelled.tolist() for position in frames.shows(labelled)}
    names = frames.classes.names
    require_classes_to_learn(session.opened.dataset, [names[position] for position in seen], len(frames.labelled))
    if unseen := [name for position, name in enumerate(names) if position not in seen]:
        they = "they" if len(unseen) > 1 else "it"
        session.print(f"No labelled frame shows {listed(unseen, NAMED)}: {they} cannot be learnt.")


def _shots(session: Session, frames: TrainingFrames) -> list[int]:
    """Return the shot of every training frame; detect shots once and keep them in `shots.json`."""
    path = session.run.folder / "shots.json"
    if not path.exists():
        with bar("detect shots", len(frames), session.console) as (progress, task):
            shots = stored_shots(
                frames.videos,
                cast(FrameStore, frames.pixels),
                session.config.data.shots,
                progress=lambda done: progress.advance(task, done),
            )
        write_json(path, {video: list(detected.starts) for video, detected in shots.items()})
    shot_of: list[int] = (frames.places.marked(read_record(path, ShotsRecord)).cumsum() - 1).tolist()
    return shot_of


def run_stages(session: Session) -> None:
    """Run all stages that are not done; leave the final weights in the session's segmenter."""
    context = make_context(session)
    weights: dict[str, Path] = {}
    start = {name: tensor.clone() for name, tensor in context.segmenter.state_dict().items()}
    latest, labels = START, None

    def load(origin: str) -> None:
        if origin == START:
            context.segmenter.load_state_dict(start)
            return
        path = weights[origin]
        if not path.is_file():
            raise UserError(
                f"{path} does not exist, but its stage is done: restore it, or remove done.json beside it to train the "
                "stage again."
            )
        context.segmenter.load_state_dict(load_model(path, context.segmenter.describe()).state_dict())

    for number, stage in enumerate(session.stages, 1):
        in_folder = session.run.stage(number, stage.name)
        title = f"stage {number} of {len(session.stages)}: {stage.name}"
        is_done = session.processes.share(lambda one=in_folder: one.is_done)  # type: ignore[misc]
        if not is_done:
            load(stage.start_from or latest)
        if isinstance(stage, PseudoLabels):
            labels = stage
            if not is_done:
                _label(session, context, stage, in_folder.folder, title)
        else:
            if not is_done:
                if labels is not None:
                    session.processes.share(lambda one=labels: _require_same_labels(session, context, one))  # type: ignore[misc]
                    labels.load(context)
                _train(session, context, stage, in_folder.folder, title)
            latest, weights[stage.name] = stage.name, in_folder.folder / "weights.safetensors"
    load(latest)
    if session.processes.first:
        session.run.write_model(context.segmenter, session.opened.dataset, context.size)


def _label(session: Session, context: StageContext, stage: PseudoLabels, folder: Path, title: str) -> None:
    """Write the pseudo labels of a stage; finished videos are its checkpoints."""
    began = time.perf_counter()
    frames = len(context.frames.unlabelled)
    with bar(title, frames, session.console) as (progress, task):
        stage.run(context, lambda done, total: progress.update(task, completed=done, total=total))
    session.processes.wait()
    if session.processes.first:
        seconds = round(time.perf_counter() - began, 3)
        write_json(folder / "done.json", {"frames": frames, "seconds": seconds, "sha256": stage.digest(context)})
    session.processes.wait()


def _require_same_labels(session: Session, context: StageContext, labels: PseudoLabels) -> None:
    """Raise `UserError` if pseudo labels are not as their stage wrote them."""
    record = session.run.stage_records[labels.name]
    folder = labels.folder(context.folder)
    if record["sha256"] != labels.digest(context):
        raise UserError(
            f"The pseudo labels in {folder} were changed since they were written: restore them, or remove them and "
            f"done.json of stage {labels.name} to make them again."
        )


def _train(session: Session, context: StageContext, stage: Stage, folder: Path, title: str) -> None:
    """Train a stage to its end, from its last checkpoint if there is one."""
    processes, compute = session.processes, session.config.compute
    agree = processes.largest if processes.world > 1 else None
    checkpoint = Checkpoint(folder / "last.ckpt", compute.checkpoint_every, agree)
    processes.share(lambda: folder.mkdir(parents=True, exist_ok=True))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    stage.begin(context)
    best = _best_weights(session, stage, folder)
    loggers = _loggers(compute.logger, folder) if processes.first else []
    loop = TrainingLoop(
        stage,
        [
            checkpoint,  # first, so that a failing validation costs no step
            *([best] if best else []),
            Curve(folder / "metrics.csv", compute.log_every, checkpoint.path, loggers),
            StageProgress(title, session.console),
        ],
    )
    has_begun = processes.share(checkpoint.path.exists)
    with checkpoint.handling_signals():
        try:
            if has_begun:
                checkpoint.load(loop)
            loop.run()
        except (KeyboardInterrupt, SystemExit, RuntimeError) as error:
            # A loader process may receive the signal too, before it ignores it.
            if not checkpoint.signal or (isinstance(error, RuntimeError) and not is_lost_loader(error)):
                raise
            _print_end(session, title, checkpoint.kept)
            raise ended_by(checkpoint.signal) from error
        stage.end()
        require_finite(stage, checkpoint.path, weights=True)
        if processes.first:
            segmenter = stage.outcome()
            outcome: dict[str, Any] = {"loss": float(stage.last_loss), "peak_memory": memory_peak()}
            if best:
                outcome["best"] = best.load_into(segmenter)
            save_model(segmenter, folder / "weights.safetensors")
            outcome["seconds"] = round(checkpoint.seconds, 3)
            write_json(folder / "done.json", stage.facts() | outcome)
            checkpoint.path.unlink(missing_ok=True)
        processes.wait()
        request = checkpoint.request()
    if request > CHECKPOINT_DUE:  # received in the last step
        _print_end(session, title, stage.total_steps)
        raise ended_by(request)


def _print_end(session: Session, title: str, kept: int | None) -> None:
    steps = "" if kept is None else f"; {kept} steps are saved"
    session.console.print(f"{title} was interrupted{steps}", highlight=False, soft_wrap=True)


def _best_weights(session: Session, stage: Stage, folder: Path) -> BestWeights | None:
    """Create the callback that chooses weights, if the stage has `best_every`."""
    every = stage.settings.best_every
    if every is None:
        return None
    dataset = session.opened.dataset
    frames = session.opened.frames_to_score(["val"], completion=False).get("val")
    if not frames:
        raise UserError(
            f"{stage.key}.best_every is set, but no validation video of {dataset.root} has masks: name training cases "
            "or videos in data.validation."
        )
    return BestWeights(folder, every, lambda segmenter: session.score(segmenter, "val", frames)["primary"]["value"])


def _loggers(settings: LoggerSettings | None, folder: Path) -> list[Any]:
    """Create TensorBoard's logger, and the one that the config names."""
    loggers: list[Any] = [TensorBoard(folder / "tensorboard")]
    if settings is not None:
        import lightning.pytorch.loggers as kinds

        try:
            kind = getattr(kinds, settings.kind.rpartition(".")[2])
            loggers.append(kind(**settings.arguments))
        except Exception as error:
            raise UserError(f"compute.logger: {settings.kind} cannot be made ({error}).") from error
    return loggers
