"""`suture check`: what is here, what would ruin a night of training, and how to mend it.

The first findings come from the index and a few frames within seconds; then every frame and mask is read once, on all
cores. What was read are facts (`suture.checks.measurements`), on which `suture.checks.problems` judges.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from suture.checks.measurements import Chunk, FrameFacts, chunks, found_view, frame_facts, in_parallel, mask_facts
from suture.checks.problems import ASKED, JUDGES_OF_MASKS, UNLABELLED, Evidence, Problem, judge, nothing_to_learn
from suture.core.errors import UserError
from suture.core.progress import ProgressBar
from suture.core.text import listed, number
from suture.core.workers import cores
from suture.data.dataset import SPLITS, Dataset, Split, Video, WrongMask
from suture.data.datasets import load_dataset
from suture.data.find_view import VIEW_FRAMES
from suture.data.labelling import all_masks
from suture.data.shots import shots_of_frames
from suture.data.view import View

IGNORED = "(ignored)"
"""The row of the class table for pixels that take no part; it is shown where there are any."""
FEW = 1000
"""Frames that are all read so soon that first findings would only be said twice."""
_STYLES = {"fatal": "bold red", "warning": "yellow", "note": "cyan"}
_QUICK_SECONDS = 3.0
_LOOKED_AT = 64
"""Masks that a training reads of those that it does not learn from: seconds, where all may take an hour."""
_SOME = 3
"""Videos that a line names of many."""
_SMALL = 64
"""Frames up to which starting processes costs more than it gains."""


@dataclass(frozen=True)
class ClassCount:
    """How much of a class there is in one split."""

    pixels: int
    frames: int
    videos: int
    cases: int


@dataclass(frozen=True)
class VideoSummary:
    """What one video is."""

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
    """What is here."""

    name: str
    protocol: str
    videos: list[VideoSummary]
    notes: list[str]
    """What the source found and did."""

    @property
    def cases(self) -> int:
        return len({video.case for video in self.videos})

    @property
    def frames(self) -> int:
        return sum(video.frames for video in self.videos)

    @property
    def labelled(self) -> int:
        return sum(video.labelled for video in self.videos)

    def labelled_in(self, split: Split | None) -> int:
        return sum(video.labelled for video in self.videos if video.split == split)

    @property
    def labelled_share(self) -> float:
        return self.labelled / self.frames if self.frames else 0.0

    @property
    def shots(self) -> int | None:
        """None until every frame has been read."""
        counted = [video.shots for video in self.videos if video.shots is not None]
        return sum(counted) if counted else None


@dataclass(frozen=True)
class CheckReport:
    """What `check` found."""

    summary: DatasetSummary
    class_table: dict[str, dict[str, ClassCount]]
    """Class name → split ("" for none) → counts; the last row, `IGNORED`, holds the pixels that take no part."""
    problems: list[Problem]
    read: int
    """How many frames were read: what is counted in masks and frames is counted in these."""
    complete: bool
    """Whether every frame was read; else these are the first findings."""
    seconds: float

    @property
    def fatal(self) -> bool:
        """Whether training on this would be a night lost."""
        return any(problem.severity == "fatal" for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        summary = self.summary
        return {
            "name": summary.name,
            "protocol": summary.protocol,
            "read": self.read,
            "complete": self.complete,
            "fatal": self.fatal,
            "seconds": round(self.seconds, 2),
            "cases": summary.cases,
            "frames": summary.frames,
            "labelled": summary.labelled,
            "labelled_share": round(summary.labelled_share, 6),
            "shots": summary.shots,
            "videos": [asdict(video) for video in summary.videos],
            "classes": {
                name: {split: asdict(count) for split, count in row.items()} for name, row in self.class_table.items()
            },
            "problems": [asdict(problem) | {"first": problem.first} for problem in self.problems],
            "notes": summary.notes,
        }

    def print(self, console: Console) -> None:
        """An overview, one table of classes, one list of problems; of first findings, only what they are."""
        overview = _overview(self.summary)
        if not self.complete:
            console.print(next(overview), highlight=False)
            frames = number(self.summary.frames, "frame")
            console.print(Text(f"A first look, at {self.read:,} of {frames}; what all of them hold follows.", "dim"))
            for problem in self.problems:
                console.print(Text.assemble((problem.severity, _STYLES[problem.severity]), f"  {problem.what}"))
            return
        for line in overview:
            console.print(line, highlight=False)
        if any(count.frames for row in self.class_table.values() for count in row.values()):
            console.print()
            console.print(_class_table(self.class_table, console.width))
        console.print()
        if self.problems:
            console.print(_problem_list(self.problems), highlight=False)
            console.print()
        console.print(_verdict(self.problems), highlight=False)


def check(
    dataset: Dataset | str | Path,
    full: bool = True,
    workers: int | None = None,
    progress: bool = True,
    on_quick: Callable[[CheckReport], None] | None = None,
) -> CheckReport:
    """Say what a dataset holds and what is wrong with it.

    `on_quick` is given the first findings within seconds; with `full`, every frame and mask is then read in `workers`
    processes (default: one per core), which import the calling script anew, so it needs its
    `if __name__ == "__main__"`. Mistakes in single files are collected, never raised.

    >>> check("../shared/data/vocalfolds", progress=False).fatal  # doctest: +SKIP
    False
    """
    start = time.monotonic()
    if not isinstance(dataset, Dataset):
        dataset = load_dataset(dataset)
    dataset, broken = _without_broken(dataset)
    report = _report(Evidence(dataset, _sample(dataset), False, broken), {}, {}, start)
    if on_quick:
        on_quick(report)
    if full:
        workers = workers or cores()
        views = _views(dataset, workers, progress)
        facts, shots = _read_all(dataset, views, workers, progress)
        report = _report(Evidence(dataset, facts, True, broken), views, shots, start)
    return report


def require_labels(dataset: Dataset) -> None:
    """Where no training frame has a mask, say why and what to do, as the first findings do."""
    if all_masks(dataset).count:
        return
    for problem in check(dataset, full=False).problems:
        if problem.code in UNLABELLED:
            raise _refusal(dataset, problem)


def require_classes_to_learn(dataset: Dataset, shown: Sequence[str], labelled: int) -> None:
    """Where so many labels show no class, or a single one, a training would end with perfect scores of nothing."""
    if problem := nothing_to_learn(shown):
        others = all_masks(dataset).count - labelled
        choose = f"; or choose more of the frames that have masks (data.labelling leaves {others} out)"
        raise _refusal(dataset, replace(problem, fix=problem.fix + choose) if others > 0 else problem)


def validate_masks(dataset: Dataset, frames: Sequence[tuple[str, int]]) -> None:
    """Look at the headers of all masks of frames that are only scored, and read some of them, from all over: what is
    wrong would be told when the training is far, or done."""
    try:
        for video, index in _from_all_over(frames):
            dataset.read_mask(dataset[video], index)
        with ThreadPoolExecutor() as threads:  # a network disk answers many questions at once
            list(threads.map(lambda place: dataset.validate_mask_header(dataset[place[0]], place[1]), frames))
    except WrongMask as error:
        raise as_check_reports(dataset, error) from error


def as_check_reports(dataset: Dataset, error: WrongMask) -> UserError:
    """What is wrong with a mask, with the words and the mend that `check` has for it and for others like it.

    All masks count, as a user counts them; where that would take long, some do, and how many is said.
    """
    masks = [(video.id, index) for video in dataset for index in video.with_mask]
    some = {error.place, *_from_all_over(masks)}
    facts: dict[str, list[FrameFacts]] = {video.id: [] for video in dataset}
    for video, index in sorted(some):
        mask = mask_facts(dataset[video].masks[index], dataset.classes, None)
        facts[video].append(FrameFacts(video, index, size=dataset[video].size_of(index), mask=mask))
    problems = (problem for look in JUDGES_OF_MASKS for problem in look(Evidence(dataset, facts, False)))
    fatal = next((problem for problem in problems if problem.severity == "fatal"), None)
    told = _refusal(dataset, fatal) if fatal else error
    if len(some) == len(masks):
        return told
    return UserError(
        f"{told} For this, {len(some):,} of {number(len(masks), 'mask')} were read; `suture check {dataset.root}` "
        "reads all of them."
    )


def _from_all_over(frames: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """So many of them as can be read within seconds."""
    count = min(len(frames), _LOOKED_AT)
    return [frames[place * len(frames) // count] for place in range(count)]


def _refusal(dataset: Dataset, problem: Problem) -> UserError:
    first = f" (first: {problem.first})" if problem.first else ""
    return UserError(f"{dataset.root}: {problem.what}{first}; {problem.fix}.")


def _without_broken(dataset: Dataset) -> tuple[Dataset, dict[str, str]]:
    """The dataset without the video files that cannot even be listed, and what is wrong with those."""

    def trouble(video: Video) -> str:
        try:
            video.usable  # noqa: B018  # asks for the length of the file
        except UserError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor() as threads:
        found = dict(zip((video.id for video in dataset), threads.map(trouble, dataset), strict=True))
    broken = {video: error for video, error in found.items() if error}
    if len(broken) == len(dataset.videos):
        raise UserError(next(iter(broken.values())))
    return replace(dataset, videos=[video for video in dataset if video.id not in broken]), broken


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


def _views(dataset: Dataset, workers: int, progress: bool) -> dict[str, View]:
    """The views that are not the whole frame, found in the frames where that is asked for."""
    unknown = [video for video in dataset if video.view_setting == "auto" and video.usable]
    views = {video.id: video.view_setting for video in dataset if isinstance(video.view_setting, View)}
    with ProgressBar(show=progress and bool(unknown)) as bar:
        task = bar.add_task("finding the views", total=len(unknown))
        for video, view in in_parallel(found_view, unknown, workers if len(unknown) * VIEW_FRAMES > _SMALL else 1):
            if view is not None:
                views[video.id] = view
            bar.advance(task)
    return views


def _read_all(
    dataset: Dataset, views: Mapping[str, View], workers: int, progress: bool
) -> tuple[dict[str, list[FrameFacts]], dict[str, int]]:
    """The facts of every usable frame, and the number of shots of each video."""
    # A fresh copy of the class table, without the lookup arrays that would travel with every piece of work.
    classes = replace(dataset.classes)
    work = [chunk for video in dataset for chunk in chunks(video, video.usable, classes, views.get(video.id))]
    left = Counter(chunk.video for chunk in work)
    total = sum(len(chunk.frames) for chunk in work)
    facts: dict[str, list[FrameFacts]] = {video.id: [] for video in dataset}
    shots: dict[str, int] = {}
    with ProgressBar(show=progress) as bar:
        task = bar.add_task("reading every frame", total=total)
        for chunk, found in in_parallel(frame_facts, work, workers if total > _SMALL else 1):
            video = chunk.video
            crashed = "the decoder crashed here"
            facts[video] += found or [FrameFacts(video, frame.index, error=crashed) for frame in chunk.frames]
            left[video] -= 1
            if not left[video]:
                facts[video].sort(key=lambda frame: frame.index)
                shots[video] = _count_shots(dataset[video], facts[video], views.get(video))
            bar.advance(task, len(chunk.frames))
    return facts, shots


def _count_shots(video: Video, facts: Sequence[FrameFacts], view: View | None) -> int:
    """Count the shots by the thumbnails, which then shrink to what the judges need: there may be a million of them."""
    read = [(frame, frame.thumb) for frame in facts if frame.thumb is not None]
    if not read:
        return 0
    numbers = [video.frames[frame.index].number for frame, _ in read]
    inside = view.crop(view.mask(view.x + view.width, view.y + view.height)) if view else None
    pictures = (np.repeat(thumb[..., None], 3, axis=2) for _, thumb in read)
    indices = [frame.index for frame, _ in read]
    shots = shots_of_frames(pictures, numbers, indices, inside, torn=video.torn(indices))
    for frame, thumb in read:
        frame.thumb = cv2.resize(thumb, (16, 16), interpolation=cv2.INTER_AREA)
    return len(shots)


def _report(evidence: Evidence, views: Mapping[str, View], shots: Mapping[str, int], start: float) -> CheckReport:
    dataset = evidence.dataset
    videos = [
        VideoSummary(
            video.id,
            video.case,
            video.split,
            len(video),
            len(video.excluded),
            len(video.with_mask),
            next((frame.size for frame in evidence.facts[video.id] if frame.size), None),
            views[video.id].to_json() if video.id in views else None,
            shots.get(video.id),
        )
        for video in dataset
    ]
    notes = [*_told_by_name(dataset), *dataset.notes, *_thinned(dataset), *_all_labelled(dataset)]
    summary = DatasetSummary(dataset.name, dataset.protocol, videos, notes)
    seconds = time.monotonic() - start
    read = sum(1 for _ in evidence.frames)
    return CheckReport(summary, _count_classes(evidence), judge(evidence), read, evidence.complete, seconds)


def _told_by_name(dataset: Dataset) -> Iterator[str]:
    """Which images became which videos: a slip would divide one operation, or join two."""
    if dataset.videos_by == "name":
        found = [f"{video.id} ({number(len(video), 'frame')})" for video in dataset if video.file is None]
        yield (
            f"Videos are told apart by what stands before the numbers in the names of images: {listed(found, _SOME)}; "
            "`videos_by: folder` in dataset.yaml makes one video of each folder instead."
        )


def _thinned(dataset: Dataset) -> Iterator[str]:
    """How many frames take part, where not all that are there do."""
    left = [video for video in dataset if video.take_every > 1]
    if left:
        kept, frames = sum(len(video.usable) for video in left), sum(len(video) for video in left)
        yield f"Of {number(frames, 'frame')} {kept:,} take part (`take_every: {left[0].take_every}` in dataset.yaml)."


def _all_labelled(dataset: Dataset) -> Iterator[str]:
    """What `suture train` would refuse, though nothing is wrong with the data."""
    videos = dataset.split("train")
    if videos and all(len(video.with_mask) == len(video.usable) for video in videos):
        yield (
            "All frames of train are labelled, and stitch, the default, learns from unlabelled ones too: train with "
            "`--set method=strong`, or on some of the labels (`--set data.labelling.every=20`)."
        )


def _count_classes(evidence: Evidence) -> dict[str, dict[str, ClassCount]]:
    """Pixels of each class in each split, and in how many frames, videos and cases they are."""
    dataset = evidence.dataset
    counted: dict[str, list[tuple[Video, np.ndarray]]] = {split: [] for split in (*SPLITS, "")}
    for frame in evidence.frames:
        if frame.mask is not None and frame.mask.pixels is not None:
            video = dataset[frame.video]
            counted[video.split or ""].append((video, frame.mask.pixels))

    def count(position: int, masks: Sequence[tuple[Video, np.ndarray]]) -> ClassCount:
        videos = [video for video, pixels in masks if pixels[position]]
        pixels = sum(int(pixels[position]) for _, pixels in masks)
        return ClassCount(pixels, len(videos), len({v.id for v in videos}), len({v.case for v in videos}))

    return {
        name: {split: count(position, masks) for split, masks in counted.items() if masks}
        for position, name in enumerate((*dataset.classes.names, IGNORED))
    }


def _overview(summary: DatasetSummary) -> Iterator[Text]:
    """What it is in one line, and what it is made of in two or three."""
    protocol = f" ({summary.protocol})" if summary.protocol not in ("default", summary.name) else ""
    shots = f", {number(summary.shots, 'shot')}" if summary.shots else ""
    yield Text.assemble(
        (summary.name, "bold"),
        f"{protocol}: {number(summary.cases, 'case')}, {number(len(summary.videos), 'video')}{shots}, ",
        f"{number(summary.frames, 'frame')}, {summary.labelled:,} labelled ({summary.labelled_share:.1%})",
    )
    parts = []
    for split in (*SPLITS, None):
        if videos := [video for video in summary.videos if video.split == split]:
            frames = number(sum(video.frames for video in videos), "frame")
            count = f"{number(len(videos), 'video')}, {frames} ({summary.labelled_in(split):,} labelled)"
            parts.append(f"{split or 'no split'} {count}")
    yield Text(" · ".join(parts))
    sizes = Counter("×".join(map(str, video.size)) for video in summary.videos if video.size)
    facts = [f"frames of {_shares(sizes)}"] if sizes else []
    if summary.shots is not None:
        facts.append(f"view: {_shares(Counter(_kind(video.view) for video in summary.videos))}")
    if excluded := sum(video.excluded for video in summary.videos):
        facts.append(f"{number(excluded, 'frame')} excluded")
    yield Text(" · ".join(facts))
    for note in summary.notes:
        yield Text(note, "dim")


def _kind(view: Mapping[str, Any] | None) -> str:
    if view is None:
        return "whole frame"
    return "circle" if "circle" in view else "rectangle"


def _shares(counts: Counter[str]) -> str:
    """`512×512`, or `512×512 in 3 videos and 640×480 in 1`."""
    if len(counts) == 1:
        return next(iter(counts))
    parts = [f"{name} in {count:,}" for name, count in counts.most_common()]
    parts[0] += " videos" if counts.most_common(1)[0][1] > 1 else " video"
    return listed(parts, 3)


def _class_table(rows: Mapping[str, Mapping[str, ClassCount]], width: int) -> Table:
    """One row per class with the splits side by side, or below each other where the terminal is too narrow for that."""
    rows = {name: row for name, row in rows.items() if name != IGNORED or any(count.pixels for count in row.values())}
    splits = list(next(iter(rows.values())))
    totals = {split: sum(row[split].pixels for row in rows.values()) or 1 for split in splits}

    def cells(row: Mapping[str, ClassCount], split: str) -> list[str]:
        count = row[split]
        share = f"{count.pixels / totals[split]:.2%}" if count.pixels else "–"
        return [share, *(f"{value:,}" if value else "–" for value in (count.frames, count.videos, count.cases))]

    beside = width >= max(map(len, rows)) + 27 * len(splits)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("\nclass" if beside else "class", overflow="fold")
    if not beside:
        table.add_column("split")
    for split in splits if beside else splits[:1]:
        for column, name in enumerate(("pixels", "frames", "videos", "cases")):
            head = f"{(split or 'no split') if column == 0 else ''}\n{name}" if beside else name
            table.add_column(head, justify="right", no_wrap=True, min_width=len(name))
    for name, row in rows.items():
        style = "dim" if name == IGNORED else None
        if beside:
            table.add_row(Text(name), *(cell for split in splits for cell in cells(row, split)), style=style)
            continue
        for position, split in enumerate(splits):
            table.add_row(Text("" if position else name), split or "no split", *cells(row, split), style=style)
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
    """The last line: what matters now."""
    counts = Counter(problem.severity for problem in problems)
    if {problem.code for problem in problems if problem.severity == "fatal"} == {ASKED}:
        return Text("1 question to answer before training: what do unpainted pixels mean?", "bold red")
    if counts["fatal"]:
        return Text(f"{number(counts['fatal'], 'fatal problem')}: mend before training.", "bold red")
    if counts["warning"]:
        return Text(f"Nothing fatal; {number(counts['warning'], 'warning')} to look at.", "yellow")
    return Text("Nothing that must be mended." if problems else "No problems found.", "green")
