"""`suture compare`: plan, train what is missing, write the tables."""

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Listing

from suture.comparison.collect import collect, refuse_same
from suture.comparison.plan import Place, Plan, Planned, read_plan, require_unchanged
from suture.comparison.plots import pictures, told_apart
from suture.comparison.queue import Outcome, Queue, devices_of, is_finished, told_once
from suture.comparison.render import Section, latex, markdown, page, terminal
from suture.comparison.results import OVERALL, Board, Results, damage, read_results, told_deeper
from suture.comparison.tables import DETAILS, Record, score_table, tables_of, tidy_scores
from suture.core.errors import UserError
from suture.core.io import write_bytes, write_text
from suture.core.progress import waiting
from suture.core.text import listed, number
from suture.evaluation.sample_size import sample_size_warnings
from suture.training.run_folder import Run

FEW = 4
"""So many missing runs are named above the tables."""
TABULATING = "Reading the runs and making their tables"


def compare(
    file: Path,
    out: Path | None = None,
    devices: str | None = None,
    jobs: int = 1,
    minutes: float | None = None,
    only: Collection[str] = (),
    kept: Path | None = None,
    console: Console | None = None,
) -> Outcome:
    """Train every run of a comparison file that is not finished, and write the tables of those that are.

    With `only`, the runs of these methods, or with these names, are trained; plan and tables are of the whole file.
    With `kept`, the small files of each run are in that folder as soon as it is finished, whatever becomes of the
    others.

    >>> compare(Path("ratios.yaml"), devices="0,1", jobs=2, minutes=55, only=["dmt"])  # doctest: +SKIP
    """
    console = console or Console(stderr=True)
    plan = read_plan(file)
    wanted = plan.only(only)
    out = out or default_folder(file)
    chosen = devices_of(devices)
    if jobs < 1:
        raise UserError(f"--jobs is {jobs}, expected 1 or more.")
    if kept is not None:
        refuse_same(out, kept)

    def keep(name: str = "*") -> None:
        try:
            if kept is not None:
                collect(out, kept, name)
        except (UserError, OSError) as error:  # it is there still, and the others go on
            console.print(f"[red]not collected:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)

    with Run(out).locked():
        require_unchanged(plan, out)
        _look_ahead(plan, [run for run in wanted.runs if not is_finished(out, run.name)], file, console)
        plan.write(out)
        if only:
            said = f"Only {listed(list(dict.fromkeys(only)))}: {len(wanted.runs)} of {number(len(plan.runs), 'run')}."
            console.print(said, highlight=False, soft_wrap=True)
        if any(is_finished(out, run.name) for run in plan.runs):
            keep()
        outcome = Queue(wanted, out, chosen, jobs, minutes, keep, console).train()
        _tell_failures(outcome.failed, console)
        if any(is_finished(out, run.name) and run.name not in outcome.failed for run in plan.runs):
            with waiting(TABULATING, console):
                results = read_results(out)
                written = _write(results, out)
            _tell(results, written, console)
    if outcome.left:
        console.print(
            f"Left for want of time: {number(len(outcome.left), 'run')}; start the same command again to go on.",
            highlight=False,
            soft_wrap=True,
        )
    return outcome


def _look_ahead(plan: Plan, runs: Sequence[Planned], file: Path, console: Console) -> None:
    """Tell before the first of these runs starts which would fail, and what the plan does not let compare; refuse where
    a path leads nowhere, or no run would be left."""
    from suture.comparison.preflight import missing_paths, unfit, unlike_stores  # Lightning, which tables do without

    missing, refused = missing_paths(runs), unfit(runs)
    told = [f"{listed(names, FEW)}: {sentence}" for sentence, names in refused.items()]
    if missing or (runs and sum(map(len, refused.values())) == len(runs)):
        raise UserError("\n".join(f"{file}: {mistake}" for mistake in (*missing, *told)))
    for mistake in told:
        console.print(f"[red]will fail:[/red] {escape(mistake)}", highlight=False, soft_wrap=True)
    for sentence in unlike_stores(plan.runs) if runs else ():
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def default_folder(file: Path) -> Path:
    """Where a comparison goes unless said otherwise."""
    return Path("runs") / file.stem


def listing(plan: Plan, out: Path) -> Listing:
    """The runs of a plan and how far they are, for the terminal."""
    states = {run.name: _state(out, run.name) for run in plan.runs}
    finished = sum(state == "finished" for state in states.values())
    title = f"{number(len(states), 'run')}, {finished} finished in {out}"
    table = Listing(title=title, title_justify="left")
    table.add_column("run", overflow="fold")  # whole, as --only takes it
    table.add_column("state", no_wrap=True)
    for name, state in states.items():
        table.add_row(name, state)
    return table


def _state(out: Path, name: str) -> str:
    folder = out / "runs" / name
    if is_finished(out, name):
        return "damaged" if damage(folder) else "finished"
    return "begun" if (folder / "config.yaml").exists() else "–"


def print_scores(board: Board, console: Console) -> None:
    """The scores in as much detail as the terminal is wide, and below them what their marks mean and they rest on."""
    tables = [score_table(board, detail) for detail in DETAILS]
    unlimited = console.options.update(width=10_000)
    fitting = (one for one in tables if console.measure(terminal(one), options=unlimited).maximum <= console.width)
    table = next(fitting, tables[-1])
    console.print(terminal(table))
    for note in (*table.notes, *sample_size_warnings([run.metrics for run in board.runs])):
        console.print(note, markup=False, highlight=False)


def show_tables(folder: Path, out: Path | None, console: Console) -> None:
    """Write the tables of all finished runs in a folder, and tell of them as when these were trained."""
    with waiting(TABULATING, console):
        results = read_results(folder)
        _tell_failures(results.failed, console)
        written = _write(results, out or folder)
    _tell(results, written, console)
    for line in told_deeper(folder):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def write_tables(folder: Path, out: Path | None = None) -> list[Path]:
    """Write the tables of all finished runs in a folder: Markdown, LaTeX, CSV, pictures, and one page.

    Each run's config.yaml, metrics.json and stages/*/done.json are enough, so collected results can be tabulated again.
    """
    return _write(read_results(folder), out or folder)


def _write(results: Results, out: Path) -> list[Path]:
    remarks = _remarks(results)
    sections, drawn = [], []
    for board in results.boards:
        of_board = list(pictures(board))
        sections.append(Section(board.title, tables_of(board), {one.caption: one.png for one in of_board}))
        drawn += of_board
    drawn = told_apart(drawn)
    tables = [table for section in sections for table in section.tables]
    text = [f"## {results.title}\n", *(f"{remark}\n" for remark in remarks), *map(markdown, tables)]
    texts = {
        "tables.md": "\n".join([*text, *(f"![{one.caption}]({one.name}.png)\n" for one in drawn)]),
        "tables.tex": "\n".join(
            ["% needs \\usepackage{booktabs,adjustbox}", *(f"% {said}" for said in remarks), *map(latex, tables)]
        ),
        "scores.csv": _csv(record for board in results.boards for record in tidy_scores(board)),
        "runs.csv": _csv(record for board in results.boards for record in _run_records(board)),
        "tables.html": page(results.title, remarks, sections),
    }
    for name, content in texts.items():
        write_text(out / name, content)
    for one in drawn:
        write_bytes(out / f"{one.name}.png", one.png)
    return [out / name for name in (*texts, *(f"{one.name}.png" for one in drawn))]


def _tell_failures(failed: Mapping[str, str], console: Console) -> None:
    """Above the tables, which lack what failed."""
    for why in told_once(failed):
        console.print(f"[red]failed:[/red] {escape(why)}", highlight=False, soft_wrap=True)


def _tell(results: Results, written: Sequence[Path], console: Console) -> None:
    """The scores, which runs they lack, the page to open, and what was written beside it."""
    for board in results.boards:
        print_scores(board, console)
    page = next(path for path in written if path.suffix == ".html")
    others = [path.name for path in written if path != page and path.suffix != ".png"]
    drawn = sum(path.suffix == ".png" for path in written)
    beside = listed([*others, *([number(drawn, "picture")] if drawn else [])])
    for line in (*_unfinished(results), f"Tables: {page}; beside it {beside}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _remarks(results: Results) -> list[str]:
    """What stands above the tables: which runs failed, and why, and which are not there."""
    failed = {name: _without_folders(reason) for name, reason in results.failed.items()}
    return [*(f"Failed: {why}" for why in told_once(failed)), *_unfinished(results)]


def _unfinished(results: Results) -> Iterator[str]:
    """How many runs the tables lack, and whose; and which have no scores."""
    if results.missing:
        total = len(results.missing) + len(results.unscored) + sum(len(board.runs) for board in results.boards)
        yield f"Not finished: {len(results.missing)} of {total} runs ({_missing(results)})."
    if results.unscored:
        yield f"Left out, as nothing was scored: {listed(results.unscored, FEW)}."


def _missing(results: Results) -> str:
    """A few runs by their names; of more how many of each method, with several datasets of each of these."""
    if len(results.missing) <= FEW:
        return ", ".join(results.missing)
    counts = Counter((place.dataset, place.method) for place in map(Place.of_name, results.missing) if place)
    datasets: dict[str, list[str]] = {}
    for dataset, method in dict.fromkeys((place.dataset, place.method) for place in results.places):
        said = datasets.setdefault(dataset, [])
        if count := counts[dataset, method]:
            said.append(f"{method} {count}")
    told = "; ".join(
        f"{dataset}: {', '.join(said)}" if len(datasets) > 1 else ", ".join(said)
        for dataset, said in datasets.items()
        if said
    )
    return told or listed(results.missing, FEW)  # where no plan names them


def _without_folders(sentence: str) -> str:
    """A sentence for a page that is passed on: of a path only its last part, since folders can tell a patient's name.

    These may hold blanks, so everything up to the last separator goes; the terminal and the log have the whole.

    >>> _without_folders("cannot read /data/Doe, John/videos/case01.mp4: mend it.")
    'cannot read case01.mp4: mend it.'
    """
    return re.sub(r"\S*[/\\](.*[/\\])?", "", sentence)


def _run_records(board: Board) -> Iterator[Record]:
    """One record for each run and set: what all tables are made of."""
    for run in board.runs:
        for which in board.sets:
            if which in run.metrics:
                yield {
                    "run": run.place.name,
                    **run.place._asdict(),
                    "set": which,
                    **run.metrics[which][OVERALL.part],
                    "seconds": run.seconds,
                    "peak_memory": run.peak_memory,
                    "images_per_second": run.images_per_second,
                    **run.conditions,
                }


def _csv(records: Iterable[Record]) -> str:
    rows = list(records)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
