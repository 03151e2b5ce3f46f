"""`suture check`: summarise a dataset and list what would spoil a training, with the fixes.

A first report comes from the index and a few frames within seconds. Then every frame and mask is read once, on all
cores. The readings are facts (`suture.checks.frame_facts`), on which `suture.checks.judge` judges.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from suture.checks.check_report import IGNORED, CheckReport, ClassCount, DatasetSummary, VideoSummary
from suture.checks.frame_facts import FrameFacts, find_video_view, frame_facts, make_chunks
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
from suture.data.shots import shots_of_frames
from suture.data.view import View

MIN_QUICK_CHECK_FRAMES = 1000
"""Number of frames up to which no quick check is made, because reading all of them is fast."""
MAX_SCORED_MASKS_READ = 64
"""Masks read before training if they are only scored. This takes seconds; reading all may take an hour."""
_QUICK_CHECK_S = 3.0
_MIN_PARALLEL_FRAMES = 64
"""Number of frames up to which starting processes costs more time than it saves."""
_NAMED_VIDEOS = 3


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
    if not full or (on_quick and sum(map(len, dataset.videos)) > MIN_QUICK_CHECK_FRAMES):
        report = _make_report(Evidence(dataset, _sample(dataset), False, broken), {}, {}, start)
        if not full:
            return report
        if on_quick:
            on_quick(report)
    workers = workers or cores()
    views = _find_views(dataset, workers, progress)
    facts, shots = _read_all(dataset, views, workers, progress)
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
        if index not in facts[video.id]:
            chunk = next(make_chunks(video, [index], dataset.classes, None))
            facts[video.id][index] = frame_facts(chunk)[0]
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
    dataset: Dataset, views: Mapping[str, View], workers: int, progress: bool
) -> tuple[dict[str, list[FrameFacts]], dict[str, int]]:
    """Read every usable frame; return the facts and the number of shots of each video."""
    # A fresh copy of the class table, without the lookup arrays that would travel with every piece of work.
    classes = replace(dataset.classes)
    work = [chunk for video in dataset for chunk in make_chunks(video, video.usable, classes, views.get(video.id))]
    left = Counter(chunk.video for chunk in work)
    total = sum(len(chunk.frames) for chunk in work)
    facts: dict[str, list[FrameFacts]] = {video.id: [] for video in dataset}
    shots: dict[str, int] = {}
    with ProgressBar(show=progress) as bar:
        task = bar.add_task("reading every frame", total=total)
        for chunk, read in in_parallel(frame_facts, work, workers if total > _MIN_PARALLEL_FRAMES else 1):
            video = chunk.video
            crashed = "the decoder crashed here"
            facts[video] += read or [FrameFacts(video, frame.index, error=crashed) for frame in chunk.frames]
            left[video] -= 1
            if not left[video]:
                facts[video].sort(key=lambda frame: frame.index)
                shots[video] = _count_shots(dataset[video], facts[video], views.get(video))
            bar.advance(task, len(chunk.frames))
    return facts, shots


def _count_shots(video: Video, facts: Sequence[FrameFacts], view: View | None) -> int:
    """Count the shots by the thumbnails, which then shrink to the size that the judges need."""
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
