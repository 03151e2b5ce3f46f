"""The tables of a comparison: the paper's two shapes, classes, paired differences, intervals and cost.

A table is titles, cells and notes; `render` turns it into Markdown, LaTeX and HTML.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from suture.comparison.results import (
    CLASS_SCORE,
    OVERALL,
    Board,
    Group,
    Row,
    Where,
    distinct,
    mean_and_deviation,
    t_interval,
)
from suture.core.text import listed, number
from suture.data.scoring_rules import Protocol
from suture.evaluation.protocols import COMPLETION, case_interval
from suture.evaluation.titles import SCORES, SETS, TITLES, set_meanings

MINIMUM_CASES = Protocol.minimum_cases
"""With fewer cases there is no interval: so few resample to the same few sets."""
ENOUGH = 3
"""With fewer seeds a difference may be chance."""
GIB = 2**30
UNLIKE_TIMES = (
    "Rows with the same mark of times may differ from each other, and so may the runs of one row: runs.csv says how "
    "each run was made."
)

Detail = Literal["videos", "sets", "primary"]
"""The scores of single videos too; those of the sets; or only each set's primary one, as 80 columns hold."""
DETAILS: tuple[Detail, ...] = get_args(Detail)

Record = dict[str, Any]
"""A line of a CSV file."""


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table."""

    text: str
    bold: bool = False
    mark: str = ""
    """Of what makes it not comparable; several with commas between them."""


@dataclass(frozen=True)
class Table:
    """A table with titles over columns, groups of rows and notes below."""

    title: str
    label: str
    """Short and unique, for references."""
    heads: list[tuple[str, int]]
    """Titles over several columns, and over how many."""
    columns: list[str]
    groups: list[list[list[Cell]]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Column:
    """A score of one set: overall, of one video or of one class."""

    which: str
    where: Where
    key: str

    @property
    def title(self) -> str:
        return self.where.name or TITLES[self.key]


def score_columns(board: Board) -> list[Column]:
    """The paper's columns: Table I where the protocol shows every sequence, else Table II; completion always beside.

    Where Table I's score is of the whole set, the mean over frames stands beside it: the one is swayed by a rare class,
    the other by the frames that show little.
    """
    columns = []
    per_sequence = board.runs[0].per_sequence
    for which in board.sets:
        keys = dict.fromkeys((board.primary, "miou_frames")) if per_sequence else (board.primary, "pa", "pac")
        columns += [Column(which, OVERALL, key) for key in keys]
        if per_sequence and which == "test":
            videos = dict.fromkeys(
                video for run in board.runs for video in run.metrics.get("test", {}).get("videos", {})
            )
            columns += [Column(which, Where("videos", video), board.primary) for video in videos]
    return columns


def score_table(board: Board, detail: Detail = "videos") -> Table:
    """Mean ± deviation over seeds of every method, the best of each labelling in bold."""
    columns = score_columns(board)
    shares = ["Labelled", "Unlabelled"]
    if detail != "videos":
        columns = [column for column in columns if column.where == OVERALL]
    if detail == "primary":
        columns = [column for column in columns if column.key == board.primary]
        shares = ["Labelled"]
    per_sequence = board.runs[0].per_sequence
    heads = [("", 1), ("Frames used", len(shares))]
    for which in board.sets:
        span = sum(column.which == which for column in columns)
        heads.append((_head(which, board.primary if per_sequence and span > 1 else None), span))
    titles = [column.title if detail == "primary" else _title(board, column) for column in columns]
    groups = [_score_rows(group, columns, shares) for group in board.groups]
    return Table(
        title=f"{board.title}: scores (%)",
        label=f"scores-{board.dataset}",
        heads=heads,
        columns=["Method", *shares, *titles],
        groups=groups,
        notes=_score_notes(board, columns) + _mark_notes(board, groups),
    )


def _head(which: str, key: str | None = None) -> str:
    """A set, and one of its scores, over columns.

    >>> _head("val"), _head("test", "miou")
    ('Validation', 'Test mIoU')
    """
    name = SETS[which].name.capitalize()
    return f"{name} {TITLES[key]}" if key else name


def _title(board: Board, column: Column) -> str:
    if not board.runs[0].per_sequence or column.where != OVERALL:
        return column.title
    return "Overall" if column.key == board.primary else "per frame"


def best_rows(group: Group, column: Column) -> list[Row]:
    """Who has the highest mean in a column, as far as it is printed, among the group's peers.

    One lucky seed does not win beside means of several: rows of fewer than `ENOUGH` take part where no row, comparable
    or not, has so many.
    """
    enough = min(ENOUGH, max(len(_values(row, column)) for row in group.rows))
    filled = [(row, values) for row in group.peers if (values := _values(row, column))]
    means = [(row, round(100 * float(np.mean(values)), 2)) for row, values in filled if len(values) >= enough]
    found = {mean for _, mean in means}
    return [row for row, mean in means if mean == max(found)] if len(found) > 1 else []


def class_columns(board: Board, which: str) -> list[Column]:
    """A column for each class that the set shows, or a run predicts there, in the order of the dataset's table."""
    names = distinct(one["name"] for run in board.runs for one in run.data.get("classes", ()))
    columns = [Column(which, Where("classes", name), CLASS_SCORE) for name in names]
    return [column for column in columns if any(_values(row, column) for row in board.rows)]


