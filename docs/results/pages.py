"""Fill the tables of the pages with what the committed runs say: `python docs/results/pages.py`.

A table stands between `<!-- FOLDER -->` and `<!-- end -->`, with FOLDER one of those beside this file. Which rows and
columns it has is written in the page, by hand; the cells of scores and the numbers of seeds are filled in, so that none
of them is typed. By the head of its first column it has, in percent, of each `Method` the mean and the standard
deviation over the seeds, of each class of `IoU on new videos` the mean, and without a head the mean of the paired
differences `one − other` with its 95 % interval. Of a table whose first head is `commit` all rows are made: how many
runs of each method are of it. A method that has all labels meets every labelling, and has no completion. With `bold`
after FOLDER the best method of each labelling is bold, of those that are named behind it where some are. What no run
has is refused, so that no slip in a page passes for a missing score.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pairs import partner, scores

from suture.comparison.plan import Place
from suture.comparison.results import read_results, t_interval
from suture.core.io import write_text

RESULTS = Path(__file__).resolve().parent
PAGES = (RESULTS.parents[1] / "README.md", RESULTS.parent / "results.md", RESULTS.parent / "method.md")
NEW, COMPLETION, CLASSES, ALL = "new videos", "completion", "IoU on new videos", "all"
CALLED = {
    "PGV-CL (": "pgvcl",
    "PGV-CL at": "pgvcl-140",
    "PixPro": "pixpro",
    "DMT": "dmt",
    "UA-MT": "uamt",
    "UniMatch V2": "unimatch",
    "all 314 labels, plain": "all-labels",
    "all 314 labels, augmented": "all-labels-strong",
}
"""How rows begin whose first word is not their method."""


class Run(NamedTuple):
    """What tables ask of a run."""

    place: Place
    labels: int
    scores: dict[str, float]
    commit: str


class Column(NamedTuple):
    """A column of scores: which one, and with how many labels where the head says it, not the row."""

    score: str
    labels: int | None


class Row(NamedTuple):
    """A row of a table: its cells by the heads of their columns, and the runs of the table's comparison."""

    cells: dict[str, str]
    runs: Sequence[Run]

    @property
    def methods(self) -> list[str]:
        """The row's method, or the two whose difference it is."""
        first, called = next(iter(self.cells.items()))
        known = [name for start, name in CALLED.items() if called.startswith(start)]
        return called.split(" − ") if not first else known or [called.replace("**", "").split()[0]]

    def of(self, method: str, labels: int | None) -> list[Run]:
        """A method's runs on the row's dataset, with its labelling or so many labels; all where it says both."""
        (dataset,) = {self.cells.get("new patient", run.place.dataset).replace(" ", "-") for run in self.runs}
        labelling = re.sub(r"every (\d+)th", r"every-\1", self.cells.get("labelled", "both"))
        found = [
            run
            for run in self.runs
            if (run.place.dataset, run.place.method) == (dataset, method)
            and (labelling == "both" or run.place.labelling in (labelling, ALL))
            and (labels is None or run.labels == labels or run.place.labelling == ALL)
        ]
        if not found:
            raise ValueError(f"no run of {method} on {dataset}, {labelling} labelled, as the page has in {self.cells}")
        return found

    def means(self, column: Column) -> float | None:
        """The mean that makes its method the best or not; None where it has no score, or all labels."""
        found = [run for run in self.of(self.methods[0], column.labels) if run.place.labelling != ALL]
        return float(np.mean([run.scores[column.score] for run in found])) if found else None


def page(text: str) -> str:
    """A page with its tables filled."""
    return re.sub(r"(<!-- ([\w-]+)( bold[ \w-]*)? -->\n)(\|.*?)(<!-- end -->)", _filled, text, flags=re.DOTALL)


