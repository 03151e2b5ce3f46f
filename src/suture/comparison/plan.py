"""The comparison file and the runs that it plans: datasets × labellings × methods × swept values × seeds."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import Field, field_validator, model_validator

from suture.core.errors import UserError
from suture.core.io import check_format, read_yaml, write_json
from suture.core.settings import Settings
from suture.core.text import listed
from suture.data.dataset_file import nearest, parse
from suture.data.labelling import LabellingSettings
from suture.training.config import Config, load_config, merge, relocated, without_folders
from suture.training.run_folder import Run

FORMAT = 1
PLAN = "plan.json"
"""Order and roles of the runs in a comparison's folder."""
FAILED = "failed.json"
"""Error message of each failed run."""
MAX_SHOWN_CHANGES = 3
_NAME = re.compile(r"[A-Za-z0-9.+-]+(_[A-Za-z0-9.+-]+)*")
_ANY_LABELLING = dict.fromkeys(LabellingSettings.model_fields)


class RunKey(NamedTuple):
    """Dataset, labelling, method, sweep point and seed of a run, and its name made of these.

    >>> RunKey("cadis", "every-60", "pgvcl", "other_videos=4", 0).name
    'cadis__every-60__pgvcl__other_videos=4__seed-0'
    >>> RunKey.of_name("cadis__every-60__supervised__seed-1")
    RunKey(dataset='cadis', labelling='every-60', method='supervised', point='', seed=1)
    """

    dataset: str
    labelling: str
    method: str
    point: str
    """Swept values; empty without a sweep."""
    seed: int

    @property
    def name(self) -> str:
        return "__".join(part for part in (*self[:4], f"seed-{self.seed}") if part)

    @staticmethod
    def of_name(name: str) -> "RunKey | None":
        """Parse a run's name; None for any other folder name."""
        *parts, last = name.split("__")
        if len(parts) not in (3, 4) or not re.fullmatch(r"seed-\d+", last):
            return None
        dataset, labelling, method, point = (*parts, "")[:4]
        return RunKey(dataset, labelling, method, point, int(last.removeprefix("seed-")))


class Variant(Settings):
    """A method under its own name, with its own settings, labelling or seeds."""

    method: str
    labelling: dict[str, Any] | None = None
    seeds: tuple[int, ...] | None = Field(None, min_length=1)
    set: dict[str, Any] = Field(default_factory=dict)


class Comparison(Settings):
    """Content of a comparison file. `set` and `sweep` hold keys of a run's config."""

    format: int = FORMAT
    preset: str | None = None
    datasets: dict[str, dict[str, Any]] = Field(min_length=1)
    """Names, each with the section `data` of a config."""
    folds: int | None = Field(None, ge=2)
    """Cross-validation: every dataset in this number of folds over its cases, instead of its own split."""
    labelling: tuple[dict[str, Any], ...] | None = None
    """Values of `data.labelling`; `{}` takes all masks. By default that of preset and `set`."""
    methods: dict[str, Variant] = Field(min_length=1)
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    reference: str = ""
    """Method that the others are compared with; by default the first one."""
    proposed: str = ""
    """Method that is compared with each other one, over all labellings."""
    effects: str = ""
    """Method whose varied settings are fitted as a sum of effects."""
    sweep: dict[str, list[Any] | dict[str, Any]] = Field(default_factory=dict)
    """Values by dotted config key (every combination), or settings by the name of a point."""
    set: dict[str, Any] = Field(default_factory=dict)

    @field_validator("methods", mode="before")
    @classmethod
    def _short_methods(cls, methods: Any) -> Any:
        if isinstance(methods, list) and all(isinstance(name, str) for name in methods):
            methods = dict.fromkeys(methods)
        if isinstance(methods, Mapping):
            return {name: {"method": name} if variant is None else variant for name, variant in methods.items()}
        return methods

    @field_validator("labelling", mode="before")
    @classmethod
    def _one_labelling(cls, labelling: Any) -> Any:
        return [labelling] if isinstance(labelling, Mapping) else labelling

    @model_validator(mode="after")
    def _fits_together(self) -> "Comparison":
        for name in (*self.datasets, *self.methods):
            if not _NAME.fullmatch(name):
                raise ValueError(f"the name {name!r} becomes part of folders: use letters, digits and . + - _ in it")
        for role in ("reference", "proposed"):
            if (name := getattr(self, role)) and name not in self.methods:
                raise ValueError(f"{role} is {name!r}, expected one of {', '.join(self.methods)}")
        for seeds in (self.seeds, *(variant.seeds or () for variant in self.methods.values())):
            if len(set(seeds)) < len(seeds):
                raise ValueError(f"a seed stands twice in {list(seeds)}")
        if len({type(values) for values in self.sweep.values()}) > 1:
            raise ValueError("sweep holds either lists of values by key, or settings by the name of a point")
        return self


