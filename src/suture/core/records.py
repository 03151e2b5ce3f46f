"""The files that Suture writes about a run or a prediction, read with a look at their shape.

Somebody may have edited one, or mixed up two copies: then a sentence names the place, in place of a traceback. What is
not looked at here nobody asks for, so that earlier and later versions may say less or more.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
    RootModel,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from suture.core.errors import UserError
from suture.core.io import read_json, read_yaml
from suture.core.text import reason

Number = Annotated[float, Strict()]
STARTS = "environment.json"
"""What a folder holds as soon as a run was started in it."""


class ClassRecord(BaseModel):
    name: StrictStr
    color: tuple[StrictInt, StrictInt, StrictInt]


class ViewRecord(BaseModel):
    rect: tuple[StrictInt, StrictInt, StrictInt, StrictInt]


class VideoRecord(BaseModel):
    case: StrictStr
    split: StrictStr | None
    frames: StrictInt
    excluded: list[StrictInt]
    take_every: Annotated[StrictInt, Field(ge=1)] = 1
    masked: list[StrictInt] = []
    """Of a training video, the frames that take part by their masks alone."""
    sha256: StrictStr
    view: ViewRecord | None


class WeightsRecord(BaseModel):
    sha256: StrictStr
    hub: StrictStr | None = None
    name: StrictStr | None = None
    origin: StrictStr | None = None
    licence: StrictStr | None = None

    @model_validator(mode="after")
    def _named(self) -> "WeightsRecord":
        if not (self.hub or self.name):
            raise ValueError("neither hub nor name says which they are")
        return self


class DataRecord(BaseModel):
    """`data.json`: what a run learns from."""

    dataset: StrictStr
    protocol: StrictStr
    classes: list[ClassRecord]
    videos: dict[str, VideoRecord]
    labelled: dict[Annotated[str, Field(pattern=r"/[0-9]+$")], StrictStr]
    """The hash of each mask by `VIDEO/INDEX`."""
    weights: WeightsRecord | None
    values: dict[str, StrictStr] = {}
    """The class of each raw value of masks; not said in earlier versions."""
    unlearnt: list[StrictStr] = []
    """The classes that validation, held out of the training videos, is not asked for; not said in earlier versions."""


class StartRecord(BaseModel):
    suture: StrictStr
    commit: StrictStr | None
    python: StrictStr
    packages: dict[str, StrictStr | None]
    device: StrictStr
    runs_at_a_time: StrictInt | None = None
    threads: StrictInt | None = None
    precision: StrictStr


class EnvironmentRecord(BaseModel):
    """`environment.json`: where a run was started."""

    starts: list[StartRecord] = Field(min_length=1)


class PrimaryRecord(BaseModel):
    score: Literal["miou", "miou_frames"]
    value: Number | None
    interval: tuple[Number, Number] | None


class Summary(BaseModel):
    frames: StrictInt
    miou: Number | None
    miou_frames: Number | None
    dice: Number | None
    pa: Number | None
    pac: Number | None
    nsd: Number | None
    consistency: Number | None = None
    consistency_truth: Number | None = None
    class_iou: dict[str, Number | None] = {}


class ClassScores(BaseModel):
    iou: Number | None
    frames: StrictInt
    false_presence: Number | None = None


class ScoresRecord(BaseModel):
    protocol: StrictStr
    notes: list[StrictStr]
    left_out: list[StrictStr] = []
    """Not said in earlier versions."""
    precision: StrictStr | None = None
    """What the predictions were computed in; not said in earlier versions."""
    per_sequence: StrictBool
    primary: PrimaryRecord
    boundary_tolerance: Number
    overall: Summary
    classes: dict[str, ClassScores]
    confusion: list[list[StrictInt]] | None = None
    cases: dict[str, Summary]
    videos: dict[str, Summary]

    @field_validator("confusion")
    @classmethod
    def _square(cls, rows: list[list[int]] | None) -> list[list[int]] | None:
        if rows is not None and not (rows and all(len(row) == len(rows) for row in rows)):
            raise ValueError("it is no square")
        return rows


class MetricsRecord(RootModel[dict[str, ScoresRecord]]):
    """`metrics.json`: the scores of a run."""


class BestRecord(BaseModel):
    """`best.json`: when a stage's weights were best."""

    step: StrictInt
    score: Number
    masks: StrictStr | None = None
    """The fingerprint of the masks by which they were chosen; not said in earlier versions, nor in `done.json`."""


class StageRecord(BaseModel):
    """`done.json`: how a stage ended."""

    seconds: Number | None
    """Null where it is not known."""
    steps: StrictInt = 0
    batch: StrictInt = 0
    lr: Number | None = None
    unlabelled_batch: StrictInt = 0
    supervised_steps: StrictInt = 0
    labels_alone: StrictBool | None = None
    """Not said in earlier versions."""
    frames: StrictInt = 0
    loss: Number = 0.0
    peak_memory: StrictInt | None = None
    best: BestRecord | None = None


