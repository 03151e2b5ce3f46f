"""The configuration of a run: what the user says, over a preset, over the defaults; unknown keys are refused."""

import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, PositiveFloat, ValidationError, field_validator, model_validator

from suture.core.errors import UserError
from suture.core.io import check_format, read_yaml, suffix_of
from suture.core.schemas import require_no_run
from suture.core.settings import Settings
from suture.core.text import listed, reason
from suture.data.dataset_file import FILE_NAME as DATASET_FILE
from suture.data.dataset_file import nearest
from suture.data.labelling import LabellingSettings
from suture.models.model_files import is_weights_file
from suture.training.overrides import set_value
from suture.training.presets import preset_text, presets

if TYPE_CHECKING:
    from suture.methods.method import Method

FORMAT = 6
"""The newest `config.yaml` this version reads."""
DEFAULT_METHOD = "stitch"
PATHS = (("data", "root"), ("data", "cache"), ("data", "labelling", "list"), ("model", "weights"))
"""The settings that are paths."""
OURS = ("strong", "stitch")
GONE = (("doubt", 0), ("paste", 0), ("frozen_norms", False))
"""Settings that these once had, at values by which they did nothing: configs of that time hold them."""
ALTERNATIVES = (("steps", "epochs"), ("every", "ratio", "list"))
"""Settings of which one takes the place of the others."""


class DataSettings(Settings):
    """Which dataset, at which size, with which labels."""

    root: Path
    source: str = "auto"
    options: dict[str, Any] = Field(default_factory=dict)
    """The source's own options, such as `task: 2` of CaDIS."""
    size: int | tuple[int, int] = 256
    """Training size: the side of a square, or [height, width]; the view of every frame is resized to it."""
    labelling: LabellingSettings = LabellingSettings()
    validation: tuple[str, ...] = ()
    """Training cases or videos that are held out for validation."""
    store_size: int | None = Field(None, ge=8)
    """Short side of stored frames; by default large enough for the smallest crop."""
    cache: Path | None = None
    """Where the frame store lies; by default the user's cache folder."""

    @model_validator(mode="before")
    @classmethod
    def _without_store(cls, said: Any) -> Any:
        """Runs of earlier versions say it as a setting; frames are always kept in the store."""
        if not isinstance(said, Mapping) or "store" not in said:
            return said
        if said["store"] is not True:
            raise ValueError(
                "store is gone, frames are always kept in the frame store: remove the line, and where its disk has no "
                "room, set cache to a folder on another"
            )
        return {key: value for key, value in said.items() if key != "store"}

    @field_validator("labelling", mode="before")
    @classmethod
    def _said(cls, labelling: Any) -> Any:
        return {} if labelling is None else labelling  # a section whose lines are all commented out says nothing

    @field_validator("size")
    @classmethod
    def _positive(cls, size: int | tuple[int, int]) -> int | tuple[int, int]:
        if min(size if isinstance(size, tuple) else (size,)) < 16:
            raise ValueError("sides below 16 pixels leave nothing to segment")
        return size

    @property
    def height_width(self) -> tuple[int, int]:
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)


class ModelSettings(Settings):
    """Which segmenter, and what its encoder starts from."""

    architecture: str = "deeplabv3"
    encoder: str = "resnet50"
    output_stride: int | None = None
    weights: str | None = "imagenet"
    """A name on the hub, or a file (.safetensors, .pth); null starts from random weights."""
    layout: Literal["torchvision", "caffe"] = "torchvision"
    origin: str | None = None
    """Where the weights come from, and under which licence: for the run's records."""
    licence: str | None = None


