"""What finished runs leave for the tables, read from their small files alone, and whether they can be compared."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel

from suture.comparison.plan import FAILED, PLAN, Place, labelling_name
from suture.core.errors import UserError
from suture.core.schemas import (
    ConfigRecord,
    DataRecord,
    EnvironmentRecord,
    FailuresRecord,
    MetricsRecord,
    PlanRecord,
    StageRecord,
    read_record,
    taking_part,
)
from suture.core.text import NAMED, listed
from suture.evaluation.protocols import COMPLETION
from suture.evaluation.titles import SETS
from suture.training.budget import (
    differing,
    digest,
    effort,
    images_of_a_step,
    labels_alone,
    mixed_batches,
    scored_on,
)
from suture.training.config import differences as changed
from suture.training.config import parse_config

ORDER = ("val", "test", COMPLETION)
"""The sets of frames that are scored, as the paper's columns have them."""


class Where(NamedTuple):
    """What of a set a score is of: all of it, or one of its videos or classes."""

    part: Literal["overall", "videos", "classes"]
    name: str = ""


OVERALL = Where("overall")
CLASS_SCORE = "iou"
"""The score of single classes."""
MARKS = "†‡§¶‖"
_VIDEOS = 2
"""Videos that a mark names of those in which splits differ."""


@dataclass(frozen=True)
class Result:
    """One finished run."""

    place: Place
    config: dict[str, Any]
    metrics: dict[str, Any]
    stages: dict[str, dict[str, Any]]
    """How each stage ended, by its name."""
    data: dict[str, Any] = field(default_factory=dict)
    starts: list[dict[str, Any]] = field(default_factory=list)
    """The environment of each start."""

    @staticmethod
    def read(folder: Path) -> "Result":
        """Read a run's config, scores and stages; data and environment where they are there."""
        config = read_record(folder / "config.yaml", ConfigRecord)
        try:
            metrics = read_record(folder / "metrics.json", MetricsRecord)
        except UserError as error:
            raise UserError(f"{error} `suture evaluate` scores a run again.") from error
        data = _read_if_there(folder / "data.json", DataRecord)
        place = Place.of_name(folder.name) or Place(
            _dataset(config, metrics, data),
            labelling_name(config["data"]["labelling"]),
            config["method"]["name"],
            "",
            config["seed"],
        )
        done = sorted(folder.glob("stages/*/done.json"), key=lambda path: int(path.parent.name.partition("-")[0]))
        return Result(
            place=place,
            config=config,
            metrics=metrics,
            stages={path.parent.name.partition("-")[2]: read_record(path, StageRecord) for path in done},
            data=data,
            starts=_read_if_there(folder / "environment.json", EnvironmentRecord).get("starts", []),
        )

    @property
    def primary(self) -> str:
        """Which mean IoU the dataset's papers report: `miou` or `miou_frames`."""
        return next((scores["primary"]["score"] for scores in self.metrics.values()), "miou")

    @property
    def per_sequence(self) -> bool:
        return any(scores.get("per_sequence") for scores in self.metrics.values())

    @property
    def labelled_share(self) -> float | None:
        """Labelled frames of all usable training frames; None where the run's data are not recorded."""
        videos = self.data.get("videos", {}).values()
        frames = sum(taking_part(video) for video in videos if video["split"] == "train")
        return len(self.data["labelled"]) / frames if frames else None

    def score(self, which: str, where: Where, key: str) -> float | None:
        """A score of a set; None where there is none."""
        scores = self.metrics.get(which, {}).get(where.part, {})
        return (scores if where == OVERALL else scores.get(where.name, {})).get(key)

    @property
    def seconds(self) -> float | None:
        """How long its stages took; None where that of one is not known."""
        return _total(done["seconds"] for done in self.stages.values())

    @property
    def peak_memory(self) -> int | None:
        """Bytes, of the hungriest stage; None on the CPU."""
        return max((done["peak_memory"] for done in self.stages.values() if done.get("peak_memory")), default=None)

    @property
    def runs_at_a_time(self) -> int | None:
        """How many runs shared its device at most, over all its starts; None where one does not say."""
        said: list[Any] = [start.get("runs_at_a_time") for start in self.starts]
        return None if None in said else max(said, default=None)

    @cached_property
    def conditions(self) -> dict[str, Any]:
        """What two runs must have in common for their times to be comparable; None where that is not known."""
        compute = self.config.get("compute", {})
        workers = compute.get("workers")
        software = [[start[key] for key in ("suture", "python", "packages")] for start in self.starts]
        return {
            "device": self._over_starts("device"),
            "runs_at_a_time": self.runs_at_a_time,
            "compile": str(compute.get("compile", "auto")).lower(),
            "workers": "auto" if workers is None else workers,
            "threads": self._over_starts("threads"),
            "commit": self._over_starts("commit"),
            "versions": " and ".join(distinct(map(digest, software))) or None,
        }

    def _over_starts(self, key: str) -> str | None:
        said = distinct(start.get(key) for start in self.starts)
        return None if None in said else " and ".join(map(str, said)) or None

    @property
    def images_per_second(self) -> float | None:
        """Over all training stages and the time these took, where it is known."""
        training = [done for done in self.stages.values() if done.get("steps") and "batch" in done]
        seconds = _total(done["seconds"] for done in training)
        images = sum(done["steps"] * images_of_a_step(done) for done in training)
        return images / seconds if seconds else None

    @cached_property
    def facts(self) -> dict[str, str]:
        """What two runs must have in common for their scores to be comparable, as a reader would say it."""
        evaluation = self.config["evaluation"]
        return effort(self.config, self.data, self.stages) | {
            "classes": digest(self._classes),
            "protocol": ", ".join(sorted({scores["protocol"] for scores in self.metrics.values()})),
            "background in the means": str(evaluation["include_background"]),
            "flip at evaluation": str(evaluation["flip"]),
            "scales at evaluation": ", ".join(f"{scale:g}" for scale in evaluation["scales"]),
            "precision": " and ".join(sorted(self._precisions)) or "unknown",
            "precision at evaluation": self._evaluated_in,
            **{f"{SETS[which].name} on": self._scored(which) for which in ("val", "test")},
        }

    @property
    def _precisions(self) -> set[str]:
        return {start["precision"] for start in self.starts}

    @property
    def _evaluated_in(self) -> str:
        """`suture evaluate` may have scored it in another precision than it was trained in; earlier versions do not say
        it."""
        said = {scores["precision"] for scores in self.metrics.values() if scores.get("precision")}
        return "that of the training" if said <= self._precisions else " and ".join(sorted(said))

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Those of its method, in the words of this version; as they are written if it no longer knows them."""
        try:
            return parse_config(self.config, "a run").method
        except UserError:
            written: Mapping[str, Any] = self.config["method"]
            return written

    @cached_property
    def facts_of_labelling(self) -> dict[str, str]:
        """What two runs with one labelling must have in common beside."""
        labelled = self.data.get("labelled")
        return {
            "labelled frames": "unknown" if labelled is None else f"{len(labelled)} ({digest(labelled)})",
            f"{COMPLETION} on": self._scored(COMPLETION),
        }

    @property
    def _classes(self) -> list[str]:
        return [one["name"] for one in self.data.get("classes", [])]

    def _scored(self, which: str) -> str:
        return scored_on(self.metrics.get(which), self._classes)


def damage(folder: Path) -> str | None:
    """Why the small files of a run that was scored cannot be read, in a sentence; None where they can."""
    try:
        Result.read(folder)
    except UserError as error:
        return str(error)
    return None


def differences(reference: Result, other: Result) -> list[str]:
    """Why two runs with one labelling cannot be compared, as `size 128×128 instead of 256×256`; none if they can."""
    return [*_differing(other, reference), *differing(other.facts_of_labelling, reference.facts_of_labelling)]


def _differing(run: Result, reference: Result) -> list[str]:
    """The same of two runs whatever their labelling."""
    return [*_other_split(run.data, reference.data), *differing(run.facts, reference.facts)]


@dataclass
class Row:
    """A method (at a point of a sweep) on one dataset with one labelling: its runs, one per seed."""

    runs: list[Result]
    planned: int
    """How many seeds it has in the plan; without one, how many the row with most of them has."""
    mark: str = ""
    """Of what makes it not comparable with the reference."""
    marked: frozenset[int] = frozenset()
    """The seeds that the mark is of: often all of them."""
    mark_of_times: str = ""
    """Of what makes its times not comparable with those of the proposed method, or else of the reference."""

    @property
    def place(self) -> Place:
        return self.runs[0].place

    @property
    def title(self) -> str:
        return " · ".join(part for part in (self.place.method, self.place.point) if part)

    @property
    def full_title(self) -> str:
        """Its title, and how many of its seeds are there where some are missing."""
        there = len(self.runs)
        return self.title if there == self.planned else f"{self.title} ({there} of {self.planned} seeds)"

    @cached_property
    def other_settings(self) -> dict[int, list[str]]:
        """Where settings of the method are not those of the first seed, by the seed."""
        first, *others = self.runs
        return {run.place.seed: found for run in others if (found := _changed_settings(first, run))}

    @cached_property
    def unlike_seeds(self) -> list[str]:
        """Where its seeds differ from the first of them."""
        first, *others = self.runs
        return [
            f"in seed {run.place.seed} {line}"
            for run in others
            for line in (*differences(first, run), *self.other_settings.get(run.place.seed, ())[:3])
        ]

    @property
    def labelled(self) -> str:
        """The labelled share in percent, or the labelling's name."""
        share = self.runs[0].labelled_share
        return self.place.labelling if share is None else f"{100 * share:.1f}%"

    @property
    def unlabelled(self) -> str:
        """The share of unlabelled frames that the method learns from."""
        run = self.runs[0]
        if run.labelled_share is None:
            return "–"
        alone = labels_alone(run.config["method"]["name"], run.stages)
        return f"{0 if alone else 100 * (1 - run.labelled_share):.1f}%"

    @property
    def mixes_batches(self) -> bool:
        """Whether its batches hold fewer labelled frames than they say, in some supervised steps."""
        return any(mixed_batches(run.config["method"]["name"], run.stages) for run in self.runs)

    @property
    def is_chosen(self) -> bool:
        """Whether a stage of it has handed on the weights that were best on the validation videos."""
        return any(done.get("best") for run in self.runs for done in run.stages.values())

    def values(self, which: str, where: Where, key: str) -> dict[int, float]:
        """A score by seed."""
        found = {run.place.seed: run.score(which, where, key) for run in self.runs}
        return {seed: value for seed, value in found.items() if value is not None}