def _filled(found: re.Match[str]) -> str:
    head, rule, *lines = found[4].splitlines()
    heads = [cell.strip() for cell in head.strip("|").split("|")]
    if heads[0] == "commit":
        return "\n".join([found[1] + head, rule, *_commits(_runs(found[2])), found[5]])
    columns = {name: column for name in heads if (column := _column(heads[0], name))}
    rows = [
        Row(dict(zip(heads, (cell.strip() for cell in line.strip("|").split("|")), strict=True)), _runs(found[2]))
        for line in lines
    ]
    for row in rows:
        if "seeds" in heads:
            row.cells["seeds"] = str(len({run.place.seed for run in row.of(row.methods[0], None)}))
        row.cells.update({name: _cell(row, column, heads[0]) for name, column in columns.items()})
    if found[3]:
        named = set(found[3].split()[1:])
        if strange := named - {row.methods[0] for row in rows}:
            raise ValueError(f"bold are to be {strange}, which no row is")
        _embolden([row for row in rows if row.methods[0] in (named or row.methods)], columns)
    return "\n".join([found[1] + head, rule, *(f"| {' | '.join(row.cells.values())} |" for row in rows), found[5]])


def _column(first: str, head: str) -> Column | None:
    """What a column has scores of, by the names of pairs.py; None where it has no scores."""
    if first == CLASSES and head not in (first, "labelled"):
        return Column(f"{NEW} (test), IoU of {head}", None)
    said = re.fullmatch(rf"({NEW}|{COMPLETION}), (miou|per frame|(\d+) labels)", head.lower())
    if not said:
        return None
    where = f"{NEW} (test)" if said[1] == NEW else COMPLETION
    return Column(f"{where}, mIoU{' per frame' * (said[2] == 'per frame')}", int(said[3]) if said[3] else None)


def _cell(row: Row, column: Column, first: str) -> str:
    ours, *theirs = (row.of(method, column.labels) for method in row.methods)
    scored = [run for run in ours if column.score in run.scores]
    if theirs:
        everyone = {run.place: run.scores for run in row.runs}
        held = ((run, partner(run.place, row.methods[1], everyone)) for run in scored)
        values = [run.scores[column.score] - its[column.score] for run, its in held if column.score in its]
    else:
        values = [run.scores[column.score] for run in scored]
    if not values:
        if any(run.place.labelling == ALL for run in itertools.chain(ours, *theirs)):
            return "–"
        raise ValueError(f"{column.score} has no score in {row.cells}")
    mean = float(np.mean(values))
    if theirs:
        return "{:+.1f} [{:+.1f}, {:+.1f}]".format(mean, *t_interval(values)).replace("-", "−")
    alone = first == CLASSES or len(values) == 1
    return f"{mean:.1f}" if alone else f"{mean:.1f} ± {np.std(values, ddof=1):.1f}"


def _commits(runs: Sequence[Run]) -> Iterator[str]:
    """A row for each commit: how many runs of each method are of it."""
    made = defaultdict[str, Counter[str]](Counter)
    for run in runs:
        made[run.commit[:7]][run.place.method] += 1
    for commit, methods in sorted(made.items(), key=lambda item: -item[1].total()):
        yield f"| `{commit}` | {', '.join(f'{method} {count}' for method, count in methods.items())} |"


def _embolden(rows: Sequence[Row], columns: dict[str, Column]) -> None:
    """Make the best of each labelling and dataset bold, where there are two or more."""
    for name, column in columns.items():
        alike = defaultdict[tuple[str | None, ...], list[tuple[float, Row]]](list)
        for row in rows:
            if (mean := row.means(column)) is not None:
                alike[row.cells.get("new patient"), row.cells.get("labelled")].append((mean, row))
        for found in alike.values():
            if len(found) > 1:
                best = max(found, key=lambda one: one[0])[1]
                best.cells[name] = f"**{best.cells[name]}**"


@cache
def _runs(folder: str) -> list[Run]:
    return [
        Run(run.place, len(run.data["labelled"]), dict(scores(run.metrics)), run.conditions["commit"])
        for board in read_results(RESULTS / folder).boards
        for run in board.runs
    ]


if __name__ == "__main__":
    for path in PAGES:
        write_text(path, page(path.read_text(encoding="utf-8")))
