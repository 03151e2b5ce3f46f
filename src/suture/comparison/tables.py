"""Tables of a comparison: scores, classes, paired differences, intervals and cost."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suture.comparison.board import Board, LabellingGroup, MethodRow
from suture.comparison.results import RunResult, distinct
from suture.core.io import parse_json
from suture.data.scoring_rules import Protocol
from suture.evaluation.protocols import case_interval
from suture.evaluation.titles import SCORES, SETS, TITLES, set_meanings
from suture.web.table import Table, TableCell

MINIMUM_CASES = Protocol.minimum_cases
MIN_SEEDS = 3
"""Rows with fewer seeds are the best only where no row has so many."""
_T_INTERVAL_NOTE = (
    "Differences are in percent points, over pairs of a labelling and a seed. Brackets hold the 95 % interval of "
    "Student's t: of these runs on these videos."
)


@dataclass(frozen=True)
class ScoreColumn:
    """A score of one set: of all frames, one video or one class."""

    which: str
    key: str
    scope: str = "all"
    name: str = ""

    def values(self, row: MethodRow) -> list[float]:
        """Values of a row's seeds, in percent."""
        return [100 * value for value in row.values(self.which, self.key, self.scope, self.name).values()]

    def text(self, row: MethodRow) -> str:
        """Mean and deviation over seeds; for an interval, the means of its ends."""
        if self.key != "interval":
            return _spread(self.values(row), 2)
        low, high = (ScoreColumn(self.which, end).values(row) for end in ("low", "high"))
        return f"[{np.mean(low):.2f}, {np.mean(high):.2f}]" if low else "–"

    def differences(self, pairs: "Pairs") -> list[float]:
        """Differences within pairs in which both runs have the score, in percent points."""
        place = (self.which, self.scope, self.name, self.key)
        both = [(run.score(*place), other.score(*place)) for run, other in pairs]
        return [100 * (ours - theirs) for ours, theirs in both if ours is not None and theirs is not None]


Pairs = Sequence[tuple[RunResult, RunResult]]


def tables_of(board: Board) -> list[Table]:
    """Make every table of a dataset."""
    classes = [class_table(board, which) for which in board.sets]
    tables = [score_table(board), paired_table(board), pooled_table(board), *classes, cost_table(board)]
    return [table for table in tables if table is not None]


def score_table(board: Board) -> Table:
    """Mean ± deviation over seeds of every method, the best of each labelling in bold.

    Columns follow Table I of the PGV-CL paper if the protocol shows every sequence, else Table II. Both add completion.
    Table I also has the mean over frames, because a rare class strongly affects the score of a whole set.
    """
    columns, heads = list[ScoreColumn](), [("", 1), ("", 2)]
    for which in board.sets:
        keys = (board.primary, "miou_frames") if board.per_sequence else (board.primary, "pa", "pac")
        of_set = [ScoreColumn(which, key) for key in distinct(keys)]
        if board.per_sequence and which == "test":
            videos = distinct(video for run in board.runs for video in run.names("test", "video"))
            of_set += [ScoreColumn(which, board.primary, "video", video) for video in videos]
        if which in _resampled(board):
            of_set.append(ScoreColumn(which, "interval"))
        columns += of_set
        heads.append((_head(which, board.primary if board.per_sequence and len(of_set) > 1 else ""), len(of_set)))
    overall = {"miou_frames": "per frame", board.primary: "Overall"} if board.per_sequence else TITLES
    overall = {"interval": "over cases"} | overall
    return _table(
        board,
        "scores",
        "scores (%)",
        ["Method", "Labelled", "Unlabelled", *(column.name or overall[column.key] for column in columns)],
        [_score_rows(group, columns, with_unlabelled=True) for group in board.groups],
        _score_notes(board, columns),
        heads,
    )


def primary_table(board: Board) -> Table:
    """The primary score of each set alone, which fits into a terminal."""
    columns = [ScoreColumn(which, board.primary) for which in board.sets]
    return _table(
        board,
        "primary",
        f"{TITLES[board.primary]} (%)",
        ["Method", "Labelled", *(_head(which) for which in board.sets)],
        [_score_rows(group, columns) for group in board.groups],
        [_seeds_note(board)],
    )