@dataclass(frozen=True)
class PlannedRun:
    """A run of a comparison, with its complete config."""

    key: RunKey
    config: Config

    @property
    def name(self) -> str:
        return self.key.name


@dataclass(frozen=True)
class ComparisonPlan:
    """Runs of a comparison in the order of training: one seed after the other."""

    title: str
    roles: dict[str, str]
    """The methods of the roles `reference`, `proposed` and `effects`."""
    runs: tuple[PlannedRun, ...]

    def only(self, names: Collection[str]) -> "ComparisonPlan":
        """Select runs by method or by name, in the order of the names; without names, all."""
        methods = dict.fromkeys(run.key.method for run in self.runs)
        known = [*methods, *(run.name for run in self.runs)]
        for name in names:
            if name not in known:
                expected = f"expected one of the file's methods ({', '.join(methods)}) or a run that --list shows"
                raise UserError(f"--only is {name!r}{nearest(name, known)}, {expected}.")
        chosen = {run.name: run for name in names for run in self.runs if name in (run.key.method, run.name)}
        return replace(self, runs=tuple(chosen.values())) if names else self

    def write(self, out: Path) -> None:
        """Write what the tables need into the comparison's folder."""
        write_json(out / PLAN, {"title": self.title, "runs": [run.name for run in self.runs]} | self.roles)


def read_plan(file: Path) -> ComparisonPlan:
    """Read a comparison file and make the config of every run. Its paths are relative to the file."""
    content = read_yaml(file)
    check_format(file, content.get("format", FORMAT), FORMAT)
    comparison = parse(Comparison, content, file)
    runs: dict[str, PlannedRun] = {}
    for run in _runs(comparison, file):
        if run.name in runs:
            raise UserError(f"{file}: the run {run.name} is planned twice: give labellings and points other names.")
        runs[run.name] = run
    reference = comparison.reference or next(iter(comparison.methods))
    roles = {"reference": reference, "proposed": comparison.proposed, "effects": comparison.effects}
    return ComparisonPlan(file.stem, roles, tuple(runs.values()))


def require_unchanged(plan: ComparisonPlan, out: Path) -> None:
    """Raise if the comparison's folder holds runs with other settings."""
    changed = []
    for run in plan.runs:
        try:
            config = Run(out / "runs" / run.name).config
        except UserError:  # not begun, or damaged
            continue
        before, after = (deciding_settings(one.model_dump(mode="json")) for one in (config, run.config))
        lines = [f"{key}: {before.get(key)} → {after[key]}" for key in after if before.get(key) != after[key]]
        changed += [f"{run.name} ({'; '.join(lines[:MAX_SHOWN_CHANGES])})"] if lines else []
    if changed:
        raise UserError(
            f"{out} holds runs with other settings: {listed(changed, MAX_SHOWN_CHANGES)}: "
            "give another folder with -o, or remove these runs."
        )


def expanded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into sections.

    >>> expanded({"compute.workers": 2, "compute": {"log_every": 5}})
    {'compute': {'workers': 2, 'log_every': 5}}
    """
    result: dict[str, Any] = {}
    for key, value in settings.items():
        nested: Any = expanded(value) if isinstance(value, Mapping) else value
        for part in reversed(str(key).split(".")):
            nested = {part: nested}
        result = merge(result, nested)
    return result


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn sections into dotted keys.

    >>> flattened({"compute.workers": 2, "data": {"size": 64, "labelling": {"every": 5}}})
    {'compute.workers': 2, 'data.size': 64, 'data.labelling.every': 5}
    """
    result: dict[str, Any] = {}
    for key, value in settings.items():
        section = isinstance(value, Mapping) and value
        result |= flattened(value, f"{prefix}{key}.") if section else {f"{prefix}{key}": value}
    return result


def deciding_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that decide a run's outcome, by dotted key: not where it runs, nor where its files are."""
    ignored = ("format", "compute.", "data.cache")
    flat = flattened(without_folders(config))
    return {key: value for key, value in flat.items() if not key.startswith(ignored)}


def labelling_name(labelling: Mapping[str, Any]) -> str:
    """Name a labelling as part of a run's name.

    >>> labelling_name({"every": 10, "videos": 4}), labelling_name({"list": "lists/ten.txt"}), labelling_name({})
    ('every-10_videos-4', 'list-ten', 'all')
    """
    given = {key: value for key, value in labelling.items() if value is not None}
    names = [f"{key}-{_safe(Path(value).stem if key == 'list' else value)}" for key, value in given.items()]
    return "_".join(names) or "all"


