"""Config: the settings of a run, read from presets, files and overrides."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, Field, PositiveFloat, ValidationError, field_validator

from suture.core.errors import UserError
from suture.core.io import parse_yaml, read_yaml, suffix_of
from suture.core.schemas import require_no_run
from suture.core.settings import Settings
from suture.core.text import reason, short
from suture.data.dataset_file import FILE_NAME as DATASET_FILE
from suture.data.dataset_file import nearest
from suture.data.labelling import LabellingSettings
from suture.data.shots import ShotSettings
from suture.models.model_files import is_weights_file
from suture.training.presets import preset_text, presets

if TYPE_CHECKING:
    from suture.methods.method import Method

M = TypeVar("M", bound=BaseModel)
DEFAULT_METHOD = "stitch"
PATHS = (
    ("data", "root"),
    ("data", "unlabelled"),
    ("data", "cache"),
    ("data", "labelling", "list"),
    ("model", "weights"),
    ("model", "start"),
)
"""Keys of settings that are paths or lists of paths."""
ALTERNATIVES = (("steps", "epochs"), ("every", "ratio", "list"), ("videos", "list"))
"""Settings that replace each other."""


class DataSettings(Settings):
    """Dataset, training size and labels."""

    root: Path
    """Folder of the dataset. Needed, unless the command names it."""
    source: str = "auto"
    """Reader of the dataset, such as `cadis`; `auto` recognises it by its layout."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the source, such as `task: 2` of CaDIS."""
    size: int | tuple[int, int] = 256
    """Training size: the side of a square, or [height, width]; the view of every frame is resized to it."""
    labelling: LabellingSettings = LabellingSettings()
    shots: ShotSettings = ShotSettings()
    """Shot detector: `method: histogram` is the paper's."""
    unlabelled: tuple[Path, ...] = ()
    """Further videos to learn from without labels: video files, and folders of videos or frames."""
    seen: tuple[Literal["val", "test"], ...] = ()
    """Splits to learn from without their labels; their scores are those of the set `seen`."""
    validation: tuple[str, ...] = ()
    """Training cases or videos held out for validation."""
    fold: tuple[int, int] | None = None
    """Fold of a cross-validation and number of folds, such as [1, 4]: its cases are the test set, all others train."""
    store_size: int | None = Field(None, ge=8)
    """Short side of stored frames; by default large enough for the smallest crop."""
    cache: Path | None = None
    """Folder of the frame store; by default the user's cache folder."""

    @field_validator("labelling", mode="before")
    @classmethod
    def _default_if_empty(cls, labelling: Any) -> Any:
        return {} if labelling is None else labelling  # all lines of the section are comments

    @field_validator("size")
    @classmethod
    def _positive(cls, size: int | tuple[int, int]) -> int | tuple[int, int]:
        if min(size if isinstance(size, tuple) else (size,)) < 16:
            raise ValueError("sides below 16 pixels leave nothing to segment")
        return size

    @property
    def height_width(self) -> tuple[int, int]:
        """Training size as height and width."""
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)


class ModelSettings(Settings):
    """Architecture of the segmenter, and starting weights of its encoder."""

    architecture: str = "deeplabv3"
    """Architecture of segmentation-models-pytorch; `dpt` is our own, for vision transformers."""
    encoder: str = "resnet50"
    """Encoder of segmentation-models-pytorch, or of timm with the prefix `tu-`."""
    output_stride: int | None = None
    """Output stride of the encoder. By default the architecture's usual one; 8 for `deeplabv3`."""
    weights: str | None = "imagenet"
    """A name on the hub, or a file (.safetensors, .pth); null starts from random weights."""
    start: Path | None = None
    """Finished run whose final model is trained further, instead of an encoder's weights."""
    layout: Literal["torchvision", "caffe"] = "torchvision"
    """`caffe` for ResNet weights with the stride in a block's first 1×1 convolution."""
    freeze_encoder: bool = False
    """Train decoder and head only; the encoder keeps its starting weights."""
    gradient_checkpointing: bool = False
    """Compute the blocks of a timm encoder twice to save memory; the step is then no CUDA graph."""
    origin: str | None = None
    """Origin of the weights, recorded by the run."""
    licence: str | None = None
    """Licence of the weights, for the model card; known by itself for timm's weights of the hub."""


