"""The comparison file, and the runs it plans: datasets × labellings × methods × swept values × seeds."""

import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import Field, field_validator, model_validator

from suture.core.errors import UserError
from suture.core.io import check_format, read_yaml, write_json
from suture.core.schemas import ConfigRecord, read_record
from suture.core.settings import Settings
from suture.core.text import listed
from suture.data.dataset_file import nearest, parse
from suture.training.config import Config, differences, load_config, merge, relocated, without_folders
from suture.training.run_folder import Run

FORMAT = 1
"""The newest comparison file this version reads."""
PLAN = "plan.json"
"""What a comparison's folder says about the order of its runs, and which method the others are compared with."""
FAILED = "failed.json"
"""Why runs failed when they were last started, by their names."""
_NAME = re.compile(r"[A-Za-z0-9.+-]+(_[A-Za-z0-9.+-]+)*")
_ANY_LABELLING = {"every": None, "ratio": None, "list": None}
_LONGEST_NAME = 236
"""Bytes: of 255, `configs/NAME.yaml` has more as it is written, under a temporary name, than folder and log."""
_SECTIONS = {*Config.model_fields, "methods"} - {"seed", "format"}
_NAMES_A_METHOD = re.compile(r"method|method(s\.[^.]+)?\.name")


class Place(NamedTuple):
    """Where a run stands in a comparison; also its name, so that a folder alone tells it.

    >>> Place("cadis", "every-60", "pgvcl", "other_videos=4", 0).name
    'cadis__every-60__pgvcl__other_videos=4__seed-0'
    >>> Place.of_name("cadis__every-60__supervised__seed-1")
    Place(dataset='cadis', labelling='every-60', method='supervised', point='', seed=1)
    """

    dataset: str
    labelling: str
    method: str
    point: str
    """The swept values; empty where nothing is swept."""
    seed: int

    @property
    def name(self) -> str:
        return "__".join(part for part in (*self[:4], f"seed-{self.seed}") if part)

    @staticmethod
    def of_name(name: str) -> "Place | None":
        """The place that a run's name tells; None where it is not the name of a planned run."""
        *parts, last = name.split("__")
        if len(parts) not in (3, 4) or not re.fullmatch(r"seed-\d+", last):
            return None
        dataset, labelling, method, point = (*parts, "")[:4]
        return Place(dataset, labelling, method, point, int(last.removeprefix("seed-")))


class Variant(Settings):
    """A method under a name of its own: with other settings, or with a labelling or seeds of its own."""

    method: str
    labelling: dict[str, Any] | None = None
    seeds: tuple[int, ...] | None = Field(None, min_length=1)
    """Both instead of the comparison's."""
    set: dict[str, Any] = Field(default_factory=dict)