def class_table(board: Board, which: str) -> Table | None:
    """Mean ± deviation over seeds of the IoU of each class that a set shows or a run predicts there."""
    names = distinct(name for run in board.runs for name in run.names(which, "class"))
    columns = [ScoreColumn(which, "iou", "class", name) for name in names]
    columns = [column for column in columns if any(column.values(row) for row in board.rows)]
    if not columns:
        return None
    return _table(
        board,
        f"classes-{which}",
        f"IoU of each class, {SETS[which].name} (%)",
        ["Method", "Labelled", *(column.name for column in columns)],
        [_score_rows(group, columns) for group in board.groups],
        ["IoU of a class: from one confusion matrix of all frames."],
    )


def paired_table(board: Board) -> Table | None:
    """Differences to the reference, seed by seed: both have the same labels and starting weights."""
    resampled = _resampled(board)
    columns, heads = ["Method", "Labelled"], [("", 2)]
    for which in board.sets:
        titles = ["per seed", "mean", "wins", *(["over cases"] if which in resampled else [])]
        columns += titles
        heads.append((_head(which, board.primary), len(titles)))
    groups = []
    for group in board.groups:
        rows = []
        for row in group.rows:
            if row is not group.reference:
                title = f"{row.title} − {group.reference.title}"
                cells = [TableCell(title, mark=_marks((row, group.reference))), TableCell(row.labelled)]
                for which in board.sets:
                    apart = ScoreColumn(which, board.primary).differences(_pairs(row.runs, group.reference.runs))
                    texts = [", ".join(map(_signed, apart)) or "–", _spread(apart, 2, signed=True), _wins(apart)]
                    if which in resampled:
                        texts.append(_over_cases(group.reference, row, which, board.primary))
                    cells += map(TableCell, texts)
                rows.append(cells)
        groups += [rows] if rows else []
    notes = [
        f"Differences of the overall {TITLES[board.primary]} in percent points, seed by seed.",
        "Wins: seeds in which the difference is above zero.",
        *_cases_note(board),
    ]
    return _table(board, "paired", "paired differences", columns, groups, notes, heads) if groups else None


def pooled_table(board: Board) -> Table | None:
    """The proposed method against each other one, over all pairs of a labelling and a seed."""
    columns = [ScoreColumn(which, key) for which in board.sets for key in distinct((board.primary, "miou_frames"))]
    rows = []
    titles = distinct(row.title for row in board.rows)
    ours = distinct(row.title for row in board.rows if row.method == board.proposed)
    for our, other in itertools.product(ours, (title for title in titles if title not in ours)):
        rows_of = {title: [row for row in board.rows if row.title == title] for title in (our, other)}
        runs_of = {title: [run for row in of_title for run in row.runs] for title, of_title in rows_of.items()}
        pairs = _pairs(runs_of[our], runs_of[other])
        cells = [TableCell(f"{our} − {other}", mark=_marks(rows_of[other] + rows_of[our]))]
        for column in columns:
            cells += _difference_cells(column.differences(pairs))
        rows += [cells] if pairs else []
    if not rows:
        return None
    return _table(
        board,
        "pooled",
        f"{board.proposed} against each of the others",
        ["Methods", *(["difference", "wins"] * len(columns))],
        [rows],
        [_T_INTERVAL_NOTE, *_meanings(columns)],
        [("", 1), *((_head(column.which, column.key), 2) for column in columns)],
    )


def against_table(board: Board, method: str, other: str) -> Table | None:
    """Every score of a method against another one, in pairs of a labelling and a seed.

    If the other method has only runs with all labels, these meet each labelling.
    """
    ours, theirs = ([run for run in board.runs if run.key.method == name] for name in (method, other))
    pairs = _pairs(ours, theirs, with_all_labels=True)
    labellings = distinct(run.key.labelling for run, _ in pairs)
    labellings += ["together"] if len(labellings) > 1 else []
    groups = []
    for which in board.sets:
        rows = []
        for title, column in _all_scores(board, which):
            cells = [TableCell(f"{SETS[which].name.capitalize()}, {title}")]
            for labelling in labellings:
                of_labelling = [pair for pair in pairs if labelling in (pair[0].key.labelling, "together")]
                cells += _difference_cells(column.differences(of_labelling))
            rows += [cells] if column.differences(pairs) else []
        groups.append(rows)
    columns = ["Score", *(["difference", "wins"] * len(labellings))]
    heads = [("", 1), *((labelling, 2) for labelling in labellings)]
    title = f"{method} − {other}"
    return _table(board, f"against-{other}", title, columns, groups, [_T_INTERVAL_NOTE], heads) if pairs else None


