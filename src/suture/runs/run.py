"""A run: one method on one dataset with one seed, in one folder that is the single truth about it.

`train` goes through the method's stages in order. A stage is done when its `done.json` is there; an unfinished one goes
on from its `last.ckpt`. Starting the same run again goes on, to the same weights as if it had never stopped.
"""

import errno
import fcntl
import importlib
import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from rich.console import Console

from suture.data.dataset import Dataset
from suture.data.labelling import Labelling, choose
from suture.data.shots import shots_of_frames
from suture.data.sources import load_dataset
from suture.data.store import DecodedFrames, FrameStore, storage_size
from suture.data.training import TrainingFrames, carve_validation
from suture.errors import UserError
from suture.evaluation.evaluate import frames_to_score, score_frames, scores
from suture.files import check_format, read_json, read_yaml, write_json, write_text
from suture.methods.pseudo import PseudoLabels
from suture.methods.stage import Job, Stage
from suture.models.pretrained import is_file
from suture.models.segmenter import Segmenter, build_segmenter
from suture.models.weights import load_model, save_model
from suture.runs.callbacks import Bar, Checkpoint, Curve, bar, memory_peak
from suture.runs.config import Config, differences, parse_config, set_value
from suture.runs.processes import Processes
from suture.runs.record import data_record, environment

MODEL_FORMAT = 1
"""The newest `model.json` this version reads."""


@dataclass
class Opened:
    """A run's data: the dataset with validation carved out, and which frames are labelled."""

    dataset: Dataset
    labelling: Labelling


def open_data(config: Config) -> Opened:
    """Load what a config names, and refuse what would make its scores worthless."""
    data = config.data
    dataset = load_dataset(data.root, data.source, **data.options)
    dataset.refuse_divided_cases()
    dataset = carve_validation(dataset, data.validation)
    if not dataset.split("train"):
        raise UserError(f"{data.root} has no training videos: its split must name some under train.")
    return Opened(dataset, choose(dataset, data.labelling))


