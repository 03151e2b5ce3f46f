"""Results of one dataset as rows of seeds, with marks on rows that cannot be compared."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suture.comparison.folds import with_pooled_folds
from suture.comparison.results import CONDITIONS, FACTS, LABELLING_FACTS, Results, RunResult, distinct
from suture.core.text import listed
from suture.evaluation.protocols import COMPLETION, SEEN

SET_ORDER = ("val", "test", SEEN, COMPLETION)
MARKS = "†‡§¶‖"
MAX_SHOWN_SETTINGS = 3


@dataclass
class MethodRow:
    """A method (at a point of a sweep) on one dataset with one labelling: one run per seed."""

    runs: list[RunResult]
    planned: int
    """Seeds in the plan."""
    mark: str = ""
    """Footnote mark if scores are not comparable with the reference."""
    time_mark: str = ""
    """Footnote mark if times are not comparable."""

    @property
    def method(self) -> str:
        return self.runs[0].key.method

    @property
    def point(self) -> str:
        return self.runs[0].key.point

    @property
    def title(self) -> str:
        return " · ".join(part for part in (self.method, self.point) if part)

    @property
    def full_title(self) -> str:
        """Title with the number of seeds if some are missing."""
        count = len(self.runs)
        return self.title if count == self.planned else f"{self.title} ({count} of {self.planned} seeds)"

    @property
    def labelled(self) -> str:
        return f"{100 * self.runs[0].labelled_share:.1f}%"

    @property
    def unlabelled(self) -> str:
        """Share of unlabelled frames that the method learns from."""
        run = self.runs[0]
        return f"{0 if run.facts['labels_alone'] else 100 * (1 - run.labelled_share):.1f}%"

    def has(self, fact: str) -> bool:
        """Check for a run with a true fact."""
        return any(run.facts[fact] for run in self.runs)

    def values(self, which: str, column: str, scope: str = "all", name: str = "") -> dict[int, float]:
        """Score of each seed that has one."""
        scores = {run.key.seed: run.score(which, scope, name, column) for run in self.runs}
        return {seed: value for seed, value in scores.items() if value is not None}

    def seed_differences(self) -> dict[int, list[str]]:
        """Facts and settings of the method in which seeds differ from the first one."""
        first = self.runs[0]
        lines = {run.key.seed: differences(run, first) + _changed_settings(run, first) for run in self.runs[1:]}
        return {seed: of_seed for seed, of_seed in lines.items() if of_seed}


@dataclass
class LabellingGroup:
    """Rows of one dataset with one labelling."""

    labelling: str
    rows: list[MethodRow]
    reference: MethodRow
    """Row that others are paired with; it may be marked itself."""

    @property
    def comparable(self) -> list[MethodRow]:
        """Rows among which one is the best: unmarked ones, else those like the group's reference."""
        first = self.reference.runs[0]
        alike = (row for row in self.rows if not differences(row.runs[0], first) and not row.seed_differences())
        return [row for row in self.rows if not row.mark] or [*alike]


@dataclass
class Board:
    """All results on one dataset."""

    dataset: str
    groups: list[LabellingGroup]
    reference: MethodRow
    """Row that marks refer to, in every group."""
    footnotes: dict[str, str]
    """Meaning of each mark."""
    proposed: str = ""

    @property
    def rows(self) -> list[MethodRow]:
        return [row for group in self.groups for row in group.rows]

    @property
    def runs(self) -> list[RunResult]:
        return [run for row in self.rows for run in row.runs]

    @property
    def sets(self) -> list[str]:
        """Sets of frames that have scores."""
        return [which for which in SET_ORDER if any((which, "all", "") in run.scores for run in self.runs)]

    @property
    def title(self) -> str:
        """Name in the comparison, and of the dataset if that is another one."""
        name = self.runs[0].facts["dataset_name"]
        return self.dataset if name in self.dataset else f"{self.dataset} ({name})"

    @property
    def primary(self) -> str:
        """Mean IoU that publications on the dataset report: `miou` or `miou_frames`."""
        primary: str = self.runs[0].facts["primary"]
        return primary

    @property
    def per_sequence(self) -> bool:
        """Show scores of each test video."""
        return bool(self.runs[0].facts["per_sequence"])

    def cases(self, which: str) -> int:
        """Number of cases in a set."""
        return max(len(run.names(which, "case")) for run in self.runs)


