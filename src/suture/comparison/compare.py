"""`suture compare`: plan, train what is missing, write the tables."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from suture.comparison.board import boards
from suture.comparison.effects import effects_table
from suture.comparison.plan import ComparisonPlan, PlannedRun, read_plan, require_unchanged
from suture.comparison.queue import Queue, QueueOutcome, is_finished, parse_devices
from suture.comparison.results import MISSING, UNSCORED, Results, config_digest, merged, read_results
from suture.comparison.score_charts import score_charts
from suture.comparison.tables import against_table, primary_table, tables_of
from suture.core.errors import UserError
from suture.core.io import write_bytes, write_text
from suture.core.progress import waiting
from suture.core.text import listed, number
from suture.training.run_folder import Run
from suture.web.page import render_page
from suture.web.table import Table

MAX_NAMED_RUNS = 4


def compare(
    file: Path,
    out: Path | None = None,
    devices: str | None = None,
    jobs: int = 1,
    minutes: float | None = None,
    only: Collection[str] = (),
    collect: Path | None = None,
    console: Console | None = None,
) -> QueueOutcome:
    """Train every run of a comparison file that is not finished, and write the tables of those that are.

    Args:
        file: The comparison file.
        out: Folder of runs and tables; by default `runs/NAME`.
        devices: `cpu`, or GPU numbers such as `0,1`; by default all GPUs.
        jobs: Runs at a time on each device.
        minutes: Start no run that would not end within this time.
        only: Methods or runs to train; the tables show all.
        collect: Folder for `NAME.csv` and `NAME.md`, written again after each run.
        console: Where progress goes.

    >>> compare(Path("ratios.yaml"), devices="0,1", jobs=2, minutes=55, only=["dmt"])  # doctest: +SKIP
    """
    console = console or Console(stderr=True)
    plan = read_plan(file)
    wanted = plan.only(only)
    out = out or default_folder(file)
    if jobs < 1:
        raise UserError(f"--jobs is {jobs}, expected 1 or more.")
    chosen = parse_devices(devices)

    earlier = _collected(plan, collect)
    known = {run.key for run in earlier.runs} if earlier else set()
    wanted = replace(wanted, runs=tuple(run for run in wanted.runs if run.key not in known))

    def keep() -> None:
        if collect is not None:
            try:
                results = read_results(out)
                write_results(merged(results, earlier) if earlier else results, collect, plan.title)
            except (UserError, OSError) as error:  # the runs are still there, and others go on
                _print(console, f"Not collected: {error}")

    with Run(out).locked():
        require_unchanged(plan, out)
        _check_first([run for run in wanted.runs if not is_finished(out, run.name)], file, console)
        plan.write(out)
        if any(is_finished(out, run.name) for run in plan.runs):
            keep()
        outcome = Queue(wanted, out, chosen, jobs, minutes, keep, console).train()
        if any(is_finished(out, run.name) and run.name not in outcome.failed for run in plan.runs):
            show_tables(out, out, console)
    if outcome.left:
        left = number(len(outcome.left), "run")
        _print(console, f"Not finished in time: {left}; start the same command again to continue.")
    return outcome


def _collected(plan: ComparisonPlan, folder: Path | None) -> Results | None:
    """Read the runs that earlier commands have collected; they are finished."""
    path = folder / f"{plan.title}.csv" if folder else None
    if path is None or not path.exists():
        return None
    results = read_results(path)
    digests = {run.key: config_digest(run.config.model_dump(mode="json")) for run in plan.runs}
    changed = [run.key.name for run in results.runs if run.facts["config"] != digests.get(run.key, "")]
    if changed:
        named = listed(changed, MAX_NAMED_RUNS)
        raise UserError(f"{path} holds runs that are not in the plan, or with other settings ({named}): move it away.")
    return results


def default_folder(file: Path) -> Path:
    """Folder of a comparison's runs by default."""
    return Path("runs") / file.stem


def list_runs(plan: ComparisonPlan, out: Path) -> Table:
    """Make a table of the runs and their states."""
    states = {run.name: _state(out, run.name) for run in plan.runs}
    finished = sum(state == "finished" for state in states.values())
    title = f"{number(len(states), 'run')}, {finished} finished in {out}"
    return Table.of_text(["run", "state"], list(states.items()), title=title)


