"""The configuration of a run: what the user says, over a preset, over the defaults; unknown keys are refused."""

import difflib
import os
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from suture.data.labelling import LabellingSettings
from suture.errors import UserError
from suture.files import check_format, read_yaml
from suture.methods.method import Method, find_method, methods
from suture.methods.stage import Settings

FORMAT = 1
"""The newest `config.yaml` this version reads."""
DEFAULT_METHOD = "pgvcl"


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
    store: bool = True
    """Whether frames are kept at storage size in the cache; else they are decoded on the fly."""
    store_size: int | None = Field(None, ge=8)
    """Short side of stored frames; by default large enough for the smallest crop."""
    cache: Path | None = None

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


class LoggerSettings(Settings):
    """One more Lightning logger: its class, such as `lightning.pytorch.loggers.WandbLogger`, and its arguments."""

    kind: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ComputeSettings(Settings):
    """Where and how fast; none of it changes what is computed beyond rounding."""

    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    precision: Literal["auto", "32", "bf16", "16"] = "auto"
    """`auto` is bf16 on a GPU that has it, else 32."""
    channels_last: bool = True
    compile: bool = False
    workers: int | None = Field(None, ge=0)
    """Loader processes; by default one per core up to 8, none on the CPU."""
    checkpoint_every: int = Field(200, ge=1)
    """Steps between checkpoints: what a kill can cost at most."""
    log_every: int = Field(10, ge=1)
    logger: LoggerSettings | None = None


class EvaluationSettings(Settings):
    """What is evaluated when the training is done."""

    splits: tuple[Literal["val", "test"], ...] = ("val", "test")
    completion: bool = True
    """Whether the unlabelled frames of labelled training videos are scored, where they have masks."""
    flip: bool = False
    scales: tuple[float, ...] = (1.0,)
    include_background: bool = True
    batch: int = Field(8, ge=1)


