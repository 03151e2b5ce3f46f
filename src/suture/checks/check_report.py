"""The result of `suture check`, as values, JSON and text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from suture.checks.problems import OPEN_QUESTION, Problem
from suture.core.text import listed, number
from suture.data.dataset import SPLITS

IGNORED = "(ignored)"
"""The row of the class table for pixels that take no part."""
_STYLES = {"fatal": "bold red", "warning": "yellow", "note": "cyan"}


@dataclass(frozen=True)
class ClassCount:
    """Pixels of a class in one split, and the frames, videos and cases that show it."""

    pixels: int
    frames: int
    videos: int
    cases: int


@dataclass(frozen=True)
class VideoSummary:
    """One video in numbers."""

    id: str
    case: str
    split: str | None
    frames: int
    excluded: int
    labelled: int
    size: tuple[int, int] | None
    """Width and height; None where no frame could be read."""
    view: dict[str, Any] | None
    """None: the whole frame, or not looked for yet."""
    shots: int | None
    """None: not counted yet."""


@dataclass(frozen=True)
class DatasetSummary:
    """A dataset in numbers, and the notes of its source."""

    name: str
    protocol: str
    videos: list[VideoSummary]
    notes: list[str]

    @property
    def cases(self) -> int:
        return len({video.case for video in self.videos})

    @property
    def frames(self) -> int:
        return sum(video.frames for video in self.videos)

    @property
    def labelled(self) -> int:
        return sum(video.labelled for video in self.videos)

    @property
    def shots(self) -> int | None:
        """The number of shots; None until every frame has been read."""
        counts = [video.shots for video in self.videos if video.shots is not None]
        return sum(counts) if counts else None


@dataclass(frozen=True)
class CheckReport:
    """The result of `check`."""

    summary: DatasetSummary
    class_table: dict[str, dict[str, ClassCount]]
    """Class name → split ("" for none) → counts; the last row is `IGNORED`."""
    problems: list[Problem]
    read: int
    """Frames that were read."""
    complete: bool
    """True if every frame was read."""
    seconds: float

    @property
    def fatal(self) -> bool:
        """True if training on this dataset would fail or give wrong scores."""
        return any(problem.severity == "fatal" for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """Convert everything to plain values."""
        return asdict(self) | {"fatal": self.fatal, "seconds": round(self.seconds, 2)}

    def print(self, console: Console) -> None:
        """Print an overview, the table of classes and the problems; of a quick check the problems only."""
        overview = list(_overview(self.summary))
        if not self.complete:
            console.print(overview[0], highlight=False)
            frames = number(self.summary.frames, "frame")
            console.print(Text(f"Quick check of {self.read:,} of {frames}; the check of all frames follows.", "dim"))
            for problem in self.problems:
                console.print(Text.assemble((problem.severity, _STYLES[problem.severity]), f"  {problem.what}"))
            return
        for line in overview:
            console.print(line, highlight=False)
        if any(count.frames for row in self.class_table.values() for count in row.values()):
            console.print()
            console.print(_class_table(self.class_table))
        console.print()
        if self.problems:
            console.print(_problem_list(self.problems), highlight=False)
            console.print()
        console.print(_verdict(self.problems), highlight=False)


def _overview(summary: DatasetSummary) -> Iterator[Text]:
    protocol = f" ({summary.protocol})" if summary.protocol not in ("default", summary.name) else ""
    shots = f", {number(summary.shots, 'shot')}" if summary.shots else ""
    share = summary.labelled / max(1, summary.frames)
    yield Text.assemble(
        (summary.name, "bold"),
        f"{protocol}: {number(summary.cases, 'case')}, {number(len(summary.videos), 'video')}{shots}, ",
        f"{number(summary.frames, 'frame')}, {summary.labelled:,} labelled ({share:.1%})",
    )
    parts = []
    for split in (*SPLITS, None):
        if videos := [video for video in summary.videos if video.split == split]:
            frames = number(sum(video.frames for video in videos), "frame")
            count = f"{number(len(videos), 'video')}, {frames} ({sum(v.labelled for v in videos):,} labelled)"
            parts.append(f"{split or 'no split'} {count}")
    yield Text(" · ".join(parts))
    sizes = sorted({"×".join(map(str, video.size)) for video in summary.videos if video.size})
    facts = [f"frames of {listed(sizes, 3)}"] if sizes else []
    if smaller := sum(video.view is not None for video in summary.videos):
        facts.append(f"view smaller than the frame in {number(smaller, 'video')}")
    if excluded := sum(video.excluded for video in summary.videos):
        facts.append(f"{number(excluded, 'frame')} excluded")
    yield Text(" · ".join(facts))
    for note in summary.notes:
        yield Text(note, "dim")


def _class_table(rows: Mapping[str, Mapping[str, ClassCount]]) -> Table:
    """One row per class and split."""
    totals = Counter[str]()
    for row in rows.values():
        totals.update({split: count.pixels for split, count in row.items()})
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("class", overflow="fold")
    table.add_column("split")
    for name in ("pixels", "frames", "videos", "cases"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for name, row in rows.items():
        if name == IGNORED and not any(count.pixels for count in row.values()):
            continue
        for position, (split, count) in enumerate(row.items()):
            share = f"{count.pixels / totals[split]:.2%}" if count.pixels else "–"
            cells = [f"{value:,}" if value else "–" for value in (count.frames, count.videos, count.cases)]
            label = Text("" if position else name)
            table.add_row(label, split or "no split", share, *cells, style="dim" if name == IGNORED else None)
    return table


def _problem_list(problems: Sequence[Problem]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for problem in problems:
        grid.add_row(Text(problem.severity, _STYLES[problem.severity]), Text(problem.what, "bold"))
        if problem.first:
            grid.add_row("", Text.assemble(("first: ", "dim"), problem.first))
        grid.add_row("", Text.assemble(("fix:   ", "dim"), problem.fix))
    return grid


def _verdict(problems: Sequence[Problem]) -> Text:
    counts = Counter(problem.severity for problem in problems)
    if {problem.code for problem in problems if problem.severity == "fatal"} == {OPEN_QUESTION}:
        return Text("1 question to answer before training: what do unpainted pixels mean?", "bold red")
    if counts["fatal"]:
        return Text(f"{number(counts['fatal'], 'fatal problem')}: fix before training.", "bold red")
    if counts["warning"]:
        return Text(f"No fatal problem; {number(counts['warning'], 'warning')} to review.", "yellow")
    return Text("No fatal problem." if problems else "No problems found.", "green")