class Run:
    """The folder of a run and the files in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    @property
    def config(self) -> Config:
        """The resolved config; data and weights are found relative to the run folder."""
        path = self.folder / "config.yaml"
        if not path.exists():
            raise UserError(f"{self.folder} is not a run folder: it has no config.yaml.")
        said = read_yaml(path)
        check_format(path, said.get("format"), Config.model_fields["format"].default)
        return parse_config(_relocated(said, self.folder, os.curdir), str(path))

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The scores, once there are any."""
        path = self.folder / "metrics.json"
        return read_json(path) if path.exists() else None

    def stage_folder(self, number: int, name: str) -> Path:
        """Where a stage keeps its checkpoint, curve and outcome; stages count from 1."""
        return self.folder / "stages" / f"{number}-{name}"

    def segmenter(self) -> Segmenter:
        """The finished model."""
        path = self.folder / "model.json"
        if not path.exists():
            raise UserError(f"{self.folder} has no finished model yet: run `suture train` on it to the end.")
        description = read_json(path)
        check_format(path, description.get("format"), MODEL_FORMAT)
        return load_model(self.folder / "model.safetensors", description["segmenter"])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process off this folder; a killed one leaves no lock behind."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "?"
                raise UserError(
                    f"{self.folder} is in use by process {holder}: wait for it, or choose another folder."
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def begin(self, config: Config, data: dict[str, Any]) -> None:
        """Write down config and data before anything starts; when going on, refuse if either has changed."""
        path = self.folder / "config.yaml"
        said = _relocated(config.model_dump(mode="json"), os.curdir, self.folder)
        if path.exists():
            before = {key: value for key, value in read_yaml(path).items() if key != "compute"}
            if changed := differences(before, {key: value for key, value in said.items() if key != "compute"}):
                raise UserError(
                    f"{self.folder} was begun with another config ({'; '.join(changed[:5])}): "
                    "start the same config again to go on, or give another folder."
                )
        recorded = self.folder / "data.json"
        if recorded.exists() and (changed := differences(read_json(recorded), data)):
            raise UserError(
                f"{self.folder} was begun with other data ({'; '.join(changed[:3])}): "
                "restore the data to go on, or give another folder."
            )
        write_text(path, _yaml(said))
        write_json(recorded, data)


def train(config: Config, folder: Path, console: Console | None = None) -> dict[str, Any]:
    """Run all stages of a config in a folder, or go on where it was left; evaluate; give the scores."""
    console = console or Console(stderr=True)
    _quiet_libraries()
    processes = Processes.start(config.compute)
    if not processes.first:
        console = Console(quiet=True)
    if processes.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    run = Run(folder)
    with run.locked() if processes.first else nullcontext():
        opened = open_data(config)
        method = config.build_method()
        stages = list(method.stages())
        if processes.first:
            run.begin(config, data_record(opened.dataset, opened.labelling, config))
            _append_environment(run, environment(processes.device, processes.precision(config.compute)))
        processes.wait()
        _announce(console, config, opened, stages)
        with _explained(run):
            job = _job(run, config, opened, stages, processes, console)
            for number, stage in enumerate(stages, 1):
                _run_stage(run, config, job, stage, number, len(stages), processes, console)
            if processes.first:
                _write_model(run, config, opened.dataset, job.segmenter)
            return evaluate(run, config, opened, job.segmenter, processes, console)


def evaluate(
    run: Run,
    config: Config,
    opened: Opened,
    segmenter: Segmenter,
    processes: Processes,
    console: Console,
    again: bool = False,
) -> dict[str, Any]:
    """Score new videos and completion, and write `metrics.json`; kept if it is there already, unless `again`."""
    if run.metrics is not None and not again:
        return run.metrics
    settings = config.evaluation
    segmenter.to(processes.device).eval()
    sets = frames_to_score(opened.dataset, opened.labelling, settings.splits, settings.completion)
    metrics: dict[str, Any] = {}
    for name, frames in sets.items():
        with bar(f"evaluate {name}", sum(map(len, frames.values())), console) as (progress, task):
            scorer = score_frames(
                opened.dataset,
                segmenter,
                frames,
                config.data.height_width,
                include_background=settings.include_background,
                progress=lambda done, progress=progress, task=task: progress.advance(task, done),  # type: ignore[misc]
                rank=processes.rank,
                world=processes.world,
                batch=settings.batch,
                flip=settings.flip,
                scales=settings.scales,
                autocast=processes.autocast(config.compute),
            )
        whole, *others = processes.gather(scorer)
        for other in others:
            whole = whole + other
        metrics[name] = scores(opened.dataset, whole, settings.include_background)
    if processes.first:
        write_json(run.folder / "metrics.json", metrics)
    return metrics


def evaluate_run(folder: Path, overrides: Sequence[str] = (), console: Console | None = None) -> dict[str, Any]:
    """Score a finished run again, with other settings of `compute` and `evaluation` if wanted."""
    run = Run(folder)
    said = run.config.model_dump(mode="json")
    for override in overrides:
        if override.split(".")[0] not in ("compute", "evaluation"):
            raise UserError(f"--set {override}: only compute and evaluation can be changed on a finished run.")
        set_value(said, override)
    config = parse_config(said, "the command line")
    processes = Processes.start(config.compute)
    segmenter = run.segmenter()
    with run.locked() if processes.first else nullcontext():
        return evaluate(
            run, config, open_data(config), segmenter, processes, console or Console(stderr=True), again=True
        )


def _job(run: Run, config: Config, opened: Opened, stages: list[Any], processes: Processes, console: Console) -> Job:
    """The frames at storage size, their shots, and the segmenter that stage 1 starts from."""
    data, dataset, labelling = config.data, opened.dataset, opened.labelling
    training = [stage.settings for stage in stages if isinstance(stage, Stage)]
    size = data.store_size or storage_size(min(data.height_width), min(s.augment.crop[0] for s in training))
    videos = dataset.split("train")
    labelled = {video.id: labelling[video.id] for video in videos}
    if data.store:
        pixels: FrameStore | DecodedFrames = processes.first_then_all(
            lambda: FrameStore.open(
                dataset, {v.id: v.usable for v in videos}, labelled, size, data.cache, progress=processes.first
            )
        )
    else:
        pixels = DecodedFrames(dataset, labelled, size)
    frames = TrainingFrames(dataset, labelling, pixels)
    model = config.model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        segmenter = build_segmenter(
            model.architecture, model.encoder, len(dataset.classes), model.output_stride, model.weights, model.layout
        )
    if config.compute.channels_last:
        segmenter.to(memory_format=torch.channels_last)
    workers = config.compute.workers
    if workers is None:
        workers = min(8, (os.cpu_count() or 2) // processes.local_world) if processes.device.type == "cuda" else 0
    return Job(
        frames=frames,
        segmenter=segmenter,
        size=data.height_width,
        seed=config.seed,
        shots=processes.first_then_all(lambda: _shots(run, frames, console)),
        folder=run.folder,
        device=processes.device,
        autocast=processes.autocast(config.compute),
        workers=workers,
        compile=config.compute.compile,
        rank=processes.rank,
        world=processes.world,
    )


def _shots(run: Run, frames: TrainingFrames, console: Console) -> list[int]:
    """The shot of every training frame; found once and kept in `shots.json`."""
    path = run.folder / "shots.json"
    if not path.exists():
        found = {}
        with bar("find shots", len(frames.videos), console) as (progress, task):
            for video in frames.videos:
                pictures = (frames.pixels.frame(video.id, index) for index in video.usable)
                shots = shots_of_frames(pictures, [video.frames[index].number for index in video.usable])
                found[video.id] = [video.usable[start] for start in shots.starts]
                progress.advance(task)
        write_json(path, found)
    starts = {(video, index) for video, indices in read_json(path).items() for index in indices}
    numbers: list[int] = []
    current = -1
    for video, index in frames.places:
        current += (video.id, index) in starts
        numbers.append(current)
    return numbers


def _run_stage(
    run: Run, config: Config, job: Job, stage: Any, number: int, count: int, processes: Processes, console: Console
) -> None:
    """Do a stage, or take over what it left when it was done before."""
    folder = run.stage_folder(number, stage.name)
    title = f"stage {number} of {count}: {stage.name}"
    done = folder / "done.json"
    began = time.perf_counter()
    if isinstance(stage, PseudoLabels):
        if not done.exists():
            with bar(title, len(job.frames.unlabelled), console) as (progress, task):
                stage.run(job, lambda so_far, total: progress.update(task, completed=so_far, total=total))
            processes.wait()
            if processes.first:
                write_json(
                    done, {"seconds": round(time.perf_counter() - began, 3), "frames": len(job.frames.unlabelled)}
                )
        stage.load(job)
        return
    outcome = folder / "weights.safetensors"
    if not done.exists():
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        result = _fit(config, job, stage, folder, title, processes, console)
        if processes.first:
            save_model(stage.outcome(), outcome)
            seconds = round(time.perf_counter() - began, 3)
            write_json(done, result | {"seconds": seconds, "peak_memory": memory_peak()})
            (folder / "last.ckpt").unlink(missing_ok=True)
    processes.wait()
    finished = load_model(outcome, job.segmenter.describe())
    job.segmenter.load_state_dict(finished.state_dict())


def _fit(
    config: Config, job: Job, stage: Stage, folder: Path, title: str, processes: Processes, console: Console
) -> dict[str, Any]:
    """Train one stage to its end with Lightning, from its last checkpoint if there is one."""
    compute = config.compute
    checkpoint = folder / "last.ckpt"
    if processes.first:
        folder.mkdir(parents=True, exist_ok=True)
    processes.wait()
    stage.begin(job)
    loggers: list[Logger] = [TensorBoardLogger(folder, name="", version="tensorboard")] if processes.first else []
    if compute.logger is not None:
        loggers.append(_logger(compute.logger.kind, compute.logger.arguments))
    trainer = L.Trainer(
        max_steps=stage.total_steps,
        max_epochs=-1,
        accumulate_grad_batches=stage.settings.accumulate,
        gradient_clip_val=stage.settings.optimizer.clip,
        callbacks=[
            Checkpoint(checkpoint, compute.checkpoint_every),
            Curve(folder / "metrics.csv", compute.log_every, checkpoint),
            Bar(title, console),
        ],
        logger=loggers or False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder,
        **processes.trainer_options(compute),
    )
    trainer.fit(stage, ckpt_path=checkpoint if checkpoint.exists() else None, weights_only=True)
    if trainer.interrupted:
        raise KeyboardInterrupt
    return {"steps": stage.total_steps, "batch": stage.settings.batch, "loss": float(stage.last_loss)}


def _logger(kind: str, arguments: dict[str, Any]) -> Logger:
    module, _, name = kind.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)(**arguments)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(f"compute.logger: {kind} cannot be made ({error}).") from error


def _write_model(run: Run, config: Config, dataset: Dataset, segmenter: Segmenter) -> None:
    """The model and all that a predictor needs to use it."""
    save_model(segmenter, run.folder / "model.safetensors", {"dataset": dataset.name})
    classes = zip(dataset.classes.names, dataset.classes.colors, strict=True)
    write_json(
        run.folder / "model.json",
        {
            "format": MODEL_FORMAT,
            "segmenter": segmenter.describe(),
            "classes": [{"name": name, "color": list(color)} for name, color in classes],
            "size": list(config.data.height_width),
        },
    )


def _announce(console: Console, config: Config, opened: Opened, stages: list[Any]) -> None:
    dataset, labelling = opened.dataset, opened.labelling
    train = dataset.split("train")
    frames = sum(len(video.usable) for video in train)
    console.print(
        f"{dataset.name}: {len(train)} training videos of {len({v.case for v in train})} cases, {frames} frames, "
        f"{labelling.count} labelled ({labelling.ratio(dataset):.1%}); {config.method['name']}, seed {config.seed}: "
        f"{' → '.join(stage.name for stage in stages)}",
        highlight=False,
    )


def _append_environment(run: Run, entry: dict[str, Any]) -> None:
    path = run.folder / "environment.json"
    starts = read_json(path)["starts"] if path.exists() else []
    write_json(path, {"starts": [*starts, entry]})


def _relocated(said: dict[str, Any], before: str | Path, after: str | Path) -> dict[str, Any]:
    """A config whose relative paths, seen from one folder so far, are seen from another."""

    def moved(path: str) -> str:
        return path if os.path.isabs(path) else os.path.relpath(Path(before) / path, after)

    said = said | {"data": said["data"] | {"root": moved(said["data"]["root"])}}
    listed = said["data"].get("labelling", {}).get("list")
    if listed:
        said["data"]["labelling"] = said["data"]["labelling"] | {"list": moved(listed)}
    weights = said.get("model", {}).get("weights")
    if weights and (is_file(weights) or (Path(before) / weights).is_file()):
        said["model"] = said["model"] | {"weights": moved(weights)}
    return said


def _yaml(value: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


@contextmanager
def _explained(run: Run) -> Iterator[None]:
    """Turn what can go wrong in a long training into one sentence; what was computed so far is kept."""
    kept = f"start the same command again to go on from the last checkpoint in {run.folder}"
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"The GPU ran out of memory: lower the stage's batch or raise its accumulate, or data.size; {kept}."
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"The disk is full ({error.filename or run.folder}): make room, then {kept}.") from error
        raise UserError(
            f"{error.filename or 'A file'} could not be read or written ({error.strerror or error}); {kept}."
        ) from error
    except UserError as error:
        # An error in a loader worker comes with the worker's traceback before it.
        lines = [line for line in str(error).splitlines() if line.strip()]
        if str(error).startswith("Caught UserError in DataLoader worker"):
            raise UserError(lines[-1].removeprefix("suture.errors.UserError: ")) from error
        raise


def _quiet_libraries() -> None:
    """Lightning's hints are for people who write Trainers."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