@dataclass
class Group:
    """The rows of one dataset with one labelling."""

    labelling: str
    rows: list[Row]
    reference: Row
    """What its other rows are paired with: it may itself be marked."""

    @property
    def title(self) -> str:
        """Its labelling, in words that do not say that all frames are labelled where only some have masks."""
        share = self.rows[0].runs[0].labelled_share
        return "all masks" if self.labelling == "all" and share is not None and share < 1 else self.labelling

    @property
    def peers(self) -> list[Row]:
        """The rows without a mark, or where all have one, those like the group's reference: among them is the best."""
        first = self.reference.runs[0]
        alike = (row for row in self.rows if not differences(first, row.runs[0]) and not row.unlike_seeds)
        return [row for row in self.rows if not row.mark] or [*alike]


@dataclass
class Board:
    """All results on one dataset."""

    dataset: str
    groups: list[Group]
    reference: Row
    """What rows are marked by, in every group."""
    differences: dict[str, str]
    """What each mark stands for."""
    proposed: str = ""
    """The method that is compared with each of the others."""

    @property
    def rows(self) -> list[Row]:
        return [row for group in self.groups for row in group.rows]

    @property
    def runs(self) -> list[Result]:
        return [run for row in self.rows for run in row.runs]

    @property
    def sets(self) -> list[str]:
        """The sets that at least one run has scores of."""
        return [which for which in ORDER if any(which in run.metrics for run in self.runs)]

    @property
    def title(self) -> str:
        """Its name in the comparison, and that of the dataset."""
        name = self.runs[0].data.get("dataset", self.dataset)
        return self.dataset if f"{self.dataset}, ".startswith(f"{name}, ") else f"{self.dataset} ({name})"

    @property
    def primary(self) -> str:
        return self.runs[0].primary

    def cases(self, which: str) -> int:
        """How many cases a set has."""
        return max((len(run.metrics[which]["cases"]) for run in self.runs if which in run.metrics), default=0)


