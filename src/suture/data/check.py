"""`suture check`: what is here, what would ruin a night of training, and how to mend it.

The first findings come from the index and a few frames within seconds; then every frame and mask is read once, on all
cores. What was read are facts (`suture.data.facts`), on which `suture.data.problems` judges.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from suture.data.dataset import SPLITS, Dataset, Video
from suture.data.facts import Chunk, FrameFacts, chunks, frame_facts, in_parallel
from suture.data.problems import Evidence, Problem, judge, number
from suture.data.sources import load_dataset
from suture.data.view import View

_STYLES = {"fatal": "bold red", "warning": "yellow", "note": "cyan"}
_QUICK_SECONDS = 3.0
_SMALL = 64
"""Frames up to which starting processes costs more than it gains."""
IGNORED = "(ignored)"
"""The row of the class table for pixels that take no part."""


@dataclass(frozen=True)
class ClassCount:
    """How much of a class there is in one split."""

    pixels: int = 0
    frames: int = 0
    videos: int = 0
    cases: int = 0


@dataclass
class Summary:
    """What is here."""

    name: str
    protocol: str
    cases: int
    videos: int
    frames: int
    excluded: int
    labelled: int
    shots: int | None
    """None until every frame has been read."""
    sizes: dict[str, int]
    """Videos per frame size."""
    views: dict[str, int]
    """Videos per kind of view: whole frame, rectangle, circle."""
    splits: dict[str, dict[str, int]]
    """Cases, videos, frames and labelled frames of each split."""
    notes: list[str]

    @property
    def labelled_share(self) -> float:
        return self.labelled / self.frames if self.frames else 0.0


@dataclass
class CheckReport:
    """What `check` found."""

    summary: Summary
    class_table: dict[str, dict[str, ClassCount]]
    """Class name → split → counts; the last row, `IGNORED`, holds the pixels that take no part."""
    problems: list[Problem]
    complete: bool
    """Whether every frame was read; else these are the first findings."""
    seconds: float

    @property
    def fatal(self) -> bool:
        """Whether training on this would be a night lost."""
        return any(problem.severity == "fatal" for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "complete": self.complete,
            "fatal": self.fatal,
            "seconds": round(self.seconds, 2),
            "summary": asdict(self.summary) | {"labelled_share": round(self.summary.labelled_share, 6)},
            "classes": {
                name: {split: asdict(count) for split, count in row.items()} for name, row in self.class_table.items()
            },
            "problems": [
                asdict(problem) | {"first": problem.first, "places": list(problem.places)} for problem in self.problems
            ],
        }

    def print(self, console: Console) -> None:
        """An overview, one table of classes, one list of problems; of first findings, only what they are."""
        for line in _overview(self.summary):
            console.print(line, highlight=False)
        if not self.complete:
            for problem in self.problems:
                console.print(Text.assemble((problem.severity, _STYLES[problem.severity]), f"  {problem.what}"))
            return
        if any(count.frames for row in self.class_table.values() for count in row.values()):
            console.print()
            console.print(_class_table(self.class_table, console.width))
        console.print()
        console.print(_problem_list(self.problems), highlight=False)


def check(
    dataset: Dataset | str | Path,
    full: bool = True,
    workers: int | None = None,
    progress: bool = True,
    on_quick: Callable[[CheckReport], None] | None = None,
) -> CheckReport:
    """Say what a dataset holds and what is wrong with it.

    `on_quick` is given the first findings within seconds; with `full`, every frame and mask is then read in `workers`
    processes (default: one per core). Mistakes in single files are collected, never raised.

    >>> check("../shared/data/vocalfolds", progress=False).fatal  # doctest: +SKIP
    False
    """
    start = time.monotonic()
    if not isinstance(dataset, Dataset):
        dataset = load_dataset(dataset)
    report = _report(Evidence(dataset, _sample(dataset), complete=False), {}, start)
    if on_quick:
        on_quick(report)
    if full:
        workers = workers or _cores()
        views = _views(dataset, workers, progress)
        report = _report(Evidence(dataset, _read_all(dataset, views, workers, progress), complete=True), views, start)
    return report


def _sample(dataset: Dataset) -> dict[str, list[FrameFacts]]:
    """A few frames of each video, as many as can be read in a few seconds: labelled ones, from all over it."""
    deadline = time.monotonic() + _QUICK_SECONDS
    facts: dict[str, dict[int, FrameFacts]] = {video.id: {} for video in dataset}
    candidates = {video.id: video.with_mask or video.usable for video in dataset}
    wanted = [(video, part) for part in (0.0, 0.5, 1.0, 0.25, 0.75) for video in dataset if candidates[video.id]]
    for video, part in wanted:
        index = candidates[video.id][round(part * (len(candidates[video.id]) - 1))]
        if index not in facts[video.id]:
            chunk = Chunk(video.id, video.file, (video.frames[index],), dataset.classes, None)
            facts[video.id][index] = frame_facts(chunk)[0]
        if time.monotonic() > deadline:
            break
    return {video: [found[index] for index in sorted(found)] for video, found in facts.items()}


def _read_all(dataset: Dataset, views: Mapping[str, View], workers: int, progress: bool) -> dict[str, list[FrameFacts]]:
    """The facts of every usable frame."""
    # A fresh copy of the class table, without the lookup arrays that would travel with every piece of work.
    classes = replace(dataset.classes)
    work = [chunk for video in dataset for chunk in chunks(video, video.usable, classes, views.get(video.id))]
    total = sum(len(chunk.frames) for chunk in work)
    facts: dict[str, list[FrameFacts]] = {video.id: [] for video in dataset}
    with _progress(progress) as bar:
        task = bar.add_task("reading every frame", total=total)
        for chunk, found in in_parallel(frame_facts, work, workers if total > _SMALL else 1):
            crashed = "the decoder crashed here"
            facts[chunk.video] += found or [FrameFacts(chunk.video, f.index, error=crashed) for f in chunk.frames]
            bar.advance(task, len(chunk.frames))
    return {video: sorted(found, key=lambda frame: frame.index) for video, found in facts.items()}


def _views(dataset: Dataset, workers: int, progress: bool) -> dict[str, View]:
    """Each video's view, found in its frames where that is asked for."""
    unknown = [video for video in dataset if video.view_setting == "auto" and video.usable]
    views = {video.id: video.view_setting for video in dataset if isinstance(video.view_setting, View)}
    with _progress(progress and bool(unknown)) as bar:
        task = bar.add_task("finding the views", total=len(unknown))
        for video, view in in_parallel(_view, unknown, workers if len(unknown) > 4 else 1):
            if view is not None:
                views[video.id] = view
            bar.advance(task)
    return views