def class_table(board: Board, which: str) -> Table | None:
    """Mean ± deviation over seeds of the IoU of each class: what a mean over classes hides."""
    columns = class_columns(board, which)
    if not columns:
        return None
    groups = [_score_rows(group, columns, ["Labelled"]) for group in board.groups]
    return Table(
        title=f"{board.title}: IoU of each class, {SETS[which].name} (%)",
        label=f"classes-{which}-{board.dataset}",
        heads=[],
        columns=["Method", "Labelled", *(column.title for column in columns)],
        groups=groups,
        notes=["IoU of a class: from one confusion matrix of all frames.", *_mark_notes(board, groups)],
    )


def paired_table(board: Board) -> Table | None:
    """Differences to the reference, seed by seed: the two have labels and starting weights in common, but the frames
    that steps draw only in stages of one name."""
    resampled = [which for which in board.sets if board.cases(which) >= MINIMUM_CASES]
    columns = ["per seed", "mean", "wins"]
    heads = [("", 2)]
    for which in board.sets:
        heads.append((_head(which, board.primary), len(columns) + (which in resampled)))
    groups = []
    for group in board.groups:
        rows = []
        for row in group.rows:
            if row is not group.reference:
                mark = _marks((row, group.reference))
                cells = [Cell(f"{row.title} − {group.reference.title}", mark=mark), Cell(row.labelled)]
                for which in board.sets:
                    cells += _paired_cells(group.reference, row, which, board.primary)
                    if which in resampled:
                        cells.append(Cell(_over_cases(group.reference, row, which, board.primary)))
                rows.append(cells)
        groups.append(rows)
    groups = [rows for rows in groups if rows]
    if not groups:
        return None
    notes = [
        f"Difference of the overall {TITLES[board.primary]} in percent points, in the order of the seeds that both "
        "have; wins: seeds in which it is above zero."
    ]
    if resampled:
        notes.append(
            "Over cases: mean over a set's cases of the difference between the row's two methods (in each case the "
            "mean over seeds), and the 95 % interval of that mean when these cases are drawn again with replacement: "
            "of these trainings on other cases, not of other trainings."
        )
    return Table(
        title=f"{board.title}: paired differences",
        label=f"paired-{board.dataset}",
        heads=heads,
        columns=[
            "Method",
            "Labelled",
            *(title for which in board.sets for title in (*columns, *(["over cases"] if which in resampled else []))),
        ],
        groups=groups,
        notes=notes + _mark_notes(board, groups),
    )


def pooled_table(board: Board) -> Table | None:
    """The proposed method against each other one, over all pairs of a labelling and a seed that both have."""
    keys = dict.fromkeys((board.primary, "miou_frames"))
    rows = []
    for pairs in _held_against_proposed(board):
        other, proposed = pairs[0]
        cells = [Cell(f"{proposed.title} − {other.title}", mark=_marks(itertools.chain(*pairs)))]
        for which, key in itertools.product(board.sets, keys):
            apart = [one for theirs, ours in pairs for one in _apart(theirs, ours, which, key)]
            cells += [Cell(_with_t_interval(apart)), Cell(_wins(apart))]
        rows.append(cells)
    if not rows:
        return None
    return Table(
        title=f"{board.title}: {board.proposed} against each of the others",
        label=f"pooled-{board.dataset}",
        heads=[("", 1), *((_head(which, key), 2) for which in board.sets for key in keys)],
        columns=["Methods", *(["difference", "wins"] * (len(board.sets) * len(keys)))],
        groups=[rows],
        notes=[
            "Mean of the differences in percent points over all pairs of a labelling and a seed, and its 95 % interval "
            "(Student's t): of these runs on these videos, not of other videos.",
            _meaning(keys),
            *_mark_notes(board, [rows]),
        ],
    )