def points(sweep: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and settings (by dotted key) of each point of a sweep.

    >>> [name for name, _ in points({"method.contrast.augment.crop": [[0.2, 0.7], [0.3, 0.7]]})]
    ['crop=0.2-0.7', 'crop=0.3-0.7']
    >>> dict(points({"P1N4": {"method.contrast.keys": {"same_shot": 1, "other_videos": 4}}}))
    {'P1N4': {'method.contrast.keys.same_shot': 1, 'method.contrast.keys.other_videos': 4}}
    """
    if any(isinstance(values, Mapping) for values in sweep.values()):
        for name, settings in sweep.items():
            yield _safe(name), flattened(settings)
        return
    last = [key.rpartition(".")[2] for key in sweep]
    short = last if len(set(last)) == len(last) else list(sweep)
    for values in itertools.product(*sweep.values()):
        name = ",".join(f"{name}={_safe(value)}" for name, value in zip(short, values, strict=True))
        yield name, flattened(dict(zip(sweep, values, strict=True)))


def _runs(comparison: Comparison, file: Path) -> Iterator[PlannedRun]:
    variants = comparison.methods.values()
    seeds = dict.fromkeys((*comparison.seeds, *(seed for variant in variants for seed in variant.seeds or ())))
    swept = list(points(comparison.sweep)) if comparison.sweep else []
    unused = {point for point, _ in swept}
    for seed, (dataset, data), (name, variant) in itertools.product(
        seeds, _datasets(comparison), comparison.methods.items()
    ):
        if seed not in (variant.seeds or comparison.seeds):
            continue
        own = None if variant.labelling is None else (variant.labelling,)
        for labelling in own or comparison.labelling or (None,):
            settings = merge(expanded(comparison.set), {"data": expanded(data)})
            if labelling is not None:
                settings = merge(settings, {"data": {"labelling": _ANY_LABELLING | labelling}})
            settings = merge(settings, {"method": {"name": variant.method}, "seed": seed})
            settings = merge(settings, expanded(variant.set))
            where = f"{file}, {dataset}, {name}"
            config = _config(comparison.preset, settings, file, where)
            label = labelling_name(config.data.labelling.model_dump(mode="json"))
            known = flattened(config.model_dump(mode="json"))
            mine, own_keys = [], rf"^methods\.{re.escape(variant.method)}\."
            for point, changes in swept:
                changes = {re.sub(own_keys, "method.", key): value for key, value in changes.items()}
                changes = {key: value for key, value in changes.items() if not key.startswith("methods.")}
                if changes and all(_is_known(key, known) for key in changes):
                    unused.discard(point)
                    changed = merge(settings, expanded(changes))
                    mine.append((point, _config(comparison.preset, changed, file, f"{where}, {point}")))
            seen = list[Config]()
            for point, at_point in mine or [("", config)]:
                if (at_point.seed, at_point.method["name"]) != (seed, variant.method):
                    raise UserError(f"{where}: a setting changes the method or the seed: list it there instead.")
                if at_point not in seen:  # points may differ in settings of other methods only
                    seen.append(at_point)
                    yield PlannedRun(RunKey(dataset, label, name, point, seed), at_point)
    if unused:
        raise UserError(f"{file}: none of the methods has the keys of the sweep's {min(unused)}; check their spelling.")


def _datasets(comparison: Comparison) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and `data` of each dataset, or of each of its folds."""
    for name, data in comparison.datasets.items():
        if comparison.folds is None:
            yield name, data
        for fold in range(1, (comparison.folds or 0) + 1):
            yield f"{name}-fold-{fold}-of-{comparison.folds}", data | {"fold": [fold, comparison.folds]}


def _config(preset: str | None, settings: Mapping[str, Any], file: Path, where: str) -> Config:
    """Complete a run's config, with paths relative to the working folder."""
    settings = relocated(settings, file.parent, Path())
    overrides = [f"{key}={yaml.safe_dump(one, default_flow_style=True, width=10**9)}" for key, one in settings.items()]
    return load_config(preset=preset, overrides=overrides, origin=where)


def _is_known(key: str, known: Collection[str]) -> bool:
    """Check that a method has a key or section; only keys of the method differ between methods."""
    return not key.startswith("method.") or any(one == key or one.startswith(f"{key}.") for one in known)


def _safe(value: Any) -> str:
    """Write a value as part of a folder's name."""
    if isinstance(value, list | tuple):
        return "-".join(map(_safe, value))
    if isinstance(value, int | float) and value < 0:
        return str(value)
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", str(value)).strip("-") or "none"