class LoggerSettings(Settings):
    """A further Lightning logger: class, such as `lightning.pytorch.loggers.WandbLogger`, and arguments."""

    kind: Literal[
        "lightning.pytorch.loggers.CometLogger",
        "lightning.pytorch.loggers.CSVLogger",
        "lightning.pytorch.loggers.MLFlowLogger",
        "lightning.pytorch.loggers.NeptuneLogger",
        "lightning.pytorch.loggers.TensorBoardLogger",
        "lightning.pytorch.loggers.WandbLogger",
    ]
    """Class of the logger."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the logger's class."""


class ComputeSettings(Settings):
    """Device, precision and speed; only rounding depends on them."""

    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    """Device kind."""
    precision: Literal["auto", "32", "bf16", "16"] = "auto"
    """`auto` is bf16 on a GPU that has it, else 32."""
    compile: bool | Literal["auto"] = "auto"
    """`auto` compiles on a GPU, in stages that are long enough to gain by it."""
    workers: int | None = Field(None, ge=0)
    """Loader processes; by default one per core up to 8, none on the CPU."""
    checkpoint_every: int = Field(200, ge=1)
    """Steps between checkpoints; a killed run repeats at most as many."""
    log_every: int = Field(10, ge=1)
    """Steps between rows of the curve."""
    logger: LoggerSettings | None = None
    """One more Lightning logger."""

    @field_validator("precision", mode="before")
    @classmethod
    def _as_text(cls, precision: Any) -> Any:
        """Accept 16 and 32 without quotes, which YAML reads as numbers."""
        return str(precision) if type(precision) is int else precision


class EvaluationSettings(Settings):
    """Scoring at the end of the training."""

    splits: tuple[Literal["val", "test"], ...] = ("val", "test")
    """Splits to score."""
    completion: bool = True
    """Score the unlabelled frames of training videos that have masks."""
    flip: bool = False
    """Average the predictions of a frame and its mirror image."""
    scales: tuple[PositiveFloat, ...] = Field((1.0,), min_length=1)
    """Average the predictions at these multiples of the training size."""
    include_background: bool = True
    """Count a class called `background` in the means."""
    batch: int = Field(8, ge=1)
    """Frames at a time."""


class Config(Settings):
    """Complete configuration of a run; `method` has the method's name and settings."""

    format: Literal[1] = 1
    """Number of this file format."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of everything random: starting weights, order, crops, keys."""
    method: dict[str, Any] = Field(default_factory=lambda: {"name": DEFAULT_METHOD})
    data: DataSettings
    model: ModelSettings = ModelSettings()
    compute: ComputeSettings = ComputeSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    def build_method(self) -> "Method":
        """Create the method with its settings."""
        from suture.methods.method import find_method

        kind = find_method(self.method["name"])
        return kind(kind.Settings(**{key: value for key, value in self.method.items() if key != "name"}))


def load_config(
    target: Path | None = None,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    *,
    origin: str = "the settings given",
) -> Config:
    """Make a complete config from a file or a dataset, a preset and overrides.

    Args:
        target: Config file, or folder of a dataset.
        preset: Name of a preset, instead of the one in the file.
        overrides: Settings as `KEY=VALUE`, which take precedence.
        origin: Source of the overrides, for messages.

    Raises:
        UserError: A setting is unknown or has a wrong value; all such mistakes are listed.

    >>> load_config(Path("data/my-surgery"), overrides=["seed=3", "method.train.steps=4000"])  # doctest: +SKIP
    """
    settings: dict[str, Any] = {}
    where = where_preset = origin
    if target is not None and is_config_file(target):
        settings, where = read_yaml(target), str(target)
        stated = settings.pop("preset", None)
        if preset is None:
            preset, where_preset = stated, where
        # Paths in a file are relative to the file, those of overrides to the current folder.
        settings = relocated(settings, target.parent, Path())
    elif target is not None:
        go_on = f"suture train {target / 'config.yaml'} -o {target}"
        require_no_run(target, f"a config file or a dataset's folder: to go on with it, `{go_on}`")
        settings = {"data": {"root": str(target)}}
    for override in overrides:
        set_value(settings, override, origin)
    if not settings.get("data"):
        raise UserError(f"{where}: no dataset is named; give its folder, or a config file with data.root.")
    return parse_config(merge(_preset(preset, where_preset), _method_as_section(settings)), where)