class Comparison(Settings):
    """What the file says. `set` and the swept keys are keys of a run's config."""

    format: int = FORMAT
    preset: str | None = None
    datasets: dict[str, dict[str, Any]] = Field(min_length=1)
    """By name: what a config has under `data`."""
    labelling: tuple[dict[str, Any], ...] | None = None
    """What a config has under `data.labelling`; `{}` is every mask there is. Left out, what preset and `set` say."""
    methods: dict[str, Variant] = Field(min_length=1)
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    reference: str = ""
    """The method that the others are compared with; the first one unless said."""
    proposed: str = ""
    """The method that is compared with each of the others, over all labellings."""
    sweep: dict[str, list[Any] | dict[str, Any]] = Field(default_factory=dict)
    """Values by config key (of several keys: every combination), or settings by the name of a point, which is no
    section of a config."""
    set: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_text(cls, said: Any) -> Any:
        if odd := [key for key in _keys(said) if not isinstance(key, str)]:
            raise ValueError(f"the key {odd[0]!r} is no text: settings have names; put quotes around a name of digits")
        return said

    @field_validator("methods", mode="before")
    @classmethod
    def _names_alone(cls, methods: Any) -> Any:
        if isinstance(methods, list):
            if twice := [name for place, name in enumerate(methods) if name in methods[:place]]:
                raise ValueError(f"{twice[0]} stands twice: name each method once")
            return {name: {"method": name} for name in methods}
        if isinstance(methods, Mapping):
            return {name: {"method": name} if said is None else said for name, said in methods.items()}
        return methods

    @field_validator("labelling", mode="before")
    @classmethod
    def _one_labelling(cls, labelling: Any) -> Any:
        return [labelling] if isinstance(labelling, Mapping) else labelling

    @field_validator("sweep", mode="before")
    @classmethod
    def _several_values(cls, sweep: Any) -> Any:
        if not isinstance(sweep, Mapping):
            return sweep
        if nested := [key for key, said in sweep.items() if isinstance(said, Mapping) and _section(key) in _SECTIONS]:
            sweep = flattened(sweep)
        for key, values in sweep.items():
            section, *below = key.split(".")
            if nested and (not isinstance(values, list) or below[:1] == [section]):
                raise ValueError(
                    f"{key} is {values!r}, expected a list of values of a setting; a point cannot be called "
                    f"{_section(nested[0])}, as a section of a config is"
                )
            if not isinstance(values, list | Mapping):
                raise ValueError(f"{key} is {values!r}, expected a list of values")
        return sweep

    @model_validator(mode="after")
    def _fits_together(self) -> "Comparison":
        for name in (*self.datasets, *self.methods):
            if not _NAME.fullmatch(name):
                raise ValueError(f"the name {name!r} becomes part of folders: use letters, digits and . + - _ in it")
        for key, name in (("reference", self.reference), ("proposed", self.proposed)):
            if name and name not in self.methods:
                raise ValueError(f"{key} is {name!r}, expected one of {', '.join(self.methods)}")
        for seeds in (self.seeds, *(variant.seeds for variant in self.methods.values() if variant.seeds)):
            if len(set(seeds)) < len(seeds):
                raise ValueError(f"a seed stands twice in {list(seeds)}")
        kinds = {isinstance(values, dict) for values in self.sweep.values()}
        if empty := [name for name, values in self.sweep.items() if not values]:
            raise ValueError(f"sweep.{empty[0]} is empty: give it a value or a setting, such as the one that is usual")
        if len(kinds) > 1:
            raise ValueError("sweep holds either lists of values by key, or settings by the name of a point")
        settings = {"set": self.set} | {f"methods.{name}.set": one.set for name, one in self.methods.items()}
        named = _names_points(self.sweep)
        swept = [(f"sweep.{name}" if named else "sweep", said) for name, said in points(self.sweep)]
        names = {one.method for one in self.methods.values()}
        for place, said in [*settings.items(), *swept]:
            if "seed" in said:
                raise ValueError(f"{place} holds the key seed, by which runs are told apart: list it under seeds")
            for key, value in flattened(said).items():
                if value and _NAMES_A_METHOD.fullmatch(key):
                    raise ValueError(f"{place} holds the key {key}, which names the method: list it under methods")
        for place, key in ((place, key) for place, said in swept for key in said):
            if key.startswith("methods.") and (name := key.split(".")[1]) not in names:
                expected = f"expected a method of the file ({', '.join(sorted(names))})"
                raise ValueError(f"{place} holds settings of {name!r}{nearest(name, names)}, {expected}")
        return self


@dataclass(frozen=True)
class Planned:
    """One run that belongs to a comparison."""

    place: Place
    config: Config

    @property
    def name(self) -> str:
        return self.place.name


@dataclass(frozen=True)
class Plan:
    """The runs of a comparison in the order they are trained, one seed after the other."""

    title: str
    reference: str
    proposed: str
    runs: tuple[Planned, ...]

    def only(self, names: Collection[str]) -> "Plan":
        """The plan with the runs of these methods, and the runs of these names, alone: first those that are named
        first. Where none is named, the plan as it is."""
        methods = dict.fromkeys(run.place.method for run in self.runs)
        known = [*methods, *(run.name for run in self.runs)]
        for name in names:
            if name not in known:
                expected = f"expected one of the file's methods ({', '.join(methods)}) or a run that --list shows"
                raise UserError(f"--only is {name!r}{nearest(name, known)}, {expected}.")
        named = {run.name: run for name in names for run in self.runs if name in (run.place.method, run.name)}
        return replace(self, runs=tuple(named.values())) if names else self

    def write(self, out: Path) -> None:
        """Leave in the comparison's folder what its tables need to know."""
        names = [run.name for run in self.runs]
        said = {"title": self.title, "reference": self.reference, "proposed": self.proposed, "runs": names}
        write_json(out / PLAN, said)


def read_plan(file: Path) -> Plan:
    """Read a comparison file and make the config of every run, so that a mistake shows before anything starts.

    Its paths are relative to the file.
    """
    said = read_yaml(file)
    check_format(file, said.get("format", FORMAT), FORMAT)
    comparison = parse(Comparison, said, file)
    runs: dict[str, Planned] = {}
    for run in _runs(comparison, file):
        if (size := len(os.fsencode(run.name))) > _LONGEST_NAME:
            raise UserError(
                f"{file}: the name of the run {run.name} has {size} bytes, expected {_LONGEST_NAME} at most, as files "
                f"are called by it: {'give the points of the sweep names, or ' if run.place.point else ''}shorten the "
                "names that it is made of."
            )
        if run.name in runs:
            raise UserError(
                f"{file}: the run {run.name} is planned twice: two labellings, or two points of the sweep, come to the "
                "same name; name each once, and tell lists apart by the names of their files."
            )
        runs[run.name] = run
    reference = comparison.reference or next(iter(comparison.methods))
    return Plan(file.stem, reference, comparison.proposed, tuple(runs.values()))