class LoggerSettings(Settings):
    """One more Lightning logger: its class, such as `lightning.pytorch.loggers.WandbLogger`, and its arguments."""

    kind: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ComputeSettings(Settings):
    """Where and how fast; none of it changes what is computed beyond rounding."""

    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    precision: Literal["auto", "32", "bf16", "16"] = "auto"
    """`auto` is bf16 on a GPU that has it, else 32."""
    compile: bool | Literal["auto"] = "auto"
    """`auto` is for stages that are long enough for it to pay, on a GPU."""
    workers: int | None = Field(None, ge=0)
    """Loader processes; by default one per core up to 8, none on the CPU."""
    checkpoint_every: int = Field(200, ge=1)
    """Steps between checkpoints: what a kill can cost at most."""
    log_every: int = Field(10, ge=1)
    logger: LoggerSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_channels_last(cls, said: Any) -> Any:
        """Runs of earlier versions, some still to be gone on with, say it as a setting; it always is so."""
        if isinstance(said, Mapping) and said.get("channels_last") is True:
            return {key: value for key, value in said.items() if key != "channels_last"}
        return said

    @field_validator("precision", mode="before")
    @classmethod
    def _as_text(cls, precision: Any) -> Any:
        """YAML reads 16 and 32 without quotes as numbers."""
        return str(precision) if type(precision) is int else precision


class EvaluationSettings(Settings):
    """What is evaluated when the training is done."""

    splits: tuple[Literal["val", "test"], ...] = ("val", "test")
    completion: bool = True
    """Whether the unlabelled frames of labelled training videos are scored, where they have masks."""
    flip: bool = False
    """Whether the predictions of a frame and of its mirror image are averaged."""
    scales: tuple[PositiveFloat, ...] = Field((1.0,), min_length=1)
    """Sizes, as factors of the training size, whose predictions are averaged."""
    include_background: bool = True
    """Whether a class called `background` enters the means."""
    batch: int = Field(8, ge=1)


class Config(Settings):
    """All of it. `method` holds the method's name and all its settings."""

    format: int = FORMAT
    seed: int = Field(0, ge=0, lt=2**63)
    method: dict[str, Any] = Field(default_factory=lambda: {"name": DEFAULT_METHOD})
    data: DataSettings
    model: ModelSettings = ModelSettings()
    compute: ComputeSettings = ComputeSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    def build_method(self) -> "Method":
        """The method with its settings."""
        from suture.methods.method import find_method

        kind = find_method(self.method["name"])
        return kind(kind.Settings(**{key: value for key, value in self.method.items() if key != "name"}))


def load_config(
    target: Path | None = None,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    *,
    origin: str = "the settings given",
    look: Callable[[Config], object] | None = None,
) -> Config:
    """Make a complete config of a config file or a dataset's folder, a preset and `a.b=c` overrides from `origin`.

    `look` is shown it while only the method's own settings are still missing, whose import takes seconds.

    >>> load_config(Path("data/my-surgery"), overrides=["seed=3", "method.train.steps=4000"])  # doctest: +SKIP
    """
    said: dict[str, Any] = {}
    where = where_preset = origin
    if (
        target is not None
        and suffix_of(target) in (".yaml", ".yml")
        and target.is_file()
        and target.name != DATASET_FILE
    ):
        said, where = read_yaml(target), str(target)
        if {"datasets", "methods"} <= said.keys():
            raise UserError(
                f"{target} is a comparison file, expected a config file: to train what it compares, "
                f"`suture compare {target}`."
            )
        check_format(target, said.get("format", FORMAT), FORMAT)
        stated = said.pop("preset", None)
        if preset is None:
            preset, where_preset = stated, where
        # Paths in a config are relative to the config, wherever the command is run; those of --set to the command.
        said = relocated(said, target.parent, Path())
    elif target is not None:
        go_on = f"suture train {target / 'config.yaml'} -o {target}"
        require_no_run(target, f"a config file or a dataset's folder: to go on with it, `{go_on}`")
        said = {"data": {"root": str(target)}}
    for override in overrides:
        set_value(said, override, origin)
    if not said.get("data"):
        raise UserError(f"{where}: no dataset is named; give its folder, or a config file with data.root.")
    below = _without(_preset(preset, where_preset), overrides)
    return parse_config(merge(below, _method_as_section(said)), where, look)