def is_config_file(path: Path) -> bool:
    """Test for a YAML file that is not a dataset's."""
    return suffix_of(path) in (".yaml", ".yml") and path.is_file() and path.name != DATASET_FILE


def set_value(settings: dict[str, Any], override: str, origin: str) -> None:
    """Apply an override `a.b=c`, with a YAML value; messages name its origin.

    >>> settings = {"seed": 0}
    >>> set_value(settings, "data.size=[256, 320]", "the command line")
    >>> settings
    {'seed': 0, 'data': {'size': [256, 320]}}
    """
    key, equals, value = override.partition("=")
    if not equals or not all(key.split(".")):
        raise UserError(f"{origin}: found {short(override)}, expected KEY=VALUE such as data.size=256.")
    *sections, last = key.split(".")
    for section in sections:
        if settings.get(section) is None:
            settings[section] = {}
        elif isinstance(settings[section], str) and section == "method":
            settings[section] = {"name": settings[section]}
        settings = settings[section]
        if not isinstance(settings, dict):
            raise UserError(f"{origin}: found {short(override)}, but {section} is a value, not a section.")
    try:
        parsed = parse_yaml(value)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date
        raise UserError(f"{origin}: found {short(override)}, whose value is not valid YAML.") from error
    if key == "method" and isinstance(parsed, str) and isinstance(settings.get("method"), dict):
        settings["method"]["name"] = parsed  # keeps settings of the method that were given before
    else:
        settings[last] = parsed


def validate_scoring_overrides(overrides: Sequence[str], origin: str) -> None:
    """Require overrides of `compute` or `evaluation`, which may change on a trained run."""
    for override in overrides:
        if override.split(".")[0] not in ("compute", "evaluation"):
            raise UserError(
                f"{origin}: found {short(override)}, but only compute and evaluation can be changed on a finished run."
            )