def _view(video: Video) -> View | None:
    """The view; None where it is the whole frame, or the frames do not decode, which is told elsewhere."""
    try:
        return video.view if video.view != View(0, 0, *video.size) else None
    except Exception:
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _progress(shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)


def _report(evidence: Evidence, views: Mapping[str, View], start: float) -> CheckReport:
    return CheckReport(
        _summary(evidence, views),
        _count_classes(evidence),
        judge(evidence),
        evidence.complete,
        time.monotonic() - start,
    )


def _summary(evidence: Evidence, views: Mapping[str, View]) -> Summary:
    dataset = evidence.dataset
    sizes = Counter(
        "×".join(map(str, frames[0].size)) for frames in evidence.facts.values() if frames and frames[0].size
    )
    kinds = Counter(_kind(views.get(video.id)) for video in dataset)
    return Summary(
        dataset.name,
        dataset.protocol,
        len(dataset.cases),
        len(dataset.videos),
        sum(len(video) for video in dataset),
        sum(len(video) - len(video.usable) for video in dataset),
        sum(len(video.with_mask) for video in dataset),
        None,
        dict(sizes),
        dict(kinds) if evidence.complete else {},
        {split: _count_split(videos) for split in (*SPLITS, "") if (videos := _of_split(dataset, split))},
        list(dataset.notes),
    )


def _kind(view: View | None) -> str:
    if view is None:
        return "whole frame"
    return "circle" if view.circle else "rectangle"


def _of_split(dataset: Dataset, split: str) -> list[Video]:
    return [video for video in dataset if (video.split or "") == split]


def _count_split(videos: Sequence[Video]) -> dict[str, int]:
    return {
        "cases": len({video.case for video in videos}),
        "videos": len(videos),
        "frames": sum(len(video) for video in videos),
        "labelled": sum(len(video.with_mask) for video in videos),
    }