@dataclass(frozen=True)
class Results:
    """All finished runs below a folder that were scored, and those that were not, or are planned but not there.

    One whose small files cannot be read is not there.
    """

    title: str
    boards: list[Board]
    places: list[Place]
    """Of all runs, also of those that are missing, in the order of the plan."""
    missing: list[str]
    failed: dict[str, str]
    """Why runs that are missing failed, as far as that is known."""
    unscored: list[str]
    """The finished runs that have no scores, and so no place in the tables."""


def read_results(folder: Path) -> Results:
    """Read every finished run in a folder (or its folder `runs`), in the order of the plan where it holds one.

    A plan also says which runs belong to the comparison: others are left out. Without one, runs are ordered by name and
    `supervised` is the reference, if there is one. Two runs in one place of the tables are refused. One that cannot be
    read counts as failed.
    """
    paths = sorted(folder.glob("runs/*/metrics.json")) or sorted(folder.glob("*/metrics.json"))
    found = {path.parent.name: path.parent for path in paths}
    plan = _read_if_there(folder / PLAN, PlanRecord)
    planned = plan.get("runs", sorted(found))
    finished, damaged = dict[str, Result](), dict[str, str]()
    for name in planned:
        if name in found:
            try:
                finished[name] = Result.read(found[name])
            except UserError as error:
                damaged[name] = str(error)
    if not finished:
        none = (
            f"No folder in {folder} or {folder / 'runs'} is a finished run, with a metrics.json: expected a comparison "
            "file, or a folder of finished runs."
        )
        raise UserError("\n".join(damaged.values() or [none, *told_deeper(folder)]))
    by_name = {name: run for name, run in finished.items() if run.metrics}
    runs = list(by_name.values())
    _refuse_one_place(folder, by_name)
    of_plan = [place for name in plan.get("runs", []) if (place := Place.of_name(name))]
    order = of_plan or [run.place for run in runs]
    methods = distinct(place.method for place in order)
    reference = plan.get("reference", "supervised" if "supervised" in methods else next(iter(methods), ""))
    seeds = Counter(place[:4] for place in of_plan)
    boards = []
    for dataset in distinct(place.dataset for place in order):
        of_dataset = [run for run in runs if run.place.dataset == dataset]
        if of_dataset:
            boards.append(_board(dataset, of_dataset, order, seeds, reference, plan.get("proposed", "")))
    missing = [name for name in planned if name not in finished]
    reasons = _read_if_there(folder / FAILED, FailuresRecord)
    failed = {name: reasons[name] for name in missing if name in reasons} | damaged
    unscored = [name for name in finished if name not in by_name]
    return Results(plan.get("title", folder.name), boards, order, missing, failed, unscored)


