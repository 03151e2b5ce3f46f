"""Run: the reader of a run folder, and the rules for going on in it."""

import csv
import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel

from suture.core.errors import UserError
from suture.core.io import (
    lock_folder,
    read_text,
    read_yaml,
    remove_leftovers,
    validate_folder_path,
    write_json,
    write_text,
)
from suture.core.schemas import (
    STARTS,
    DataRecord,
    EnvironmentRecord,
    MetricsRecord,
    ModelRecord,
    ShotsRecord,
    StageRecord,
    labelled_frames,
    read_record,
    taking_part,
)
from suture.core.settings import Settings
from suture.data.dataset import Dataset, training_view
from suture.data.listing import holds_files
from suture.models.model_files import DESCRIPTION, TRAINED_ON, WEIGHTS
from suture.training.config import Config, differences, parse_config, relocated
from suture.training.effort import effort

if TYPE_CHECKING:  # imports torch, which a folder's small files do without
    from suture.models.model import Model
    from suture.models.segmenter import Segmenter


CURVE_COLUMNS = ("step", "loss", "lr", "images_per_second", "taught")
"""Columns of `metrics.csv`; `taught` is the share of unlabelled pixels in the loss, if a stage selects them."""


def default_folder(config: Config) -> Path:
    """Default folder of a run: `runs/DATASET-METHOD-SEED`."""
    return Path("runs") / f"{config.data.root.resolve().name}-{config.method['name']}-{config.seed}"


def read_curve(path: Path) -> list[dict[str, float]]:
    """Read the rows of a stage's `metrics.csv`, without a half-written last row; empty if there is no file."""
    if not path.exists():
        return []
    rows = []
    try:
        for row in csv.DictReader(read_text(path, "the loss curve of a stage").splitlines()):
            with suppress(TypeError, ValueError):
                keys = [key for key in CURVE_COLUMNS if key != "taught" or row[key]]
                rows.append({key: int(row[key]) if key == "step" else float(row[key]) for key in keys})
    except (csv.Error, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}): put back a whole copy, or remove it.") from error
    return rows


class RunStage:
    """One stage of a run, read from its folder `stages/NUMBER-NAME`."""

    def __init__(self, run: "Run", number: int, name: str) -> None:
        self.run = run
        self.number = number
        self.name = name

    @property
    def folder(self) -> Path:
        """Folder of the stage's checkpoint, curve and weights."""
        return self.run.folder / "stages" / f"{self.number}-{self.name}"

    @property
    def is_done(self) -> bool:
        """True once the stage was trained to its end."""
        return (self.folder / "done.json").exists()

    @property
    def record(self) -> dict[str, Any] | None:
        """Content of `done.json`: length, loss and cost; None while the stage is not done."""
        return self.run.read_file(self.folder / "done.json", StageRecord) if self.is_done else None

    @property
    def curve(self) -> list[dict[str, float]]:
        """Rows of `metrics.csv`: loss, learning rate and speed by step."""
        return read_curve(self.folder / "metrics.csv")

    @property
    def weights(self) -> Path | None:
        """Weights at the end of the stage; None while it is not done, or if the file was removed."""
        file = self.folder / "weights.safetensors"
        return file if self.is_done and file.exists() else None