def boards(results: Results) -> list[Board]:
    """Arrange results by dataset, in the order of the plan; the folds of a dataset together come first."""
    results = with_pooled_folds(results)
    datasets = distinct(key.dataset for key in results.keys)
    return [_board(dataset, results) for dataset in datasets if any(run.key.dataset == dataset for run in results.runs)]


def differences(run: RunResult, reference: RunResult, facts: Sequence[str] = (*FACTS, *LABELLING_FACTS)) -> list[str]:
    """Facts that keep two runs from being compared, such as `size 128×128 instead of 256×256`."""
    return [
        f"{fact.replace('_', ' ')} {run.facts[fact]} instead of {reference.facts[fact]}"
        for fact in facts
        if run.facts[fact] != reference.facts[fact]
    ]


def _changed_settings(run: RunResult, first: RunResult) -> list[str]:
    before, after = first.settings, run.settings
    keys = [key for key in before if key.startswith("method.") and before[key] != after.get(key)]
    return [f"{key}: {before[key]} → {after.get(key)}" for key in keys[:MAX_SHOWN_SETTINGS]]


def _board(dataset: str, results: Results) -> Board:
    order = [key for key in results.keys if key.dataset == dataset]
    planned = Counter(key[1:4] for key in order)
    rows: dict[tuple[Any, ...], MethodRow] = {}
    for place in distinct(key[1:4] for key in order):
        runs = [run for run in results.runs if run.key.dataset == dataset and run.key[1:4] == place]
        if runs:
            rows[place] = MethodRow(sorted(runs, key=lambda run: run.key.seed), planned[place])
    reference, proposed = results.roles["reference"], results.roles.get("proposed", "")
    groups = []
    for labelling in distinct(place[0] for place in rows):
        of_group = [row for place, row in rows.items() if place[0] == labelling]
        first = next((row for row in of_group if row.method == reference), of_group[0])
        groups.append(LabellingGroup(labelling, of_group, first))
    groups.sort(key=lambda group: group.labelling != "all")  # all labels first, as the ceiling
    first = next((group.reference for group in groups if group.reference.method == reference), groups[0].reference)
    footnotes = _mark_scores(groups, first)
    footnotes |= _mark_times([row for group in groups for row in group.rows], first, proposed, len(footnotes))
    return Board(dataset, groups, first, footnotes, proposed)


def _mark_scores(groups: Iterable[LabellingGroup], first: MethodRow) -> dict[str, str]:
    """Mark rows that differ from the table's reference, or whose seeds differ; return the meaning of marks."""
    marks: dict[str, str] = {}
    for group in groups:
        labels = group.reference.runs[0]
        owner = "" if group.reference.title == first.title else f" (as {group.reference.title} has)"
        for row in group.rows:
            lines = differences(row.runs[0], first.runs[0], FACTS)
            lines += [f"{line}{owner}" for line in differences(row.runs[0], labels, LABELLING_FACTS)]
            between = row.seed_differences()
            lines += [f"in seed {seed} {line}" for seed, of_seed in between.items() for line in of_seed]
            if lines:
                text = ". ".join(line[0].upper() + line[1:] for line in lines)
                row.mark = marks.setdefault(text, _mark(len(marks)))
    return {mark: f"Not comparable with {first.title}. {text}" for text, mark in marks.items()}


def _mark_times(rows: Sequence[MethodRow], first: MethodRow, proposed: str, used: int) -> dict[str, str]:
    """Mark rows with a run under other conditions than most runs of the proposed method, or of the reference."""
    usual = [row for row in rows if row.method == proposed] or [row for row in rows if row.title == first.title]
    expected = {
        fact: Counter(run.facts[fact] for row in usual for run in row.runs).most_common(1)[0][0] for fact in CONDITIONS
    }
    marks: dict[str, str] = {}
    for row in rows:
        other = [fact for fact in CONDITIONS if any(run.facts[fact] != expected[fact] for run in row.runs)]
        if other:
            named = listed([fact.replace("_", " ") for fact in other])
            row.time_mark = marks.setdefault(named, _mark(used + len(marks)))
    name = f"most runs of {usual[0].title}"
    return {mark: f"Times not comparable with {name} because of {named}" for named, mark in marks.items()}


def _mark(number: int) -> str:
    return MARKS[number % len(MARKS)] * (1 + number // len(MARKS))