def cost_table(board: Board) -> Table:
    """Time, memory and speed of each method."""
    groups = [
        [
            _row_cells(
                row,
                _spread(_facts(row, "minutes"), 1),
                f"{max(memory):.1f}" if (memory := _facts(row, "memory_gib")) else "–",
                _spread(_facts(row, "images_per_second"), 1),
                _stage_minutes(row),
                ", ".join(distinct(run.facts["device"] or "?" for run in row.runs)),
                ", ".join(distinct(run.facts["runs_at_a_time"] or "–" for run in row.runs)),
                mark=",".join(filter(None, (row.mark, row.time_mark))),
            )
            for row in group.rows
        ]
        for group in board.groups
    ]
    columns = ["Method", "Labelled", "Minutes", "Peak GPU memory (GiB)", "Images/s", "Minutes of each stage"]
    notes = [
        "Minutes: all stages, without the evaluation.",
        "Images/s: frames in the batches of the training stages over their time.",
        "Runs at a time: the most runs that shared a device, which slows each of them.",
    ]
    return _table(board, "cost", "cost of a run", [*columns, "Device", "Runs at a time"], groups, notes)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; one value has no deviation.

    >>> mean_and_deviation([0.5, 0.75])
    (0.625, 0.1767766952966369)
    """
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean of two values or more, by Student's t."""
    from scipy.stats import t

    mean, deviation = mean_and_deviation(values)
    half = float(t.ppf(0.975, len(values) - 1)) * (deviation or 0.0) / len(values) ** 0.5
    return mean - half, mean + half


def _table(
    board: Board,
    kind: str,
    title: str,
    columns: Sequence[str],
    groups: Sequence[Sequence[Sequence[TableCell]]],
    notes: Sequence[str],
    heads: Sequence[tuple[str, int]] = (),
) -> Table:
    """Make a table of a dataset, with the meaning of its marks below."""
    used = {mark for rows in groups for row in rows for cell in row for mark in cell.mark.split(",")}
    marks = [f"{mark} {text}." for mark, text in board.footnotes.items() if mark in used]
    return Table(columns, groups, f"{board.title}: {title}", f"{kind}-{board.dataset}", heads, [*notes, *marks])


def _head(which: str, key: str = "") -> str:
    """Title above columns: a set, and one of its scores.

    >>> _head("val"), _head("test", "miou")
    ('Validation', 'Test mIoU')
    """
    name = SETS[which].name.capitalize()
    return f"{name} {TITLES[key]}" if key else name


def _resampled(board: Board) -> list[str]:
    return [which for which in board.sets if board.cases(which) >= MINIMUM_CASES]


def best_rows(group: LabellingGroup, column: ScoreColumn) -> list[MethodRow]:
    """Comparable rows with the highest mean as printed.

    Rows of fewer than `MIN_SEEDS` take part only if no row has so many: one lucky seed does not win.
    """
    enough = min(MIN_SEEDS, max(len(column.values(row)) for row in group.rows))
    values = [(row, column.values(row)) for row in group.comparable]
    means = [(row, round(float(np.mean(of_row)), 2)) for row, of_row in values if of_row and len(of_row) >= enough]
    distinct_means = {mean for _, mean in means}
    return [row for row, mean in means if mean == max(distinct_means)] if len(distinct_means) > 1 else []


def _row_cells(row: MethodRow, *texts: str, mark: str | None = None) -> list[TableCell]:
    title = TableCell(row.full_title, mark=row.mark if mark is None else mark)
    return [title, TableCell(row.labelled), *map(TableCell, texts)]


def _difference_cells(apart: Sequence[float]) -> list[TableCell]:
    return [TableCell(_with_t_interval(apart)), TableCell(_wins(apart))]


def _score_rows(
    group: LabellingGroup, columns: Sequence[ScoreColumn], with_unlabelled: bool = False
) -> list[list[TableCell]]:
    best = [best_rows(group, column) for column in columns]
    rows = []
    for row in group.rows:
        cells = _row_cells(row, *([row.unlabelled] if with_unlabelled else []))
        for column, winners in zip(columns, best, strict=True):
            cells.append(TableCell(column.text(row), bold=any(row is winner for winner in winners)))
        rows.append(cells)
    return rows


def _score_notes(board: Board, columns: Sequence[ScoreColumn]) -> list[str]:
    protocols = distinct(note for run in board.runs for note in (run.facts["notes"] or "").split("; ") if note)
    chosen = distinct(row.title for row in board.rows if row.has("chosen_by_validation"))
    return [
        _seeds_note(board),
        "Bold: the best of a labelling among comparable rows.",
        *_meanings(columns),
        *(f"Protocol: {note}." for note in protocols),
        *(f"{meaning.capitalize()}." for meaning in set_meanings(board.sets).split("; ") if meaning),
        *(f"The weights of {title} were chosen by the validation videos." for title in chosen),
        *_cases_note(board),
    ]


