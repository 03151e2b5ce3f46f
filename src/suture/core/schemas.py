"""Schemas of the files that Suture writes about runs and predictions.

`read_record` validates a file when it is read, so that a damaged or edited one ends in a message that names the place.
Keys that no reader needs are not part of a schema.
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
Level = Annotated[StrictInt, Field(ge=0, le=255)]
Side = Annotated[StrictInt, Field(ge=1, le=2**15)]
"""Height or width of an image."""
STARTS = "environment.json"
"""Name of the first file that a run writes into its folder."""


class ClassRecord(BaseModel):
    name: StrictStr
    color: tuple[Level, Level, Level]


class ViewRecord(BaseModel):
    rect: tuple[StrictInt, StrictInt, StrictInt, StrictInt]


class VideoRecord(BaseModel):
    case: StrictStr
    split: StrictStr | None
    frames: StrictInt
    excluded: list[StrictInt]
    take_every: Annotated[StrictInt, Field(ge=1)] = 1
    masked: list[StrictInt] = []
    """Frames of a training video beyond `take_every` that are used because they have masks."""
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
            raise ValueError("expected the key hub or name")
        return self


class DataRecord(BaseModel):
    """`data.json`: classes, videos and labels of a run."""

    dataset: StrictStr
    protocol: StrictStr
    classes: list[ClassRecord]
    videos: dict[str, VideoRecord]
    labelled: dict[Annotated[str, Field(pattern=r"/[0-9]{1,18}$")], StrictStr]
    """SHA-256 of each mask by `VIDEO/INDEX`."""
    weights: WeightsRecord | None
    values: dict[str, StrictStr] = {}
    """Class of each raw value of masks."""
    unlearnt: list[StrictStr] = []
    """Classes left out of validation scores because no training video shows them."""
    seen: list[StrictStr] = []
    """Videos that were used for training without their labels."""


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
    """`environment.json`: software and device of each start of a run."""

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
    precision: StrictStr | None = None
    """Floating-point precision of the predictions."""
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
            raise ValueError("expected as many columns as rows")
        return rows


class MetricsRecord(RootModel[dict[str, ScoresRecord]]):
    """`metrics.json`: scores of a run."""


class BestRecord(BaseModel):
    """`best.json`: step and score of a stage's best weights."""

    step: StrictInt
    score: Number


class StageRecord(BaseModel):
    """`done.json`: length, loss and cost of a finished stage."""

    seconds: Number | None
    """Null if unknown."""
    steps: StrictInt = 0
    batch: StrictInt = 0
    lr: Number | None = None
    unlabelled_batch: StrictInt = 0
    supervised_steps: StrictInt = 0
    labels_alone: StrictBool | None = None
    frames: StrictInt = 0
    loss: Number = 0.0
    peak_memory: StrictInt | None = None
    best: BestRecord | None = None
    sha256: StrictStr | None = None
    """Digest of the files of pseudo labels."""


class ShotsRecord(RootModel[dict[str, list[StrictInt]]]):
    """`shots.json`: first frame of each shot."""


class FailuresRecord(RootModel[dict[str, StrictStr]]):
    """`failed.json`: error message of each failed run of a comparison."""


class PlanRecord(BaseModel):
    """`plan.json`: runs of a comparison."""

    title: StrictStr = ""
    runs: list[StrictStr] = []
    reference: StrictStr = ""
    proposed: StrictStr = ""
    effects: StrictStr = ""


class TrainedView(BaseModel):
    view: Any
    size: tuple[Side, Side] | None


class TrainingNotes(BaseModel):
    """Note in a weights file: view and mirror images of the training, and how images were grouped into videos."""

    view: Literal["auto"] | TrainedView = "auto"
    videos_by: Literal["folder", "name"] = "folder"
    mirror: list[StrictInt] | None = []
    deinterlace: bool = False


class OnnxRecord(BaseModel):
    """Note `suture` in the metadata of an ONNX file."""

    format: StrictInt
    classes: list[ClassRecord] = Field(min_length=1)
    size: tuple[Side, Side]
    multiple: Side
    kind: Literal["fixed", "dynamic"]
    output: StrictStr
    view: Any
    run: TrainingNotes


class PredictionRecord(BaseModel):
    """`prediction.json`: model, input and options of a prediction."""

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
    """`model.json`: architecture, classes and input size of a model."""

    segmenter: SegmenterRecord
    classes: list[ClassRecord]
    size: tuple[StrictInt, StrictInt]


def require_no_run(folder: Path, expected: str) -> None:
    """Raise if a folder is a run; `expected` is the input that the command takes."""
    if is_run(folder):
        raise UserError(f"{folder} is a run, expected {expected}.")


def is_run(folder: Path) -> bool:
    """Test whether a folder is a run."""
    return (folder / STARTS).is_file() and (folder / "config.yaml").is_file()


def taking_part(video: Mapping[str, Any]) -> int:
    """Number of frames of a video that a run uses, from its entry in `data.json`.

    >>> taking_part({"frames": 10, "excluded": [0, 1]})
    8
    >>> taking_part({"frames": 10, "excluded": [0, 1], "take_every": 4, "masked": [5]})
    3
    """
    every = video.get("take_every", 1)
    left_out = sum(index % every == 0 for index in video["excluded"])
    return len(range(0, video["frames"], every)) - left_out + len(video.get("masked", ()))


def labelled_frames(data: Mapping[str, Any]) -> dict[str, list[int]]:
    """Labelled frames of each video, from `data.json`.

    >>> labelled_frames({"labelled": {"left/8": "9f86…", "left/16": "2c26…"}})
    {'left': [8, 16]}
    """
    frames: dict[str, list[int]] = {}
    for place in data["labelled"]:
        video, _, index = place.rpartition("/")
        frames.setdefault(video, []).append(int(index))
    return frames


def videos_since(data: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """Scored videos that were added, or put into a split, after the training.

    >>> videos_since({"videos": {"a": {"split": "test"}}}, {"test": {"videos": {"a": {}, "b": {}}}})
    ['b']
    """
    known = {name for name, video in data["videos"].items() if video["split"]}
    return sorted({name for which in ("val", "test") for name in metrics.get(which, {}).get("videos", {})} - known)


def read_record(path: Path, shape: type[BaseModel]) -> Any:
    """Read a JSON or YAML file and validate it.

    Args:
        path: The file.
        shape: Schema that the content must match.

    Returns:
        The content as it stands in the file.

    Raises:
        UserError: The file cannot be read or does not match the schema.

    >>> read_record(Path("run/environment.json"), EnvironmentRecord)["starts"][-1]["device"]  # doctest: +SKIP
    'cpu (x86_64)'
    """
    content = read_yaml(path) if path.suffix == ".yaml" else read_json(path)
    validate_shape(path, content, shape)
    return content


def validate_shape(path: Path, content: Any, shape: type[BaseModel]) -> None:
    """Raise if content of a file does not match its schema."""
    try:
        shape.model_validate(content)
    except ValidationError as error:
        mistake: Mapping[str, Any] = error.errors()[0]
        key = ".".join(str(part) for part in mistake["loc"])
        raise UserError(
            f"{path} is not as Suture wrote it ({key + ': ' if key else ''}{reason(mistake)}): put back a whole copy, "
            "or make it again."
        ) from error