def _without(preset: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A preset without the sections that `--set SECTION=null` undoes; in a file, an empty section says nothing."""
    for key in (override.partition("=")[0] for override in overrides if override.endswith("=null")):
        *above, last = key.split(".")
        _below(preset, above).pop(last, None)
    return preset


def _below(said: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A section of a section; empty where there is none."""
    for name in names:
        below = said.get(name)
        said = below if isinstance(below, dict) else {}
    return said


def parse_config(said: Mapping[str, Any], where: str, look: Callable[[Config], object] | None = None) -> Config:
    """Complete what was said with the defaults, all the way down, and validate it; messages name `where`.

    `methods` may hold settings for several methods, so that one file serves a comparison: the chosen one's are taken.
    """
    said = _upgraded(_method_as_section(said))
    method, several = _section(said, "method", where), _section(said, "methods", where)
    name = str(method.get("name", DEFAULT_METHOD))
    own = {key: value for key, value in method.items() if key != "name"}
    defaults = {key: Config.model_fields[key].default.model_dump() for key in ("model", "compute", "evaluation")}
    rest = {key: value for key, value in said.items() if key != "methods"}
    try:
        config = Config(**merge(defaults, rest | {"method": {"name": name}}))
    except ValidationError as error:
        # Told before the methods are looked at, which import torch and Lightning: that takes seconds.
        raise UserError("\n".join(_explained(error, Config, "", where, chosen=name))) from error
    if look is not None:
        look(config)
    mistakes: list[str] = []
    for other in several:
        if other != name:
            mistakes += _method_settings(other, _section(several, other, where), f"methods.{other}", where)[1]
    settings, found = _method_settings(name, merge(_section(several, name, where), own), "method", where)
    if mistakes or found:
        raise UserError("\n".join([*mistakes, *found]))
    return config.model_copy(update={"method": {"name": name} | settings})


def _upgraded(said: dict[str, Any]) -> dict[str, Any]:
    """What a config of an earlier format says, in the words of this one, so that a run keeps its settings.

    In format 1 no view was tilted, or, towards its end, all of a stage by one setting; `doubt` was a weight of stitch.
    Until format 2 their rate of 3e-4 was the default for every encoder; null, the default now, means it for ResNets.
    Until format 3 that of the other methods in one stage was 1e-4.
    In format 5 strong and stitch had no hard pixels by default, and stitch labels from two neighbours.
    """
    before, method = said.get("format"), said.get("method") or {}
    if not (isinstance(before, int) and 0 < before < FORMAT and isinstance(method, Mapping)):
        return said  # mistakes are told with all others
    below: dict[str, Any] = {}
    if before < 4:
        below = {one: {"train": {"optimizer": {"lr": 1e-4}}} for one in ("supervised", "uamt", "unimatch")}
    elif before == 5:
        every = {"hard_from": 1}
        below = {"strong": {"train": every}, "stitch": {"train": every | {"correspondence": {"neighbours": 2}}}}
    said = merge({"methods": below}, said) | {"format": FORMAT}
    if isinstance(said["methods"], Mapping):
        said["methods"] = {key: _without_gone(one) if key in OURS else one for key, one in said["methods"].items()}
    name = method.get("name", DEFAULT_METHOD)
    method = _without_gone(method) if name in OURS else method
    train = method.get("train") or {}
    if name not in OURS or not isinstance(train, dict):
        return said
    if before == 1:
        tilt = {"tilt": train.pop("tilt", 0)}
        said = merge({"methods": {name: {"train": {"augment": tilt, "strong": tilt}}}}, said)
    optimizer, model = train.get("optimizer"), said.get("model")
    residual = isinstance(model, Mapping) and str(model.get("encoder")).startswith("resnet")
    if before < 3 and residual and isinstance(optimizer, Mapping) and optimizer.get("lr") == 3e-4:
        train["optimizer"] = {**optimizer, "lr": None}
    return said | {"method": method}


def _without_gone(section: Any) -> Any:
    """What is said of strong or stitch, in a copy, but for settings that are gone and did nothing."""
    train = section.get("train") if isinstance(section, Mapping) else None
    if not isinstance(train, Mapping):
        return section
    return {**section, "train": {key: value for key, value in train.items() if (key, value) not in GONE}}


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, key by key, all the way down; of alternatives, only those of `above` stay.

    >>> merge({"a": {"b": 1, "c": 2}, "steps": 5}, {"a": {"c": 3}, "epochs": 7})
    {'a': {'b': 1, 'c': 3}, 'steps': None, 'epochs': 7}
    """
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(under, Mapping) and (value is None or isinstance(value, Mapping)):
            merged[key] = merge(under, value or {})  # a section whose lines are all commented out says nothing
        else:
            merged[key] = value
    for names in ALTERNATIVES:
        if any(above.get(name) is not None for name in names):
            merged |= {name: None for name in names if name in below and name not in above}
    return merged


def differences(before: Mapping[str, Any], after: Mapping[str, Any], at: str = "") -> list[str]:
    """Lines `key: before → after` for all that differs; a section that only one has is told key by key."""
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        a, b = before.get(key), after.get(key)
        if all(side is None or isinstance(side, Mapping) for side in (a, b)) and (a or b):
            lines += differences(a or {}, b or {}, f"{at}{key}.")
        elif a != b:
            lines.append(f"{at}{key}: {_as_typed(a)} → {_as_typed(b)}")
    return lines


def _as_typed(value: Any) -> str:
    """A value as one would set it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """A config whose paths are names."""
    for *sections, last in PATHS:
        section = _below(config, sections)
        path = section.get(last)
        if path and (last != "weights" or is_weights_file(path)):
            section[last] = PurePath(path).name
    return config


def relocated(said: Mapping[str, Any], before: Path, after: Path | None) -> dict[str, Any]:
    """The same settings, their paths relative to the folder `after` instead of `before`; absolute ones stay.

    Without `after` all paths become absolute, so that settings can be compared.
    """
    moved = dict(said)
    for place in PATHS:
        *sections, last = place
        section: Any = moved
        for name in sections:
            if not isinstance(section, dict) or not isinstance(section.get(name), Mapping):
                break
            section[name] = dict(section[name])
            section = section[name]
        else:
            path = section.get(last)
            if isinstance(path, str) and (last != "weights" or is_weights_file(path)):
                section[last] = _seen_from(path, before, after)
    return moved


def _preset(name: str | None, where: str) -> dict[str, Any]:
    """What a preset says, over the preset that it names itself, if it does."""
    if name is None:
        return {}
    if name not in presets():
        raise UserError(
            f"{where}: preset: there is no {name!r}{nearest(name, presets())}; the presets are {', '.join(presets())}."
        )
    said = yaml.safe_load(preset_text(name))
    return merge(_preset(said.pop("preset", None), where), said)


def _method_as_section(said: Mapping[str, Any]) -> dict[str, Any]:
    """`method: supervised` is short for `method: {name: supervised}`."""
    return {**said, **({"method": {"name": said["method"]}} if isinstance(said.get("method"), str) else {})}


def _section(said: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    section = said.get(key) or {}
    if not isinstance(section, Mapping):
        raise UserError(f"{where}: {key} is {section!r}, expected settings by name.")
    return section


def _method_settings(name: str, said: Mapping[str, Any], at: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """A method's settings, complete, and what is wrong with them."""
    from suture.methods.method import find_method

    try:
        kind = find_method(name).Settings
    except UserError as error:
        return {}, [f"{where}: {error}"]
    try:
        return kind(**merge(kind().model_dump(), said)).model_dump(mode="json"), []
    except ValidationError as error:
        return {}, _explained(error, kind, f"{at}.", where, name)


def _seen_from(path: str, before: Path, after: Path | None) -> str:
    # The real folders: through a link, `..` would lead elsewhere.
    absolute = os.path.join(os.path.realpath(before), path)
    if after is None:
        return os.path.normpath(absolute)
    return path if os.path.isabs(path) else os.path.relpath(absolute, os.path.realpath(after))


def _explained(
    error: ValidationError, model: type[BaseModel], at: str, where: str, method: str = "", chosen: str = ""
) -> list[str]:
    """One sentence for each mistake that pydantic found; alternatives of one setting are one mistake.

    `method` is the one whose settings these are; `chosen` the one whose settings a short key (`lr`) may mean.
    """
    known = list(_places(model))
    sentences: dict[str, str] = {}
    for mistake in error.errors():
        place = _place(model, mistake["loc"])
        message = reason(mistake)
        if mistake["type"] == "extra_forbidden":
            meant = _close(place, known)
            if not meant:
                meant = _namesakes(place, [*(_places_of(chosen) if "." not in place else ()), *known])
            said = " or ".join(f"{at}{other}" for other in meant)
            hint = f"; did you mean {said}?" if meant else _others(place, known, at)
            sentence = f"there is no setting {at}{place}{hint}"
            if method and (others := _having(place)):
                sentence = (
                    f"there is no setting {at}{place} in {method}, only in {others}: choose another method, or set "
                    f"what {method} has ({', '.join(model.model_fields)})."
                )
        elif mistake["type"] == "missing":
            sentence = f"{at}{place} is missing."
        elif place in sentences:
            sentence = f"{sentences[place].removesuffix('.')}, or: {message}."
        else:
            found = "" if isinstance(mistake["input"], Mapping | BaseModel) else f" is {mistake['input']!r}"
            sentence = f"{at}{place}{found}: {message}."
        sentences[place] = sentence
    return [f"{where}: {sentence}" for sentence in sentences.values()]


def _having(stage: str) -> str:
    """The methods that have this stage."""
    from suture.methods.method import methods

    return ", ".join(name for name, kind in sorted(methods().items()) if stage in kind.Settings.model_fields)


def _places(model: type[BaseModel], at: str = "") -> Iterator[str]:
    """Every setting, as `optimizer.lr`."""
    for name, field in model.model_fields.items():
        yield at + name
        if inner := _model_in(field.annotation):
            yield from _places(inner, f"{at}{name}.")


def _place(model: type[BaseModel] | None, parts: Iterable[int | str]) -> str:
    """A setting as pydantic names it, without the names of the alternatives that it tried."""
    names = []
    for part in parts:
        if model is not None or isinstance(part, int):
            names.append(str(part))
        field = model.model_fields.get(str(part)) if model is not None else None
        model = _model_in(field.annotation) if field else None
    return ".".join(names)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The settings class in an annotation such as `LoggerSettings | None`."""
    candidates = (annotation, *get_args(annotation))
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _places_of(method: str) -> list[str]:
    """Every setting of a method, as `method.train.optimizer.lr`; importing the methods takes seconds."""
    from suture.methods.method import methods

    kind = methods().get(method) if method else None  # an unknown one is told when nothing else is wrong
    return [f"method.{place}" for place in _places(kind.Settings)] if kind else []


def _close(place: str, known: Iterable[str]) -> list[str]:
    """The setting of the same section whose name comes near."""
    section, _, name = place.rpartition(".")
    siblings = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == section}
    return [siblings[close] for close in difflib.get_close_matches(name, siblings, 1)]


def _others(place: str, known: Iterable[str], at: str) -> str:
    """What its section has, where no name comes near.

    >>> _others("train.optimizer.sped", ["train.optimizer", "train.optimizer.kind", "train.optimizer.lr"], "method.")
    '; method.train.optimizer has kind and lr.'
    """
    section = place.rpartition(".")[0]
    names = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == section]
    where = f"{at}{section}".removesuffix(".") or "a config"
    return f"; {where} has {listed(names)}." if names else "."


def _namesakes(place: str, known: Iterable[str]) -> list[str]:
    """The settings of that name: those below its section, or else anywhere."""
    section, _, name = place.rpartition(".")
    found = [other for other in known if other.rpartition(".")[2] == name]
    return [other for other in found if other.startswith(f"{section}.")] or found