def show_tables(
    path: Path, out: Path | None, console: Console, only: Collection[str] = (), against: str | None = None
) -> None:
    """Write the tables of a results CSV or of the finished runs in a folder, and print the scores.

    Args:
        path: The CSV or the folder.
        out: Folder of the tables; by default `path`, or `NAME.md` beside the CSV.
        console: Where the scores go.
        only: Methods to compare with `against`; by default the proposed one.
        against: Print every score of these methods against this one, and write nothing.
    """
    with waiting("Reading the runs and making their tables", console):
        results = read_results(path)
        written = [] if against else write_tables(results, out or path)
    for board in boards(results):
        if not against:
            _print_table(primary_table(board), console)
        for method in (only or [board.proposed]) if against else ():
            table = against_table(board, method, against or "")
            if table is None:
                raise UserError(f"{board.title} has no labelling and seed of both {method} and {against}.")
            _print_table(table, console)
    if not against:
        for line in (*remarks(results), f"Tables: {', '.join(map(str, written))}"):
            _print(console, line)


def write_tables(results: Results, out: Path) -> list[Path]:
    """Write `NAME.md` beside a results CSV, or every form of the tables into a folder."""
    if out.suffix == ".csv":
        write_text(out.with_suffix(".md"), to_markdown(results))
        return [out.with_suffix(".md")]
    write_results(results, out, "results")
    tables, charts = all_tables(results), score_charts(boards(results))
    content: dict[str, Any] = {"title": results.title, "remarks": remarks(results), "tables": tables, "charts": charts}
    write_text(out / "results.html", render_page("comparison.html", "suture.comparison", **content))
    latex = ["% needs \\usepackage{booktabs,adjustbox}", *(table.to_latex() for table in tables), ""]
    write_text(out / "results.tex", "\n".join(latex))
    for chart in charts:
        write_bytes(out / f"{chart.name}.png", chart.png)
    return [out / f"results.{ending}" for ending in ("html", "csv", "md", "tex")]


def write_results(results: Results, out: Path, name: str) -> None:
    """Write `NAME.csv` and `NAME.md`, which is all that needs to be kept of a comparison."""
    results.write_csv(out / f"{name}.csv")
    write_text(out / f"{name}.md", to_markdown(results))


def all_tables(results: Results) -> list[Table]:
    """Make the tables of every dataset, and that of effects."""
    effects = effects_table(results)
    return [*(table for board in boards(results) for table in tables_of(board)), *([effects] if effects else [])]


def to_markdown(results: Results) -> str:
    """Write all tables as Markdown."""
    tables = [table.to_markdown() for table in all_tables(results)]
    return "\n\n".join([f"## {results.title}", *remarks(results), *tables]) + "\n"


def remarks(results: Results) -> list[str]:
    """Name the runs that the tables lack, and why."""
    by_problem: dict[str, list[str]] = {}
    for key, problem in results.problems.items():
        by_problem.setdefault(_without_folders(problem), []).append(key.name)
    titles = {MISSING: "Not finished", UNSCORED: "Nothing scored"}
    return [
        f"{titles.get(problem, f'Failed ({problem})')}: {len(names)} of {len(results.keys)} runs "
        f"({listed(names, MAX_NAMED_RUNS)})."
        for problem, names in by_problem.items()
    ]


def _check_first(runs: Sequence[PlannedRun], file: Path, console: Console) -> None:
    """Print which runs would fail, and raise if a path leads nowhere or no run would be left."""
    from suture.comparison.preflight import missing_paths, unfit_models  # imports Lightning

    missing, unfit = missing_paths(runs), unfit_models(runs)
    lines = [f"{listed(names, MAX_NAMED_RUNS)}: {sentence}" for sentence, names in unfit.items()]
    if missing or (runs and sum(map(len, unfit.values())) == len(runs)):
        raise UserError("\n".join(f"{file}: {mistake}" for mistake in (*missing, *lines)))
    for line in lines:
        _print(console, f"will fail: {line}")


def _state(out: Path, name: str) -> str:
    begun = "begun" if (out / "runs" / name / "config.yaml").exists() else "–"
    return "finished" if is_finished(out, name) else begun


def _print_table(table: Table, console: Console) -> None:
    console.print(table.to_terminal())
    for note in table.notes:
        console.print(note, markup=False, highlight=False)


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _without_folders(sentence: str) -> str:
    """Reduce paths in a sentence to file names: folders may hold a patient's name.

    Folders may hold blanks, so everything up to the last separator goes.

    >>> _without_folders("cannot read /data/Doe, John/videos/case01.mp4: copy it again.")
    'cannot read case01.mp4: copy it again.'
    """
    return re.sub(r"\S*[/\\](.*[/\\])?", "", sentence)