def _count_classes(evidence: Evidence) -> dict[str, dict[str, ClassCount]]:
    """Pixels of each class in each split, and in how many frames, videos and cases they are."""
    dataset = evidence.dataset
    names = (*dataset.classes.names, IGNORED)
    splits = [split for split in (*SPLITS, "") if _of_split(dataset, split)]
    table: dict[str, dict[str, ClassCount]] = {name: {} for name in names}
    for split in splits:
        counted = [
            (dataset[frame.video], frame.mask.pixels)
            for frame in evidence.frames
            if frame.mask and frame.mask.pixels is not None and (dataset[frame.video].split or "") == split
        ]
        for position, name in enumerate(names):
            videos = [video for video, pixels in counted if pixels[position]]
            table[name][split] = ClassCount(
                sum(int(pixels[position]) for _, pixels in counted),
                len(videos),
                len({video.id for video in videos}),
                len({video.case for video in videos}),
            )
    return table


def _overview(summary: Summary) -> Iterator[Text]:
    """What it is in one line, and what it is made of in two or three."""
    protocol = f" ({summary.protocol})" if summary.protocol not in ("default", summary.name) else ""
    shots = f", {number(summary.shots, 'shot')}" if summary.shots else ""
    excluded = f", {summary.excluded:,} excluded" if summary.excluded else ""
    yield Text.assemble(
        (summary.name, "bold"),
        f"{protocol}: {number(summary.cases, 'case')}, {number(summary.videos, 'video')}{shots}, ",
        f"{number(summary.frames, 'frame')}{excluded}, {summary.labelled:,} labelled ({summary.labelled_share:.1%})",
    )
    yield Text(
        " · ".join(
            f"{split or 'no split'}: {number(count['videos'], 'video')}, {number(count['frames'], 'frame')}, "
            f"{count['labelled']:,} labelled"
            for split, count in summary.splits.items()
        )
    )
    sizes = _shares(summary.sizes)
    yield Text(f"frames {sizes}" + (f" · view: {_shares(summary.views)}" if summary.views else ""))
    for note in summary.notes:
        yield Text(note, "dim")


def _shares(counts: Mapping[str, int]) -> str:
    """`512×512`, or `512×512 (3 videos), 640×480 (1 video)`."""
    if len(counts) == 1:
        return next(iter(counts))
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(f"{name} ({number(count, 'video')})" for name, count in ordered[:3]) + more


def _class_table(rows: Mapping[str, Mapping[str, ClassCount]], width: int) -> Table:
    """One row per class with the splits side by side, or below each other where the terminal is too narrow for that."""
    splits = [split for split in next(iter(rows.values())) if any(row[split].frames for row in rows.values())]
    totals = {split: sum(row[split].pixels for row in rows.values()) or 1 for split in splits}
    head = ("pixels", "frames", "videos", "cases")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("class", overflow="fold")
    beside = width >= 18 + 31 * len(splits)
    for split in splits if beside else [None]:
        if split is None:
            table.add_column("split")
        for position, name in enumerate(head):
            title = f"{split or 'no split'}\n{name}" if split is not None and position == 0 else f"\n{name}"
            table.add_column(title if beside else name, justify="right", no_wrap=True)

    def cells(name: str, split: str) -> list[str]:
        count = rows[name][split]
        share = f"{count.pixels / totals[split]:.2%}" if count.pixels else "–"
        return [share, *(f"{value:,}" if value else "–" for value in (count.frames, count.videos, count.cases))]

    for name in rows:
        style = "dim" if name == IGNORED else None
        if beside:
            table.add_row(name, *(cell for split in splits for cell in cells(name, split)), style=style)
        else:
            for position, split in enumerate(splits):
                table.add_row("" if position else name, split or "no split", *cells(name, split), style=style)
    return table


def _problem_list(problems: Sequence[Problem]) -> Table | Text:
    if not problems:
        return Text("No problems found.", "green")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for problem in problems:
        text = Text(problem.what, "bold")
        if problem.first:
            text.append("\nfirst: ", "dim not bold").append(problem.first, "not bold")
        text.append("\nmend:  ", "dim not bold").append(problem.mend, "not bold")
        grid.add_row(Text(problem.severity, _STYLES[problem.severity]), text)
    return grid