def interval_table(board: Board) -> Table | None:
    """Intervals of the overall score that resample cases; None where no set has cases enough."""
    resampled = [which for which in board.sets if board.cases(which) >= MINIMUM_CASES]
    if not resampled:
        return None
    groups = []
    for group in board.groups:
        groups.append(
            [
                [
                    Cell(row.full_title, mark=row.mark),
                    Cell(row.labelled),
                    *(Cell(_interval(row, which)) for which in resampled),
                ]
                for row in group.rows
            ]
        )
    return Table(
        title=f"{board.title}: {TITLES[board.primary]} and its 95 % interval over cases",
        label=f"intervals-{board.dataset}",
        heads=[],
        columns=[
            "Method",
            "Labelled",
            *(f"{_head(which)} ({board.cases(which)} cases)" for which in resampled),
        ],
        groups=groups,
        notes=[
            f"The interval is that of a row's own score on {board.title}: the cases of the set are drawn again with "
            "replacement, 2000 times, and the training stays as it is. It is of these trainings on other cases, not of "
            "other trainings, nor of a difference between rows. Mean over seeds of the score and of the interval's "
            "ends.",
            *_mark_notes(board, groups),
        ],
    )


def cost_table(board: Board) -> Table:
    """What each method takes: time, memory and speed; and how many runs shared a device, where any run says so."""
    shared = any(run.runs_at_a_time for run in board.runs)
    untimed = [row.title for row in board.rows for run in row.runs if run.seconds is None]
    groups = []
    for group in board.groups:
        rows = []
        for row in group.rows:
            memory = max((run.peak_memory for run in row.runs if run.peak_memory), default=None)
            speeds = [run.images_per_second for run in row.runs if run.images_per_second]
            rows.append(
                [
                    Cell(row.full_title, mark=",".join(filter(None, (row.mark, row.mark_of_times)))),
                    Cell(row.labelled),
                    Cell(_spread([run.seconds / 60 for run in row.runs if run.seconds is not None], 1)),
                    Cell("–" if memory is None else f"{memory / GIB:.1f}"),
                    Cell(_spread(speeds, 1)),
                    Cell(_stage_minutes(row)),
                    Cell(", ".join(distinct(start["device"] for run in row.runs for start in run.starts)) or "?"),
                    *(
                        [Cell(", ".join(distinct(str(run.runs_at_a_time or "–") for run in row.runs)))]
                        if shared
                        else []
                    ),
                ]
            )
        groups.append(rows)
    return Table(
        title=f"{board.title}: cost of a run",
        label=f"cost-{board.dataset}",
        heads=[],
        columns=[
            "Method",
            "Labelled",
            "Minutes",
            "Peak GPU memory (GiB)",
            "Images/s",
            "Minutes of each stage",
            "Device",
            *(["Runs at a time"] if shared else []),
        ],
        groups=groups,
        notes=[
            "Minutes: all stages together, without the evaluation. Images/s: frames in the batches of the training "
            "stages over their time. Peak memory: of a run alone, also where others shared its device. Runs that share "
            "a device slow each other down"
            + (
                ": runs at a time are how many of one command did, at most."
                if shared
                else "; how many did is not known."
            ),
            *([_untimed_note(untimed, len(board.runs))] if untimed else []),
            *_mark_notes(board, groups),
            *([UNLIKE_TIMES] if any(row.mark_of_times for row in board.rows) else []),
        ],
    )


def tables_of(board: Board) -> list[Table]:
    """Every table of a dataset."""
    classes = [class_table(board, which) for which in board.sets]
    tables = [score_table(board), paired_table(board), pooled_table(board), interval_table(board)]
    return [table for table in (*tables, *classes, cost_table(board)) if table is not None]


def tidy_scores(board: Board) -> Iterator[Record]:
    """One record for each number of the tables of scores, for the CSV file."""
    columns = [*score_columns(board), *(column for which in board.sets for column in class_columns(board, which))]
    for group in board.groups:
        best = [best_rows(group, column) for column in columns]
        for row in group.rows:
            for column, winners in zip(columns, best, strict=True):
                values = _values(row, column)
                if values:
                    mean, deviation = mean_and_deviation(values)
                    yield {
                        "dataset": board.dataset,
                        "labelling": group.labelling,
                        "labelled": row.runs[0].labelled_share,
                        "method": row.place.method,
                        "point": row.place.point,
                        "mark": row.mark,
                        "set": column.which,
                        "where": column.where.name or column.where.part,
                        "score": column.key,
                        "mean": mean,
                        "std": deviation,
                        "seeds": len(values),
                        "best": int(any(row is winner for winner in winners)),
                    }