def _seeds_note(board: Board) -> str:
    seeds = sorted({len(row.runs) for row in board.rows})
    over = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    return "One seed each." if seeds == [1] else f"Mean ± sample standard deviation over {over}."


def _cases_note(board: Board) -> list[str]:
    """Explain intervals over cases if there are any."""
    note = "Over cases: 95 % interval if cases are resampled. It covers other cases, not other trainings."
    return [note] if _resampled(board) else []


def _pairs(ours: Iterable[RunResult], theirs: Iterable[RunResult], with_all_labels: bool = False) -> Pairs:
    """Pair runs by labelling and seed, and with runs of all labels if `with_all_labels`."""
    partners = {(run.key.labelling, run.key.seed): run for run in theirs}
    pairs = []
    for run in ours:
        partner = partners.get((run.key.labelling, run.key.seed))
        partner = partner or (partners.get(("all", run.key.seed)) if with_all_labels else None)
        pairs += [(run, partner)] if partner else []
    return pairs


def _all_scores(board: Board, which: str) -> Iterator[tuple[str, ScoreColumn]]:
    """Scores of a set, its classes and its videos, with titles."""
    for key in ("miou", "miou_frames", "nsd"):
        yield TITLES[key], ScoreColumn(which, key)
    for name in distinct(name for run in board.runs for name in run.names(which, "class")):
        yield f"IoU of {name}", ScoreColumn(which, "iou", "class", name)
    for name in distinct(name for run in board.runs for name in run.names(which, "video")):
        yield f"{TITLES['miou']} of {name}", ScoreColumn(which, "miou", "video", name)
        yield f"{TITLES['miou_frames']} of {name}", ScoreColumn(which, "miou_frames", "video", name)


def _over_cases(reference: MethodRow, row: MethodRow, which: str, key: str) -> str:
    """Mean over cases of the difference, and its interval."""
    cases = distinct(case for run in row.runs for case in run.names(which, "case"))
    pairs = _pairs(row.runs, reference.runs)
    of_cases = [ScoreColumn(which, key, "case", case).differences(pairs) for case in cases]
    means = [float(np.mean(values)) for values in of_cases if values]
    interval = case_interval(means, minimum=MINIMUM_CASES)
    if interval is None:
        return "–"
    return f"{_signed(float(np.mean(means)))} [{_signed(interval[0])}, {_signed(interval[1])}]"


def _stage_minutes(row: MethodRow) -> str:
    """Mean over timed seeds; rounds of a stage (`round-1-a`, `round-2-a`, …) together."""
    timed = [parse_json(text, "stage_minutes") for text in _facts(row, "stage_minutes")]
    minutes: Counter[str] = Counter()
    for name, value in ((name, value) for stages in timed for name, value in stages.items()):
        minutes[name.partition("-")[0]] += value / len(timed)
    return ", ".join(f"{name} {value:.1f}" for name, value in minutes.items()) or "–"


def _facts(row: MethodRow, name: str) -> list[Any]:
    return [run.facts[name] for run in row.runs if run.facts[name] is not None]


def _meanings(columns: Iterable[ScoreColumn]) -> list[str]:
    meanings = {score.key: score.meaning for score in SCORES}
    keys = distinct(column.key for column in columns if column.key in meanings)
    return [f"{TITLES[key]}: {meanings[key]}." for key in keys]


def _marks(rows: Iterable[MethodRow]) -> str:
    return ",".join(distinct(row.mark for row in rows if row.mark))


def _wins(apart: Sequence[float]) -> str:
    return f"{sum(one > 0 for one in apart)} of {len(apart)}" if apart else "–"


def _with_t_interval(values: Sequence[float]) -> str:
    if len(values) < 2:
        return _signed(values[0]) if values else "–"
    low, high = t_interval(values)
    return f"{_signed(float(np.mean(values)))} [{_signed(low)}, {_signed(high)}]"


def _spread(values: Sequence[float], digits: int, signed: bool = False) -> str:
    if not values:
        return "–"
    mean, deviation = mean_and_deviation(values)
    text = _signed(mean) if signed else f"{mean:.{digits}f}"
    return text if deviation is None else f"{text} ± {deviation:.{digits}f}"


def _signed(value: float) -> str:
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")