class Run:
    """The folder of a run. It reads every file that a run leaves, and guards what may be written.

    Files are read and validated when a property needs them, and again only after they were replaced. Only `config`,
    `model` and `segmenter` import torch.

    >>> run = Run(Path("runs/videos-stitch-0"))  # doctest: +SKIP
    >>> run.method_name, run.seconds, run.metrics["test"]["primary"]["value"]  # doctest: +SKIP
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._contents: dict[tuple[Path, type], tuple[tuple[int, ...], Any]] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    # Files

    def read_file(self, path: Path, schema: type[BaseModel], read: Callable[[Path], Any] | None = None) -> Any:
        """Read a file of the run, or return what was read if the file was not replaced since.

        Args:
            path: The file.
            schema: Schema of its content.
            read: Reader to use instead of `read_record`.
        """
        try:
            status = path.stat()
        except FileNotFoundError:
            raise UserError(
                f"{self.folder} is not a run folder: it has no {path.name}. Put it back, or train the run first."
            ) from None
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        before = self._contents.get((path, schema))
        if before is None or before[0] != version:
            content = read_record(path, schema) if read is None else read(path)
            before = self._contents[path, schema] = (version, content)
        return before[1]

    @property
    def config_record(self) -> dict[str, Any]:
        """Content of `config.yaml` as written; paths are relative to the run folder."""
        return self.read_file(self.folder / "config.yaml", Config)

    @property
    def config(self) -> Config:
        """The parsed config; paths are relative to the current folder."""

        def parse(path: Path) -> Config:
            return parse_config(relocated(read_yaml(path), self.folder, Path()), str(path))

        return self.read_file(self.folder / "config.yaml", Settings, parse)

    @property
    def metrics(self) -> dict[str, Any]:
        """Scores by set of frames (`val`, `test`, `completion`); empty until the run is scored."""
        return self.read_file(self.folder / "metrics.json", MetricsRecord) if self.is_scored else {}

    @property
    def data(self) -> dict[str, Any]:
        """Content of `data.json`: classes, videos and labels."""
        return self.read_file(self.folder / "data.json", DataRecord)

    @property
    def starts(self) -> list[dict[str, Any]]:
        """Software and device of each start, from `environment.json`."""
        return self.read_file(self.folder / STARTS, EnvironmentRecord)["starts"]

    @property
    def environment(self) -> dict[str, Any]:
        """Software and device of the latest start."""
        return self.starts[-1]

    @property
    def shots(self) -> dict[str, list[int]]:
        """First frame of each shot of the training videos; empty if shots were not detected."""
        path = self.folder / "shots.json"
        return self.read_file(path, ShotsRecord) if path.exists() else {}

    @property
    def model_record(self) -> dict[str, Any]:
        """Content of `model.json`: architecture, classes and input size."""
        return self.read_file(self.folder / DESCRIPTION, ModelRecord)

    def model(self) -> "Model":
        """Load the finished model, with its class table and size."""
        from suture.models.model import Model

        return Model.load(self.folder)

    def segmenter(self) -> "Segmenter":
        """Load the finished model's network."""
        return self.model().segmenter

    def validate(self) -> None:
        """Read all small files of a scored run; raise `UserError` if one is missing or damaged."""
        _ = self.config_record, self.data, self.starts, self.stage_records, self.metrics
        if not self.is_scored:
            raise UserError(f"{self.folder} has no metrics.json: score it with `suture evaluate {self.folder}`.")

    # Stages

    @property
    def stages(self) -> list[RunStage]:
        """Stages that have started, in order."""
        folders = [path.name.partition("-") for path in self.folder.glob("stages/*-*/")]
        return [RunStage(self, *stage) for stage in sorted((int(number), name) for number, _, name in folders)]

    def stage(self, number: int, name: str) -> RunStage:
        """Return a stage by its place in the method, which counts from 1; it need not have started."""
        return RunStage(self, number, name)

    @property
    def stage_records(self) -> dict[str, dict[str, Any]]:
        """Content of `done.json` of each finished stage, by the stage's name."""
        return {stage.name: record for stage in self.stages if (record := stage.record) is not None}

    @property
    def seconds(self) -> float:
        """Time (s) that the finished stages took, over all starts."""
        return sum(record["seconds"] for record in self.stage_records.values())

    @property
    def peak_memory(self) -> int | None:
        """Peak GPU memory (bytes) over all stages; None on the CPU."""
        return max((peak for one in self.stage_records.values() if (peak := one.get("peak_memory"))), default=None)

    # State

    @property
    def has_data(self) -> bool:
        """True once the run has recorded its data."""
        return (self.folder / "data.json").exists()

    @property
    def is_begun(self) -> bool:
        """True once a stage has started: config and data must not change any more."""
        return any(self.folder.glob("stages/*/*"))

    @property
    def is_trained(self) -> bool:
        """True once the final model was written."""
        return all((self.folder / name).exists() for name in (WEIGHTS, DESCRIPTION))

    @property
    def is_scored(self) -> bool:
        """True once the run has scores."""
        return (self.folder / "metrics.json").exists()

    @property
    def is_finished(self) -> bool:
        """True if all stages are done, the model is written, and the run is scored."""
        return self.is_begun and self.is_trained and self.is_scored and all(stage.is_done for stage in self.stages)

    # Facts

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.resolve().name

    @property
    def dataset_name(self) -> str:
        """Name of the dataset."""
        return str(self.data["dataset"])

    @property
    def method_name(self) -> str:
        """Name of the method."""
        return str(self.config_record["method"]["name"])

    @property
    def seed(self) -> int:
        """Seed of all random draws."""
        return int(self.config_record["seed"])

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by id."""
        return [one["name"] for one in self.data["classes"]]

    def videos(self, split: str) -> dict[str, dict[str, Any]]:
        """Entries of `data.json` for the videos of a split, by video."""
        return {name: video for name, video in self.data["videos"].items() if video["split"] == split}

    @property
    def labelled_frames(self) -> dict[str, list[int]]:
        """Sorted indices of the labelled frames, by video."""
        return {video: sorted(indices) for video, indices in labelled_frames(self.data).items()}

    @property
    def training_frames(self) -> int:
        """Number of frames of the training videos that take part."""
        return sum(map(taking_part, self.videos("train").values()))

    @property
    def labelled_share(self) -> float:
        """Labelled frames as a share of all training frames that take part."""
        return len(self.data["labelled"]) / max(self.training_frames, 1)

    @property
    def scene_size(self) -> tuple[int, int] | None:
        """Height and width of the scene if it is the same in all videos."""
        sizes = {tuple(video["view"]["rect"][2:]) for video in self.data["videos"].values() if video["view"]}
        return next(((height, width) for width, height in sizes), None) if len(sizes) == 1 else None

    @property
    def effort(self) -> dict[str, str]:
        """Budget of a finished run in words: steps, batch, model, size, starting weights."""
        return effort(self.config_record, self.data, self.stage_records)

    # Writing

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder for this process."""
        return lock_folder(self.folder)

    def begin(self, config: Config, data: dict[str, Any], machine: dict[str, Any] | None) -> None:
        """Write config, data and machine of a start; require those of earlier starts.

        Args:
            config: Config of this start.
            data: Content of `data.json`.
            machine: Entry of `environment.json`; None if nothing is left to train, so that `compute` and machine stay
                those of the training.
        """
        if self.is_begun:
            self.require_unchanged(config, data)
        else:
            (self.folder / "shots.json").unlink(missing_ok=True)
        remove_leftovers(self.folder)
        path, written = self.folder / STARTS, self.folder / "config.yaml"
        starts = self.starts if path.exists() else []
        if machine is not None:
            write_json(path, {"starts": [*starts, machine]})
        elif written.exists():
            config = config.model_copy(update={"compute": self.config.compute})
        settings = relocated(config.model_dump(mode="json"), Path(), self.folder)
        write_text(written, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
        write_json(self.folder / "data.json", data)

    def write_model(self, segmenter: "Segmenter", dataset: Dataset, size: tuple[int, int]) -> None:
        """Write the finished model, with what a predictor needs to use it."""
        from suture.models.model import Model

        classes = dataset.classes
        view = training_view(dataset.split("train"))
        notes = {
            "dataset": dataset.name,
            "view": view,
            "videos_by": dataset.videos_by,
            "mirror": classes.mirror,
            "deinterlace": any(video.deinterlace for video in dataset),
        }
        Model(segmenter, classes.names, classes.colors, size).save(self.folder, {TRAINED_ON: json.dumps(notes)})

    # Rules for going on

    def require_free_folder(self) -> None:
        """Raise `UserError` if the folder has files, but no run."""
        validate_folder_path(self.folder)
        if not self.is_begun and not (self.folder / STARTS).exists() and holds_files(self.folder):
            raise UserError(
                f"{self.folder} holds files but no run, expected a new or empty folder, or a run to go on with: give "
                "another."
            )

    def require_unchanged(self, config: Config, data: Mapping[str, Any]) -> None:
        """Raise `UserError` if config or data differ from those of a run that has started."""
        self.require_same_config(config)
        if not self.has_data:
            return
        free = set[str]() if self.is_scored else {"protocol"}
        if changes := _data_changes(_without(self.data, free), _without(data, free)):
            raise UserError(
                f"{self.folder} was started with other data ({_shorten(changes)}): "
                "restore the data to resume, or give another folder."
            )

    def require_same_config(self, config: Config) -> None:
        """Raise `UserError` if the config differs; `compute` may, and `evaluation` until the run is scored."""
        if self.is_begun and (self.folder / "config.yaml").exists():
            before = relocated(self.config.model_dump(mode="json"), Path(), None)
            after = relocated(config.model_dump(mode="json"), Path(), None)
            free = {"compute"} if self.is_scored else {"compute", "evaluation"}
            if changes := differences(_without(before, free), _without(after, free)):
                go_on = shlex.join(["suture", "train", str(self.folder / "config.yaml"), "-o", str(self.folder)])
                raise UserError(
                    f"{self.folder} was started with another config ({_shorten(changes)}): "
                    f"to resume it unchanged, run {go_on}; for the changed settings, give another folder with -o."
                )


def _data_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """List the differences between two contents of `data.json`."""
    then, now = (
        {**data, "classes": {one["name"]: one["color"] for one in data["classes"]}, "values": None}
        for data in (before, after)
    )
    return differences(then, now) + changed_values(before, after["values"])


def changed_values(data: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """List the values of masks that have another class than in `data.json`; new and lost values do not count."""
    both = {value: name for value, name in data["values"].items() if value in now}
    return differences({"values": both}, {"values": {value: now[value] for value in both}})


def _without(settings: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in keys}


def _shorten(changes: list[str], shown: int = 5) -> str:
    """Join the first few changes, with shortened hashes."""
    text = "; ".join(changes[:shown]) + (f"; and {len(changes) - shown} more" if len(changes) > shown else "")
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1…", text)
