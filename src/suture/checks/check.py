"""`suture check`: summarise a dataset and list what would spoil a training, with the fixes.

A first report comes from the index and a few frames within seconds. Then every frame and mask is read once, on all
cores. The readings are facts (`suture.checks.frame_facts`), on which `suture.checks.judge` judges.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from suture.checks.check_report import IGNORED, CheckReport, ClassCount, DatasetSummary, VideoSummary
from suture.checks.frame_facts import (
    Chunk,
    FrameFacts,
    facts_from_arrays,
    facts_to_arrays,
    find_video_view,
    frame_facts,
    inside_view,
    make_chunks,
)
from suture.checks.judge import Evidence, judge, nothing_to_learn
from suture.checks.parallel import in_parallel
from suture.checks.problems import UNLABELLED, Problem
from suture.core.errors import UserError
from suture.core.progress import ProgressBar
from suture.core.text import listed, number
from suture.core.workers import cores
from suture.data import messages
from suture.data.dataset import SPLITS, Dataset, Video
from suture.data.datasets import load_dataset
from suture.data.find_view import VIEW_FRAMES
from suture.data.images import MaskFile, image_size
from suture.data.labelling import all_masks
from suture.data.shots import CurvePart, join_parts, shots_of_curve
from suture.data.view import View

MIN_QUICK_CHECK_FRAMES = 1000
"""Number of frames up to which no quick check is made, because reading all of them is fast."""
MAX_SCORED_MASKS_READ = 64
"""Masks read before training if they are only scored. This takes seconds; reading all may take an hour."""
_QUICK_CHECK_S = 3.0
_MIN_PARALLEL_FRAMES = 64
"""Number of frames up to which starting processes costs more time than it saves."""
_NAMED_VIDEOS = 3
PIXELS_PER_S = 2e8
"""Pixels of compressed video that one core reads in a second."""
CRASHED = "the decoder crashed here"
EMPTY_PART = CurvePart([], [], [], [])


def check(
    dataset: Dataset | str | Path,
    full: bool = True,
    workers: int | None = None,
    progress: bool = True,
    on_quick: Callable[[CheckReport], None] | None = None,
) -> CheckReport:
    """Summarise a dataset and find its problems; mistakes in single files are collected.

    Args:
        dataset: A dataset, or its folder.
        full: Read every frame and mask, not only a few.
        workers: Processes that read, by default one per core.
        progress: Show a progress bar.
        on_quick: Called with the report of a quick check within seconds, if the dataset is large.

    >>> check("../shared/data/vocalfolds", progress=False).fatal  # doctest: +SKIP
    False
    """
    start = time.monotonic()
    if not isinstance(dataset, Dataset):
        dataset = load_dataset(dataset)
    dataset, broken = _without_broken(dataset)
    sample: dict[str, list[FrameFacts]] = {video.id: [] for video in dataset}
    if not full or sum(map(len, dataset.videos)) > MIN_QUICK_CHECK_FRAMES:
        sample = _sample(dataset)
        report = _make_report(Evidence(dataset, sample, False, broken), {}, {}, start)
        if not full:
            return report
        if on_quick:
            on_quick(report)
    workers = workers or cores()
    views = _find_views(dataset, workers, progress)
    sizes = {video: next((one.size for one in facts if one.size), (0, 0)) for video, facts in sample.items()}
    facts, shots = _read_all(dataset, views, sizes, workers, progress)
    return _make_report(Evidence(dataset, facts, True, broken), views, shots, start)


def require_labels(dataset: Dataset) -> None:
    """Raise a `UserError` with the reason if no training frame has a mask."""
    if all_masks(dataset).count:
        return
    for problem in check(dataset, full=False).problems:
        if problem.code in UNLABELLED:
            raise _as_error(dataset, problem)


def require_classes_to_learn(dataset: Dataset, shown: Sequence[str], labelled: int) -> None:
    """Raise a `UserError` if the labelled frames show fewer than two classes."""
    if problem := nothing_to_learn(shown):
        others = all_masks(dataset).count - labelled
        more = f"; or learn from more of the frames that have masks (data.labelling leaves {others} out)"
        raise _as_error(dataset, replace(problem, fix=problem.fix + more) if others > 0 else problem)


def validate_masks(dataset: Dataset, frames: Sequence[tuple[str, int]]) -> None:
    """Validate masks that are only scored: the headers of all image files, the values of some from all over."""

    def validate_header(place: tuple[str, int]) -> None:
        video = dataset[place[0]]
        mask = video.masks[place[1]]
        if isinstance(mask, MaskFile) and (size := image_size(mask.path)) != video.size:
            raise UserError(f"{mask.name} is {messages.on_frame(size, video.size)}: {messages.SIZE}.")

    with ThreadPoolExecutor() as threads:  # a network disk answers many requests at once
        list(threads.map(validate_header, frames))
    count = min(len(frames), MAX_SCORED_MASKS_READ)
    for position in range(count):
        video, index = frames[position * len(frames) // count]
        dataset.read_mask(dataset[video], index)


def _as_error(dataset: Dataset, problem: Problem) -> UserError:
    first = f" (first: {problem.first})" if problem.first else ""
    return UserError(f"{dataset.root}: {problem.what}{first}; {problem.fix}.")


def _without_broken(dataset: Dataset) -> tuple[Dataset, dict[str, str]]:
    """Split off the video files that cannot even be listed, with the error of each."""

    def read_length(video: Video) -> str:
        try:
            video.usable  # noqa: B018  # opens the file
        except UserError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor() as threads:
        errors = dict(zip((video.id for video in dataset), threads.map(read_length, dataset), strict=True))
    broken = {video: error for video, error in errors.items() if error}
    if len(broken) == len(dataset.videos):
        raise UserError(next(iter(broken.values())))
    return replace(dataset, videos=[video for video in dataset if video.id not in broken]), broken


def _sample(dataset: Dataset) -> dict[str, list[FrameFacts]]:
    """Read some frames of each video within seconds, labelled ones where there are any."""
    deadline = time.monotonic() + _QUICK_CHECK_S
    facts: dict[str, dict[int, FrameFacts]] = {video.id: {} for video in dataset}
    candidates = {video.id: video.with_mask or video.usable for video in dataset}
    wanted = [(video, part) for part in (0.0, 0.5, 1.0, 0.25, 0.75) for video in dataset if candidates[video.id]]
    for video, part in wanted:
        index = candidates[video.id][round(part * (len(candidates[video.id]) - 1))]
        if video.file and index not in video.masks and (key := video.file.key_before(index)) not in video.excluded:
            index = key  # other frames of a file with few key frames take a second each
        if index not in facts[video.id]:
            chunk = Chunk(video.id, video.file, (video.frames[index],), dataset.classes, None, video.deinterlace)
            facts[video.id][index] = frame_facts(chunk)[0][0]
        if time.monotonic() > deadline:
            break
    return {video: [of_video[index] for index in sorted(of_video)] for video, of_video in facts.items()}


def _find_views(dataset: Dataset, workers: int, progress: bool) -> dict[str, View]:
    """The views that are not the whole frame, as stated or estimated from frames."""
    unknown = [video for video in dataset if video.view_setting == "auto" and video.usable]
    views = {video.id: video.view_setting for video in dataset if isinstance(video.view_setting, View)}
    workers = workers if len(unknown) * VIEW_FRAMES > _MIN_PARALLEL_FRAMES else 1
    with ProgressBar(show=progress and bool(unknown)) as bar:
        task = bar.add_task("finding the views", total=len(unknown))
        for video, view in in_parallel(find_video_view, unknown, workers):
            if view is not None:
                views[video.id] = view
            bar.advance(task)
    return views


def _read_all(
    dataset: Dataset, views: Mapping[str, View], sizes: Mapping[str, tuple[int, int]], workers: int, progress: bool
) -> tuple[dict[str, list[FrameFacts]], dict[str, int]]:
    """Read every usable frame; return the facts and the number of shots of each video.

    Frames that an earlier command has read are known; their masks are read again.
    """
    # A fresh copy of the class table, without the lookup arrays that would travel with every piece of work.
    classes = replace(dataset.classes)
    kept = {v.id: v.measurement("frame facts", views.get(v.id)) for v in dataset if v.usable}
    facts: dict[str, dict[int, FrameFacts]] = {video.id: {} for video in dataset}
    curves: dict[str, np.ndarray] = {}
    for video, arrays in ((video, measurement.load()) for video, measurement in kept.items()):
        if arrays is not None:
            curves[video] = arrays.pop("curve")
            facts[video] = {one.index: one for one in facts_from_arrays(video, arrays)}
    work = [
        chunk for video in dataset for chunk in make_chunks(video, classes, views.get(video.id), video.id in curves)
    ]
    total = sum(len(chunk.frames) for chunk in work)
    pixels = sum(len(chunk.frames) * math.prod(sizes[chunk.video]) for chunk in work if not chunk.masks_only)
    if progress and (minutes := pixels / (PIXELS_PER_S * workers * 60)) >= 1:
        Console(stderr=True).print(
            f"Reading {total:,} frames once takes about {minutes:.0f} min; other commands use what is measured. "
            "A few frames only: --quick.",
            highlight=False,
        )
    parts: dict[str, dict[int, CurvePart]] = {video.id: {} for video in dataset}
    with ProgressBar(show=progress) as bar:
        task = bar.add_task("reading every frame", total=total)
        for chunk, read in in_parallel(frame_facts, work, workers if total > _MIN_PARALLEL_FRAMES else 1):
            video = chunk.video
            if read is None:
                read = ([FrameFacts(video, frame.index, error=CRASHED) for frame in chunk.frames], EMPTY_PART)
            for one in read[0]:
                if chunk.masks_only:
                    facts[video][one.index].mask = one.mask
                else:
                    facts[video][one.index] = one
            parts[video][chunk.frames[0].index] = read[1]
            bar.advance(task, len(chunk.frames))
    ordered = {video: [of_video[index] for index in sorted(of_video)] for video, of_video in facts.items()}
    shots = {}
    for video, of_video in ordered.items():
        readable = [one.index for one in of_video if one.thumb is not None]
        if video not in curves and readable:
            of_curve = [parts[video][first] for first in sorted(parts[video])]
            curves[video] = curve = join_parts(of_curve, inside_view(views.get(video)), "blockwise")
            if len(readable) == len(of_video):
                dataset[video].measurement("shots blockwise", views.get(video)).save({"curve": curve})
            if not any(one.error == CRASHED for one in of_video):
                kept[video].save({**facts_to_arrays(of_video), "curve": curve})
        if readable:
            shots[video] = len(shots_of_curve(dataset[video], curves[video], indices=readable))
    return ordered, shots


def _make_report(evidence: Evidence, views: Mapping[str, View], shots: Mapping[str, int], start: float) -> CheckReport:
    dataset = evidence.dataset
    videos = [
        VideoSummary(
            video.id,
            video.case,
            video.split,
            frames=len(video),
            excluded=len(video.excluded),
            labelled=len(video.with_mask),
            size=next((frame.size for frame in evidence.facts[video.id] if frame.size), None),
            view=views[video.id].to_json() if video.id in views else None,
            shots=shots.get(video.id),
        )
        for video in dataset
    ]
    summary = DatasetSummary(dataset.name, dataset.protocol, videos, [*_notes(dataset), *dataset.notes])
    seconds = time.monotonic() - start
    read = sum(1 for _ in evidence.frames)
    return CheckReport(summary, _count_classes(evidence), judge(evidence), read, evidence.complete, seconds)


def _notes(dataset: Dataset) -> Iterator[str]:
    """Settings of the dataset that are worth a note."""
    if dataset.videos_by == "name":
        names = [f"{video.id} ({number(len(video), 'frame')})" for video in dataset if video.file is None]
        yield f"Videos are separated by the names of images: {listed(names, _NAMED_VIDEOS)}."
    if thinned := [video for video in dataset if video.take_every > 1]:
        kept, frames = sum(len(video.usable) for video in thinned), sum(len(video) for video in thinned)
        every = thinned[0].take_every
        yield f"Of {number(frames, 'frame')} {kept:,} take part (`take_every: {every}` in dataset.yaml)."
    training = dataset.split("train")
    if training and all(len(video.with_mask) == len(video.usable) for video in training):
        yield "All frames of train are labelled: train with `--set method=strong`, since stitch needs unlabelled ones."


def _count_classes(evidence: Evidence) -> dict[str, dict[str, ClassCount]]:
    """Count the pixels of each class in each split, and the frames, videos and cases that show it."""
    dataset = evidence.dataset
    masks: dict[str, list[tuple[Video, np.ndarray]]] = {split: [] for split in (*SPLITS, "")}
    for frame in evidence.frames:
        if frame.mask is not None and frame.mask.pixels is not None:
            video = dataset[frame.video]
            masks[video.split or ""].append((video, frame.mask.pixels))

    def count(position: int, of_split: Sequence[tuple[Video, np.ndarray]]) -> ClassCount:
        videos = [video for video, pixels in of_split if pixels[position]]
        pixels = sum(int(pixels[position]) for _, pixels in of_split)
        return ClassCount(pixels, len(videos), len({v.id for v in videos}), len({v.case for v in videos}))

    return {
        name: {split: count(position, of_split) for split, of_split in masks.items() if of_split}
        for position, name in enumerate((*dataset.classes.names, IGNORED))
    }