def told_deeper(folder: Path) -> list[str]:
    """A sentence about finished runs that lie deeper than `read_results` looks, where no plan says what belongs."""
    runs = [path.parent for depth in ("*/*", "*/*/*") for path in folder.glob(f"{depth}/metrics.json")]
    places = {run.parent.parent if run.parent.name == "runs" else run.parent for run in runs} - {folder}
    if not places or (folder / PLAN).exists():
        return []
    named = listed(sorted(map(str, places)), NAMED)
    return [f"Finished runs that lie deeper are left out; to compare them, give their folder: {named}."]


def _dataset(config: Mapping[str, Any], metrics: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """What tells the datasets of runs apart that no plan names: the name, the protocol unless it is the default or
    called alike, and the options of its source. Of a path only the last part is told."""
    protocol = next((scores["protocol"] for scores in metrics.values()), "default")
    name = data.get("dataset", protocol)
    options = sorted(config["data"].get("options", {}).items())
    said = [f"{key}={PurePath(str(value)).name}" for key, value in options if key != "protocol"]
    return ", ".join([name, *([] if protocol in ("default", name) else [protocol]), *said])


def _refuse_one_place(folder: Path, runs: Mapping[str, Result]) -> None:
    """Two runs in one place of a table: which of them is meant nobody can tell."""
    first: dict[Place, str] = {}
    for name, run in runs.items():
        if (other := first.setdefault(run.place, name)) != name:
            dataset, labelling, method, _, seed = run.place
            raise UserError(
                f"{folder}: the runs {other} and {name} are both {method} with seed {seed} and labelling {labelling} "
                f"on {dataset}, expected one: move one into another folder, or name each after its place in the "
                "tables, DATASET__LABELLING__METHOD__seed-N."
            )


def _board(
    dataset: str,
    runs: Sequence[Result],
    order: Sequence[Place],
    seeds: Counter[tuple[str, str, str, str]],
    reference: str,
    proposed: str,
) -> Board:
    most = max(Counter(run.place[:4] for run in runs).values())
    rows: dict[tuple[str, str, str], Row] = {}
    for place in distinct(place[1:4] for place in order if place.dataset == dataset):
        of_row = [run for run in runs if run.place[1:4] == place]
        if of_row:
            rows[place] = Row(sorted(of_row, key=lambda run: run.place.seed), seeds[dataset, *place] or most)
    groups = []
    for labelling in distinct(place[0] for place in rows):
        of_group = [row for place, row in rows.items() if place[0] == labelling]
        first = next((row for row in of_group if row.place.method == reference), of_group[0])
        groups.append(Group(labelling, of_group, first))
    # The paper's order: all labels first, as the ceiling.
    groups.sort(key=lambda group: group.labelling != "all")
    first = next((g.reference for g in groups if g.reference.place.method == reference), groups[0].reference)
    marks = _mark(groups, first)
    shown = [row for group in groups for row in group.rows]
    ours = [row for row in shown if row.place.method == proposed]
    usual = ours or [row for row in shown if row.title == first.title]
    times = _mark_times(shown, usual, proposed if ours else first.title, len(marks))
    return Board(dataset, groups, first, marks | times, proposed)


def _mark(groups: Sequence[Group], first: Row) -> dict[str, str]:
    """Give rows that differ from the table's reference, or whose seeds differ, a mark; say what each mark means."""
    marks: dict[str, str] = {}
    for group in groups:
        labels = group.reference.runs[0].facts_of_labelling
        whose = "" if group.reference.title == first.title else f" (as {group.reference.title} has)"
        for row in group.rows:
            of_seeds = {
                run.place.seed: _differing(run, first.runs[0])
                + [f"{line}{whose}" for line in differing(run.facts_of_labelling, labels)]
                for run in row.runs
            }
            found = of_seeds[row.place.seed] + row.unlike_seeds
            if found:
                text = "; ".join(found)
                row.mark = marks.setdefault(text, _symbol(len(marks)))
                unlike = (seed for seed, lines in of_seeds.items() if lines)
                row.marked = frozenset({*unlike, *row.other_settings})
    return {symbol: f"not comparable with {first.title}: {text}" for text, symbol in marks.items()}


def _mark_times(rows: Sequence[Row], usual: Sequence[Row], name: str, used: int) -> dict[str, str]:
    """Give rows with a run that was not made as most of the usual ones a mark, after those already used.

    `name` is what the usual rows are called.
    """
    theirs = [run for row in usual for run in row.runs]
    expected = {
        fact: Counter(run.conditions[fact] for run in theirs).most_common(1)[0][0]
        for fact in theirs[0].conditions
        if any(run.conditions[fact] is not None for row in rows for run in row.runs)
    }
    against = f"most runs of {name}" if any(_unlike(run, expected) for run in theirs) else name
    marks: dict[str, str] = {}
    for row in rows:
        unlike = [_unlike(run, expected) for run in row.runs]
        if any(unlike):
            found = [fact for fact in expected if any(fact in of_run for of_run in unlike)]
            named = [
                fact.replace("_", " ") + " (not always known)" * any(run.conditions[fact] is None for run in row.runs)
                for fact in found
            ]
            some = "" if all(unlike) else " of some runs"
            text = f"times not comparable with {against} because of {listed(named)}{some}"
            row.mark_of_times = marks.setdefault(text, _symbol(used + len(marks)))
    return {symbol: text for text, symbol in marks.items()}


def _unlike(run: Result, expected: Mapping[str, Any]) -> list[str]:
    """The conditions of a run that are not as expected; what is not known is not."""
    return [fact for fact, value in expected.items() if run.conditions[fact] is None or run.conditions[fact] != value]


def _changed_settings(first: Result, other: Result) -> list[str]:
    """Where those of the method differ; what is written alike is not asked, as that takes seconds to load methods."""
    if all(first.config.get(key) == other.config.get(key) for key in ("format", "method")):
        return []
    return changed(first.settings, other.settings, "method.")


def _total(seconds: Iterable[float | None]) -> float | None:
    known = list(seconds)
    return None if None in known else sum(filter(None, known))


def _symbol(number: int) -> str:
    return MARKS[number % len(MARKS)] * (1 + number // len(MARKS))


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; of one value there is no deviation.

    >>> mean_and_deviation([0.5, 0.75])
    (0.625, 0.1767766952966369)
    """
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of two values or more, by Student's t."""
    from scipy.stats import t

    mean, deviation = mean_and_deviation(values)
    half = float(t.ppf(0.975, len(values) - 1)) * (deviation or 0.0) / len(values) ** 0.5
    return mean - half, mean + half


def _other_split(data: Mapping[str, Any], reference: Mapping[str, Any]) -> list[str]:
    """What of the videos that a run learnt from and is scored on is not as in another's data: a few of them by name."""
    keys = ("split", "frames", "excluded", "take_every", "masked", "sha256")
    ours, theirs = (
        {name: {key: video.get(key) for key in keys} for name, video in one.get("videos", {}).items()}
        for one in (data, reference)
    )
    if not ours or not theirs:
        return ["videos unknown" if theirs else "videos known instead of unknown"] if ours != theirs else []
    told = [f"no {name}" for name in theirs if name not in ours]
    for name, video in ours.items():
        if name not in theirs:
            told.append(f"{name} beside")
        elif video["split"] != theirs[name]["split"]:
            told.append(f"{name} in {video['split'] or 'none'} instead of {theirs[name]['split'] or 'none'}")
        elif video != theirs[name]:
            told.append(f"{name} of other frames")
    return [f"split with {listed(told, _VIDEOS)}"] if told else []


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in the order of their first places."""
    return list(dict.fromkeys(values))


def _read_if_there(path: Path, shape: type[BaseModel]) -> dict[str, Any]:
    return read_record(path, shape) if path.exists() else {}