def _score_rows(group: Group, columns: Sequence[Column], shares: Sequence[str]) -> list[list[Cell]]:
    best = [best_rows(group, column) for column in columns]
    rows = []
    for row in group.rows:
        cells = [Cell(row.full_title, mark=row.mark), *[Cell(row.labelled), Cell(row.unlabelled)][: len(shares)]]
        for column, winners in zip(columns, best, strict=True):
            values = [100 * value for value in _values(row, column)]
            cells.append(Cell(_spread(values, 2), bold=any(row is winner for winner in winners)))
        rows.append(cells)
    return rows


def _score_notes(board: Board, columns: Sequence[Column]) -> list[str]:
    seeds = distinct(len(row.runs) for row in board.rows)
    over = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
    spread = "One seed each." if seeds == [1] else f"Mean ± sample standard deviation over {over}."
    planned = {row.title: row.planned for row in board.rows}
    most, *others = sorted(set(planned.values()), reverse=True)
    fewer = [f"{count} for {listed([title for title in planned if planned[title] == count])}" for count in others]
    if fewer:
        spread += f" Planned are {most} seeds, but {'; '.join(fewer)}."
    if min(seeds) < ENOUGH:
        spread += " With fewer than three seeds, a difference may be chance."
    several = f" and has {ENOUGH} seeds or more" if min(seeds) < ENOUGH <= max(seeds) else ""
    contested = [group.reference for group in board.groups if len(group.rows) > 1]
    against = distinct((board.reference if first.mark else first).title for first in contested)
    best = (
        f" Bold: the best of a labelling, among what can be compared with {' and '.join(against)}{several}."
        if against
        else ""
    )
    notes = [spread + best]
    notes.append(_meaning(distinct(column.key for column in columns)))
    if any(column.where != OVERALL and column.key == "miou" for column in columns):
        notes.append("Of a single sequence, a class that it lacks counts as 0 in runs that predict a pixel of it.")
    said = distinct(note for run in board.runs for scores in run.metrics.values() for note in scores.get("notes", ()))
    if said:
        notes.append(f"Protocol: {'; '.join(said)}.")
    if board.sets:
        notes.append(f"{set_meanings(board.sets).capitalize()}.")
    if mixing := distinct(row.title for row in board.rows if row.mixes_batches):
        notes.append(
            f"In some supervised steps of {listed(mixing, 5)}, a part of the batch are frames with pseudo labels: they "
            "learn from fewer labelled frames than rows whose batch is of these alone."
        )
    chosen = distinct(row.title for row in board.rows if row.is_chosen)
    if chosen and "val" in board.sets:
        notes.append(
            f"The weights of {listed(chosen, 5)} were chosen by the validation videos (best_every): scores on these "
            "flatter them."
        )
    everything = [run for group in board.groups if group.labelling == "all" for row in group.rows for run in row.runs]
    if everything and COMPLETION in board.sets and not any(COMPLETION in run.metrics for run in everything):
        notes.append("No completion with all labels: every frame with a mask is learnt from, so none is left to score.")
    few = [f"{SETS[which].name} has {board.cases(which)}" for which in board.sets if board.cases(which) < MINIMUM_CASES]
    if few:
        notes.append(
            f"No interval where a set has fewer than five cases ({', '.join(few)}); a case is an operation or a "
            "patient, with one video or several."
        )
    return notes


def _held_against_proposed(board: Board) -> Iterator[list[tuple[Row, Row]]]:
    """Of each other method its row and that of the proposed one, in every labelling that has both.

    Where this is swept, of each of its points: beside the other's row at the same point, else beside all that it has.
    """
    labellings = [{row.place[2:4]: row for row in group.rows} for group in board.groups]
    places = distinct(place for rows in labellings for place in rows)
    ours = [place for place in places if place[0] == board.proposed]
    others = [place for place in places if place not in ours]
    for our, other in itertools.product(ours, others):
        same_point = (other[0], our[1])
        if other == same_point or same_point not in others:
            pairs = [(rows[other], rows[our]) for rows in labellings if {other, our} <= rows.keys()]
            if pairs:
                yield pairs