class Config(Settings):
    """All of it. `method` holds the method's name and its own settings."""

    format: int = FORMAT
    seed: int = Field(0, ge=0)
    method: dict[str, Any] = Field(default_factory=lambda: {"name": DEFAULT_METHOD})
    data: DataSettings
    model: ModelSettings = ModelSettings()
    compute: ComputeSettings = ComputeSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @field_validator("method", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    def build_method(self) -> Method:
        """The method with its settings."""
        kind = find_method(self.method["name"])
        return kind(kind.Settings(**{key: value for key, value in self.method.items() if key != "name"}))

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def presets() -> list[str]:
    """Names of the presets that come with Suture."""
    return sorted(
        path.name.removesuffix(".yaml")
        for path in files("suture.runs.presets").iterdir()
        if path.name.endswith(".yaml")
    )


def load_config(target: Path | None = None, preset: str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Make a complete config of a config file or a dataset's folder, a preset and `a.b=c` overrides.

    >>> load_config(Path("data/my-surgery"), overrides=["seed=3", "method.contrast.epochs=20"])  # doctest: +SKIP
    """
    said: dict[str, Any] = {}
    where = "the command line"
    if target is not None and target.is_file() and target.suffix in (".yaml", ".yml"):
        said, where = read_yaml(target), str(target)
        check_format(target, said.get("format", FORMAT), FORMAT)
        preset = said.pop("preset", None) if preset is None else preset
        if isinstance(said.get("data"), dict) and isinstance(said["data"].get("root"), str):
            # Paths in a config are relative to the config, wherever the command is run.
            said["data"]["root"] = os.path.relpath(target.parent / said["data"]["root"])
        _relative_weights(said, target.parent)
    elif target is not None:
        said = {"data": {"root": str(target)}}
    for override in overrides:
        set_value(said, override)
    if isinstance(said.get("method"), str):
        said["method"] = {"name": said["method"]}
    merged = merge(_preset(preset), said)
    # `methods` holds settings for several methods, so that one file serves a comparison; the chosen one's are taken.
    several, chosen = merged.pop("methods", {}), merged.get("method", {})
    name = chosen.get("name", DEFAULT_METHOD)
    merged["method"] = merge(merge({"name": name}, several.get(name, {})), chosen)
    return parse_config(merged, where)


def parse_config(said: Mapping[str, Any], where: str) -> Config:
    """Complete what was said with the defaults, all the way down, and validate it."""
    name = (said.get("method") or {}).get("name", DEFAULT_METHOD)
    if not isinstance(name, str) or name not in methods():
        find_method(str(name))
    defaults = {
        section: Config.model_fields[section].default.model_dump(mode="json")
        for section in ("model", "compute", "evaluation")
    }
    defaults["method"] = {"name": name, **find_method(name).Settings().model_dump(mode="json")}
    complete = merge(defaults, said)
    mistakes: list[str] = []
    config = None
    try:
        config = Config(**complete)
    except ValidationError as error:
        mistakes += [_explain(mistake, where, name) for mistake in error.errors()]
    try:
        find_method(name).Settings(**{key: value for key, value in complete["method"].items() if key != "name"})
    except ValidationError as error:
        mistakes += [_explain(mistake, where, name, ("method",)) for mistake in error.errors()]
    if mistakes or config is None:
        raise UserError("\n".join(mistakes))
    return config


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, key by key, all the way down.

    >>> merge({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = merge(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    for key, other in (("steps", "epochs"), ("epochs", "steps")):
        if above.get(key) is not None and other in below and other not in above:
            merged[other] = None  # a length in steps takes the place of one in epochs, and the other way round
    return merged


def differences(before: Mapping[str, Any], after: Mapping[str, Any], at: str = "") -> list[str]:
    """Lines `key: before → after` for all that differs."""
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        a, b = before.get(key), after.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, f"{at}{key}.")
        elif a != b:
            lines.append(f"{at}{key}: {a} → {b}")
    return lines


def _preset(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    if name not in presets():
        raise UserError(f"preset: there is no {name!r}; the presets are {', '.join(presets())}.")
    return yaml.safe_load((files("suture.runs.presets") / f"{name}.yaml").read_text(encoding="utf-8"))


def set_value(said: dict[str, Any], override: str) -> None:
    """Put the value of an override `a.b=c` (YAML) into its place."""
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override}: expected KEY=VALUE, such as method.contrast.epochs=20.")
    *sections, last = key.split(".")
    for section in sections:
        if isinstance(said.get(section), str) and section == "method":
            said[section] = {"name": said[section]}
        said = said.setdefault(section, {})
        if not isinstance(said, dict):
            raise UserError(f"--set {override}: {section} is a value, not a section.")
    try:
        said[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UserError(f"--set {override}: the value is not valid YAML.") from error


def _relative_weights(said: dict[str, Any], folder: Path) -> None:
    model = said.get("model")
    if isinstance(model, dict) and isinstance(model.get("weights"), str) and (folder / model["weights"]).is_file():
        model["weights"] = os.path.relpath(folder / model["weights"])


def _explain(mistake: Any, where: str, method: str, above: tuple[str, ...] = ()) -> str:
    """One sentence for one of pydantic's errors."""
    place = ".".join(str(part) for part in (*above, *mistake["loc"]))
    if mistake["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(mistake["loc"][-1]), _keys(method), 1)
        return f"{where}: there is no setting {place}" + (f"; did you mean {near[0]}?" if near else ".")
    if mistake["type"] == "missing":
        return f"{where}: {place} is missing."
    found = "" if isinstance(mistake["input"], Mapping) else f" is {mistake['input']!r}"
    return f"{where}: {place}{found}: {mistake['msg'].removeprefix('Value error, ')}."


def _keys(method: str) -> set[str]:
    names: set[str] = set()

    def walk(model: Any) -> None:
        for name, info in model.model_fields.items():
            names.add(name)
            if isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
                walk(info.annotation)

    walk(Config)
    walk(find_method(method).Settings)
    return names