def _subsection(settings: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a nested section; empty if there is none."""
    for name in names:
        below = settings.get(name)
        settings = below if isinstance(below, dict) else {}
    return settings


def parse_config(settings: Mapping[str, Any], where: str) -> Config:
    """Validate settings and complete them with the defaults.

    Args:
        settings: Nested settings. `methods` may have settings of several methods; those of the chosen one are used.
        where: File or source of the settings, for messages.
    """
    settings = _method_as_section(settings)
    method, several = _section(settings, "method", where), _section(settings, "methods", where)
    name = str(method.get("name", DEFAULT_METHOD))
    defaults = {key: Config.model_fields[key].default.model_dump() for key in ("model", "compute", "evaluation")}
    rest = {key: value for key, value in settings.items() if key != "methods"} | {"method": {"name": name}}
    config = _validated(Config, merge(defaults, rest), "", where)
    for other in several:
        _method_settings(other, _section(several, other, where), f"methods.{other}", where)
    own = {key: value for key, value in method.items() if key != "name"}
    parsed = _method_settings(name, merge(_section(several, name, where), own), "method", where)
    return config.model_copy(update={"method": {"name": name} | parsed.model_dump(mode="json")})


def _method_settings(name: str, settings: Mapping[str, Any], at: str, where: str) -> BaseModel:
    """Validate and complete the settings of a method."""
    from suture.methods.method import find_method

    try:
        kind = find_method(name).Settings
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return _validated(kind, merge(kind().model_dump(), settings), f"{at}.", where)


def _validated(model: type[M], settings: Mapping[str, Any], at: str, where: str) -> M:
    """Validate settings; list all mistakes in one `UserError`."""
    try:
        return model(**settings)
    except ValidationError as error:
        problems: dict[str, str] = {}
        for mistake in error.errors():
            key, unknown = _key(model, mistake["loc"])
            if mistake["type"] == "extra_forbidden":
                problem = f"there is no setting {at}{key}{nearest(key.rpartition('.')[2], unknown)}"
            elif mistake["type"] == "missing":
                problem = f"{at}{key} is missing"
            elif key in problems:  # a further alternative of the type
                problem = f"{problems[key]}, or {reason(mistake).removeprefix('expected ')}"
            else:
                given = "" if isinstance(mistake["input"], Mapping | BaseModel) else f" is {short(mistake['input'])}"
                problem = f"{at}{key}{given}: {reason(mistake)}"
            problems[key] = problem
        raise UserError("\n".join(f"{where}: {problem}." for problem in problems.values())) from error


def _key(model: type[BaseModel], parts: Iterable[int | str]) -> tuple[str, list[str]]:
    """Return the key of a setting without pydantic's names of alternative types, and the fields of its section."""
    names: list[str] = []
    section: type[BaseModel] | None = model
    fields: list[str] = []
    for part in parts:
        if section is not None or isinstance(part, int):
            names.append(str(part))
        if section is not None:
            fields = list(section.model_fields)
            field = section.model_fields.get(str(part))
            section = _model_in(field.annotation) if field else None
    return ".".join(names), fields


def setting_keys(model: type[BaseModel], at: str = "") -> Iterator[str]:
    """Yield every setting, such as `optimizer.lr`."""
    for name, field in model.model_fields.items():
        yield at + name
        if inner := _model_in(field.annotation):
            yield from setting_keys(inner, f"{at}{name}.")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the settings class in an annotation such as `LoggerSettings | None`."""
    candidates = (annotation, *get_args(annotation))
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings, key by key, with precedence for `above`; of alternatives only those of `above` stay.

    A section that is null in `above` is left out: it has its defaults.

    >>> merge({"a": {"b": 1, "c": 2}, "steps": 5}, {"a": {"c": 3}, "epochs": 7})
    {'a': {'b': 1, 'c': 3}, 'steps': None, 'epochs': 7}
    """
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(under, Mapping) and value is None:
            del merged[key]
        else:
            merged[key] = merge(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    for names in ALTERNATIVES:
        if any(above.get(name) is not None for name in names):
            merged |= {name: None for name in names if name in below and name not in above}
    return merged


def differences(before: Mapping[str, Any], after: Mapping[str, Any], at: str = "") -> list[str]:
    """List differing settings as `key: before → after`."""
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        a, b = before.get(key), after.get(key)
        if all(side is None or isinstance(side, Mapping) for side in (a, b)) and (a or b):
            lines += differences(a or {}, b or {}, f"{at}{key}.")
        elif a != b:
            lines.append(f"{at}{key}: {_to_text(a)} → {_to_text(b)}")
    return lines


def _to_text(value: Any) -> str:
    """Write a value as in YAML."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def without_folders(config: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the paths in a config by their names."""
    return _map_paths(config, lambda path: PurePath(path).name)


def relocated(settings: Mapping[str, Any], before: Path, after: Path | None) -> dict[str, Any]:
    """Rewrite paths that are relative to the folder `before` as relative to `after`, or as absolute if it is None."""
    return _map_paths(settings, lambda path: _relocated_path(path, before, after))


def _map_paths(settings: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return a copy of settings with every path changed."""
    moved = deepcopy(dict(settings))
    for *sections, last in PATHS:
        section = _subsection(moved, sections)
        path = section.get(last)
        if isinstance(path, list):
            section[last] = [change(one) for one in path]
        elif isinstance(path, str) and (last != "weights" or is_weights_file(path)):
            section[last] = change(path)
    return moved


def _preset(name: str | None, where: str) -> dict[str, Any]:
    """Read a preset, over the preset that it names itself."""
    if name is None:
        return {}
    if name not in presets():
        raise UserError(
            f"{where}: preset: there is no {name!r}{nearest(name, presets())}; the presets are {', '.join(presets())}."
        )
    settings = parse_yaml(preset_text(name))
    return merge(_preset(settings.pop("preset", None), where), settings)


def _method_as_section(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Expand `method: NAME` to `method: {name: NAME}`."""
    method = settings.get("method")
    return {**settings, **({"method": {"name": method}} if isinstance(method, str) else {})}


def _section(settings: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    section = settings.get(key) or {}
    if not isinstance(section, Mapping):
        raise UserError(f"{where}: {key} is {short(section)}, expected settings by name.")
    return section


def _relocated_path(path: str, before: Path, after: Path | None) -> str:
    # Resolved, because `..` behind a symbolic link leads elsewhere.
    absolute = os.path.join(os.path.realpath(before), path)
    if after is None:
        return os.path.normpath(absolute)
    return path if os.path.isabs(path) else os.path.relpath(absolute, os.path.realpath(after))