def _meaning(keys: Iterable[str]) -> str:
    """What scores are."""
    meanings = {score.key: score.meaning for score in SCORES}
    return "; ".join(f"{TITLES[key]}: {meanings[key]}" for key in keys) + "."


def _marks(rows: Iterable[Row]) -> str:
    """Of all rows that a difference is made of."""
    return ",".join(distinct(row.mark for row in rows if row.mark))


def _mark_notes(board: Board, groups: Iterable[Iterable[Iterable[Cell]]]) -> list[str]:
    """What the marks in these rows stand for."""
    used = {mark for rows in groups for row in rows for cell in row for mark in cell.mark.split(",")}
    return [f"{mark} {text}." for mark, text in board.differences.items() if mark in used]


def _paired_cells(reference: Row, row: Row, which: str, key: str) -> list[Cell]:
    apart = _apart(reference, row, which, key)
    if not apart:
        return [Cell("–")] * 3
    return [
        Cell(", ".join(_signed(one) for one in apart)),
        Cell(_spread(apart, 2, signed=True)),
        Cell(_wins(apart)),
    ]


def _apart(reference: Row, row: Row, which: str, key: str) -> list[float]:
    """How far the row is above the reference, in percent points, seed by seed."""
    ours, theirs = row.values(which, OVERALL, key), reference.values(which, OVERALL, key)
    return [100 * (ours[seed] - theirs[seed]) for seed in ours if seed in theirs]


def _wins(apart: Sequence[float]) -> str:
    return f"{sum(one > 0 for one in apart)} of {len(apart)}" if apart else "–"


def _with_t_interval(values: Sequence[float]) -> str:
    if len(values) < 2:
        return _signed(values[0]) if values else "–"
    low, high = t_interval(values)
    return f"{_signed(float(np.mean(values)))} [{_signed(low)}, {_signed(high)}]"


def _over_cases(reference: Row, row: Row, which: str, key: str) -> str:
    """Mean over cases of the difference, and its interval."""
    by_case: dict[str, list[float]] = {}
    theirs = {run.place.seed: run.metrics.get(which, {}).get("cases", {}) for run in reference.runs}
    for run in row.runs:
        for case, scores in run.metrics.get(which, {}).get("cases", {}).items():
            ours, other = scores[key], theirs.get(run.place.seed, {}).get(case, {}).get(key)
            if ours is not None and other is not None:
                by_case.setdefault(case, []).append(100 * (ours - other))
    means = [float(np.mean(values)) for values in by_case.values()]
    interval = case_interval(means, minimum=MINIMUM_CASES)
    if interval is None:
        return "–"
    return f"{_signed(float(np.mean(means)))} [{_signed(interval[0])}, {_signed(interval[1])}]"


def _interval(row: Row, which: str) -> str:
    """The score and its interval: the mean over seeds of each."""
    primary = [run.metrics[which]["primary"] for run in row.runs if which in run.metrics]
    known = [(one["value"], *one["interval"]) for one in primary if one["interval"] is not None]
    if not known:
        return "–"
    value, low, high = 100 * np.mean(known, axis=0)
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _stage_minutes(row: Row) -> str:
    """Mean over seeds whose time is known; stages of many rounds, `round-1-a`, `round-2-a`, … are taken together."""
    minutes: dict[str, float] = {}
    timed = [run for run in row.runs if run.seconds is not None]
    for run in timed:
        for name, done in run.stages.items():
            kind = name.partition("-")[0]
            minutes[kind] = minutes.get(kind, 0.0) + done["seconds"] / 60 / len(timed)
    return ", ".join(f"{name} {value:.1f}" for name, value in minutes.items()) or "–"


def _untimed_note(titles: Sequence[str], runs: int) -> str:
    of_rows = listed([f"{count} of {title}" for title, count in Counter(titles).items()], 5)
    unknown = f"How long {number(len(titles), 'run')} of {runs} took is not known ({of_rows})"
    return f"{unknown}: minutes and images/s are of the others."


def _values(row: Row, column: Column) -> list[float]:
    return list(row.values(column.which, column.where, column.key).values())


def _spread(values: Sequence[float], digits: int, signed: bool = False) -> str:
    if not values:
        return "–"
    mean, deviation = mean_and_deviation(values)
    said = _signed(mean) if signed else f"{mean:.{digits}f}"
    return said if deviation is None else f"{said} ± {deviation:.{digits}f}"


def _signed(value: float) -> str:
    said = f"{value:+.2f}"
    return "0.00" if float(said) == 0 else said.replace("-", "−")