class ClockRecord(BaseModel):
    """`clock.json`: what a stage that makes labels has taken so far."""

    seconds: Number


class ShotsRecord(RootModel[dict[str, list[StrictInt]]]):
    """`shots.json`: the first frame of each shot."""


class SecondsRecord(RootModel[dict[str, Number]]):
    """`times.json`: how long the runs of a comparison took."""


class FailuresRecord(RootModel[dict[str, StrictStr]]):
    """`failed.json`: why runs of a comparison failed."""


class PlanRecord(BaseModel):
    """`plan.json`: which runs belong to a comparison."""

    title: StrictStr = ""
    runs: list[StrictStr] = []
    reference: StrictStr = ""
    proposed: StrictStr | None = None


class PredictionRecord(BaseModel):
    """`prediction.json`: of what the results of a clip were made."""

    made_of: dict[str, Any]
    problems: list[StrictStr]


class SegmenterRecord(BaseModel):
    architecture: StrictStr
    encoder: StrictStr
    classes: StrictInt
    output_stride: StrictInt | None
    layout: StrictStr
    mean: list[Number]
    std: list[Number]


class ModelRecord(BaseModel):
    """`model.json`: what a predictor needs beside the weights."""

    segmenter: SegmenterRecord
    classes: list[ClassRecord]
    size: tuple[StrictInt, StrictInt]


class _Method(BaseModel):
    name: StrictStr


class _Data(BaseModel):
    options: dict[str, Any] = {}
    size: Any
    labelling: dict[str, Any]


class _Model(BaseModel):
    architecture: StrictStr
    encoder: StrictStr
    output_stride: StrictInt | None
    weights: StrictStr | None


class _Evaluation(BaseModel):
    include_background: StrictBool
    flip: StrictBool
    scales: list[Number]


class ConfigRecord(BaseModel):
    """`config.yaml` of a run that may be of an earlier version: only what is told of it."""

    seed: StrictInt
    method: _Method
    data: _Data
    model: _Model
    evaluation: _Evaluation


def refuse_run(folder: Path, expected: str) -> None:
    """Refuse a run's folder where a command expects something else, and may even find files in it that look so."""
    if (folder / STARTS).is_file() and (folder / "config.yaml").is_file():
        raise UserError(f"{folder} is a run, expected {expected}.")


def taking_part(video: Mapping[str, Any]) -> int:
    """How many frames of a video take part, by its entry in `data.json`; of one that is not learnt from, without those
    that do by their masks alone: masks of such a video may still be added.

    >>> taking_part({"frames": 10, "excluded": [0, 1]})
    8
    >>> taking_part({"frames": 10, "excluded": [0, 1], "take_every": 4, "masked": [5]})
    3
    """
    every = video.get("take_every", 1)
    left_out = sum(index % every == 0 for index in video["excluded"])
    return len(range(0, video["frames"], every)) - left_out + len(video.get("masked", ()))


def labelled_frames(data: Mapping[str, Any]) -> dict[str, list[int]]:
    """The labelled frames of each video, by a `data.json`.

    >>> labelled_frames({"labelled": {"left/8": "9f86…", "left/16": "2c26…"}})
    {'left': [8, 16]}
    """
    frames: dict[str, list[int]] = {}
    for place in data["labelled"]:
        video, _, index = place.rpartition("/")
        frames.setdefault(video, []).append(int(index))
    return frames


def videos_since(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """The scored new videos that came, or were put into a split, after the training.

    >>> videos_since({"videos": {"a": {"split": "test"}}}, {"test": {"videos": {"a": {}, "b": {}}}})
    ['b']
    """
    known = {name for name, video in data["videos"].items() if video["split"]}
    return sorted({name for which in ("val", "test") for name in metrics.get(which, {}).get("videos", {})} - known)


def read_record(path: Path, shape: type[BaseModel]) -> Any:
    """The content of a file that Suture wrote, as it stands there; one of another shape is a `UserError`.

    >>> read_record(Path("run/environment.json"), EnvironmentRecord)["starts"][-1]["device"]  # doctest: +SKIP
    'cpu (x86_64)'
    """
    content = read_yaml(path) if path.suffix == ".yaml" else read_json(path)
    refuse_misshapen(path, content, shape)
    return content


def refuse_misshapen(path: Path, content: Any, shape: type[BaseModel]) -> None:
    """What a file holds must have its shape."""
    try:
        shape.model_validate(content)
    except ValidationError as error:
        mistake: Mapping[str, Any] = error.errors()[0]
        place = ".".join(str(part) for part in mistake["loc"])
        raise UserError(
            f"{path} is not as Suture wrote it ({place + ': ' if place else ''}{reason(mistake)}): put back a whole "
            "copy, or make it again."
        ) from error