def require_unchanged(plan: Plan, out: Path) -> None:
    """Refuse runs in the comparison's folder that were made with another config: they are not what is asked for.

    A config that is damaged concerns one run alone, and is told when its turn comes.
    """
    changed = []
    for run in plan.runs:
        folder = out / "runs" / run.name
        if (folder / "config.yaml").exists() and (config := _config_of(folder)):
            found = differences(_deciding(config), _deciding(run.config))
            changed += [f"{run.name} ({'; '.join(found[:3])})"] if found else []
    if changed:
        raise UserError(
            f"{out} holds runs with other settings: {listed(changed, 3)}: "
            "give another folder with -o, state what they have in the file, or remove these runs."
        )


def _config_of(folder: Path) -> Config | None:
    """A run's config; None where it is damaged. A whole one with settings that are gone is refused once it has scores,
    as nobody can tell whether they are the plan's."""
    try:
        return Run(folder).config
    except UserError:
        if (folder / "metrics.json").exists() and _is_whole(folder / "config.yaml"):
            raise
        return None


def _is_whole(config: Path) -> bool:
    try:
        read_record(config, ConfigRecord)
    except UserError:
        return False
    return True


def expanded(said: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as sections.

    >>> expanded({"compute.workers": 2, "compute": {"log_every": 5}})
    {'compute': {'workers': 2, 'log_every': 5}}
    """
    result: dict[str, Any] = {}
    for key, value in said.items():
        nested: Any = expanded(value) if isinstance(value, Mapping) else value
        for part in reversed(key.split(".")):
            nested = {part: nested}
        result = merge(result, nested)
    return result


def flattened(said: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Sections as dotted keys: the other way round.

    >>> flattened({"compute.workers": 2, "data": {"size": 64, "labelling": {"every": 5}}})
    {'compute.workers': 2, 'data.size': 64, 'data.labelling.every': 5}
    """
    result: dict[str, Any] = {}
    for key, value in said.items():
        section = isinstance(value, Mapping) and value
        result |= flattened(value, f"{at}{key}.") if section else {f"{at}{key}": value}
    return result


def labelling_name(labelling: Mapping[str, Any]) -> str:
    """A labelling as part of a run's name.

    >>> labelling_name({"every": 10}), labelling_name({"list": "lists/ten.txt"}), labelling_name({})
    ('every-10', 'list-ten', 'all')
    """
    for key, value in labelling.items():
        if value is not None:
            return f"{key}-{_safe(Path(value).stem if key == 'list' else value)}"
    return "all"


def points(sweep: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The points of a sweep: name and settings, by dotted keys.

    >>> [name for name, _ in points({"method.contrast.augment.crop": [[0.2, 0.7], [0.3, 0.7]]})]
    ['crop=0.2-0.7', 'crop=0.3-0.7']
    >>> dict(points({"P1N4": {"method.contrast.keys.same_shot": 1, "method.contrast.keys.other_videos": 4}}))
    {'P1N4': {'method.contrast.keys.same_shot': 1, 'method.contrast.keys.other_videos': 4}}
    """
    if _names_points(sweep):
        for name, settings in sweep.items():
            yield _safe(name), flattened(settings)
        return
    last = [key.rpartition(".")[2] for key in sweep]
    short = last if len(set(last)) == len(last) else list(sweep)
    for values in itertools.product(*sweep.values()):
        said = ",".join(f"{name}={_safe(value)}" for name, value in zip(short, values, strict=True))
        yield said, flattened(dict(zip(sweep, values, strict=True)))


def _runs(comparison: Comparison, file: Path) -> Iterator[Planned]:
    methods = comparison.methods.values()
    seeds = dict.fromkeys((*comparison.seeds, *(seed for variant in methods for seed in variant.seeds or ())))
    swept = list(points(comparison.sweep)) if comparison.sweep else []
    named = _names_points(comparison.sweep)
    of_several = {name for name, said in swept if named and any(key.startswith("methods.") for key in said)}
    used: set[str] = set()
    known: dict[str, dict[str, Any]] = {}
    for seed, (dataset, data) in itertools.product(seeds, comparison.datasets.items()):
        for variant_name, variant in comparison.methods.items():
            if seed not in (variant.seeds or comparison.seeds):
                continue
            own = None if variant.labelling is None else (variant.labelling,)
            for labelling in own or comparison.labelling or (None,):
                said = merge(expanded(comparison.set), {"data": expanded(data)})
                if labelling is not None:
                    said = merge(said, {"data": {"labelling": _ANY_LABELLING | labelling}})
                said = merge(said, {"method": {"name": variant.method}, "seed": seed})
                said = merge(said, expanded(variant.set))
                where = f"{file}, {dataset}, {variant_name}"
                config = _config(comparison.preset, said, file, where)
                has = known[variant.method] = config.model_dump()
                mine = [
                    (point, own_settings)
                    for point, settings in swept
                    if all(_holds(has, key) for key in settings)
                    and (own_settings := _of_method(variant.method, settings))
                ]
                used |= {name for name, _ in mine}
                alike: dict[str, str] = {}
                for point, settings in mine or [("", {})]:
                    if point:
                        config = _config(comparison.preset, merge(said, expanded(settings)), file, f"{where}, {point}")
                    if (other := alike.setdefault(config.model_dump_json(), point)) != point:
                        if point in of_several:
                            continue  # it differs in the settings of other methods
                        raise UserError(
                            f"{where}: the sweep's {other} and {point} come to the same run: leave one out, or name "
                            "the points, each with settings of its own."
                        )
                    label = labelling_name(config.data.labelling.model_dump(mode="json"))
                    yield Planned(Place(dataset, label, variant_name, point, seed), config)
    if unused := [name for name, _ in swept if name not in used]:
        lost = [key for key in dict(swept)[unused[0]] if not any(_holds(has, key) for has in known.values())]
        keys = {key for has in known.values() for key in flattened(has)}
        told = f": {lost[0]}{nearest(lost[0], keys)}" if lost else ""
        raise UserError(
            f"{file}: none of the methods has the keys of the sweep's {unused[0]}{told}; check their spelling."
        )


def _config(preset: str | None, said: Mapping[str, Any], file: Path, where: str) -> Config:
    """The complete config of a run, its paths relative to the working folder."""
    said = relocated(said, file.parent, Path())
    overrides = [f"{key}={yaml.safe_dump(value, default_flow_style=True, width=10**9)}" for key, value in said.items()]
    return load_config(preset=preset, overrides=overrides, origin=where)


def _of_method(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a point sets in runs of a method: what is of all, and what is of this one.

    >>> of_both = {"data.size": 64, "methods.pgvcl.contrast.epochs": 2, "methods.twice.finetune.steps": 9}
    >>> _of_method("twice", of_both), _of_method("dmt", of_both)
    ({'data.size': 64, 'method.finetune.steps': 9}, {'data.size': 64})
    """
    of_all = {key: value for key, value in settings.items() if not key.startswith("methods.")}
    its = f"methods.{method}."
    own = {f"method.{key.removeprefix(its)}": value for key, value in settings.items() if key.startswith(its)}
    return of_all | own


def _keys(said: Any) -> Iterator[Any]:
    """The keys of a file's sections, and of those inside them."""
    if isinstance(said, Mapping):
        for key, value in said.items():
            yield from (key, *_keys(value))
    elif isinstance(said, list):
        for value in said:
            yield from _keys(value)


def _section(key: str) -> str:
    return key.partition(".")[0]


def _names_points(sweep: Mapping[str, Any]) -> bool:
    """Whether a sweep holds settings by the name of a point, or else values by key."""
    return any(isinstance(values, Mapping) for values in sweep.values())


def _holds(said: Mapping[str, Any], key: str) -> bool:
    """Whether a method's complete config has this key; what is not of the method, every config has."""
    if not key.startswith("method."):
        return True
    section: Any = said
    for part in key.split("."):
        if not isinstance(section, Mapping) or part not in section:
            return False
        section = section[part]
    return True


def _deciding(config: Config) -> dict[str, Any]:
    """What decides the outcome of a run: neither the device, nor where frames are cached, nor where the data lie."""
    said = without_folders(config.model_dump(mode="json"))  # as in collected runs, which a comparison goes on from too
    said["data"].pop("cache")
    return {key: value for key, value in said.items() if key != "compute"}


def _safe(value: Any) -> str:
    """A value as part of a folder's name."""
    if isinstance(value, list | tuple):
        return "-".join(map(_safe, value))
    if isinstance(value, int | float) and value < 0:
        return str(value)
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", str(value)).strip("-") or "none"
