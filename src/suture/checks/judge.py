"""Judges of a dataset: each examines one aspect of the evidence and yields problems."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import cv2
import numpy as np

from suture.checks.frame_facts import FrameFacts, MaskFacts
from suture.checks.problems import OPEN_QUESTION, SEVERITIES, Problem, make_problem
from suture.core.errors import UserError
from suture.core.io import read_text
from suture.core.text import NAMED, listed, number
from suture.data import messages
from suture.data.classes import Raw, alike_but_for_capitals
from suture.data.dataset import SPLITS, Dataset, Split, Video, splits_by_name
from suture.data.dataset_file import FILE_NAME, OPEN_VIDEOS_BY, DatasetFile, Place, find_guesses
from suture.data.datasets import protocol_named
from suture.data.images import low_depth_divisor
from suture.data.listing import holds_files
from suture.data.pattern import propose_patterns
from suture.data.view import View

STILL = 0.25
"""Mean change below which a frame repeats the one before; camera noise is several times larger."""
MIN_FROZEN_FRAMES = 5
MIN_COMBED_FRAMES = 3
MIN_SMOOTHED_SHARE = 0.1
"""Share of in-between pixels at edges, above which a mask was resized smoothly; hand-drawn masks are near 0."""
MIN_CONTRAST = 4.0
"""Contrast below which a thumbnail is too uniform to recognise."""
MAX_ALIKE = 4.0
"""Difference of two thumbnails, in grey levels, up to which video coding explains it."""
_BLOCK_FRAMES = 256
"""Frames that are compared with all others at once."""
_NAMED_VALUES = 4
MAX_PLACE_CHARS = 400
"""Longer names are those of hostile files."""


@dataclass
class Evidence:
    """A dataset, the facts of the frames that were read, and what follows from them."""

    dataset: Dataset
    facts: dict[str, list[FrameFacts]]
    """Video → the facts of its frames that were read, in order."""
    complete: bool
    """True if all frames were read."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Unreadable video files, which are no longer part of the dataset, with the error of each."""

    @cached_property
    def file(self) -> DatasetFile:
        """The content of `dataset.yaml`, or the defaults."""
        return DatasetFile.of(self.dataset.root)

    @cached_property
    def text(self) -> str:
        """`dataset.yaml` with its comments, or an empty string."""
        path = self.dataset.root / FILE_NAME
        return read_text(path) if path.is_file() else ""

    @cached_property
    def guesses(self) -> set[Place]:
        """The keys that are still marked as a guess."""
        return find_guesses(self.text) if self.text else set()

    @property
    def frames(self) -> Iterator[FrameFacts]:
        return (facts for of_video in self.facts.values() for facts in of_video)

    @cached_property
    def masks(self) -> list[MaskFacts]:
        return [frame.mask for frame in self.frames if frame.mask is not None]

    @cached_property
    def ids_from_one(self) -> int | None:
        """The only unknown id, if it is one above the class table's last id and no mask has id 0."""
        ids = [value for value in self.dataset.classes.values if isinstance(value, int)]
        if 0 not in ids or any(mask.has_zero for mask in self.masks):
            return None
        unknown = {value for mask in self.masks for value in mask.unknown}
        return max(ids) + 1 if unknown == {max(ids) + 1} else None

    @cached_property
    def mask_like(self) -> list[str]:
        """Videos whose images look like masks: a few values each, in flat areas."""
        levels = {video: [frame.painted for frame in frames if frame.size] for video, frames in self.facts.items()}
        images = (video.id for video in self.dataset if video.file is None)
        return [video for video in images if levels[video] and all(levels[video]) and max(levels[video]) > 1]

    @cached_property
    def patterns(self) -> list[tuple[str, str]]:
        """Patterns of frames and masks that would match masks to frames."""
        images = {video.id: [self.relative(path) for path in video.files] for video in self.dataset if not video.file}
        frames = [path for video, paths in images.items() if video not in self.mask_like for path in paths]
        masks = [path for video in self.mask_like for path in images[video]]
        return propose_patterns(frames, masks + [self.relative(mask) for mask in self.dataset.unmatched_masks])

    @cached_property
    def few_bits(self) -> dict[str, int]:
        """Videos of 16-bit images that are wrongly read as black, with their largest value."""
        largest = {}
        for video, frames in self.facts.items():
            tops = [-1 if frame.largest is None else frame.largest for frame in frames if frame.size]
            if min(tops, default=-1) >= 0 and low_depth_divisor(max(tops)):  # single frames may really be black
                largest[video] = max(tops)
        return largest

    def place(self, frame: FrameFacts) -> str:
        """A frame's file, or its video and number."""
        image = self.dataset[frame.video].frames[frame.index].image
        return self.relative(str(image)) if image else f"{frame.video} frame {frame.index}"

    def relative(self, name: str) -> str:
        """Shorten a file name to its path below the dataset's root, cut off if it is too long."""
        name = name.replace(f"{self.dataset.root}{os.sep}", "")
        return name if len(name) <= MAX_PLACE_CHARS else f"{name[:MAX_PLACE_CHARS]}…"

    def report(self, code: str, places: Iterable[str], **options: Any) -> Iterator[Problem]:
        """Yield a problem if there is any place; the options are those of `make_problem`."""
        if names := [self.relative(place) for place in places]:
            yield make_problem(code, names, **options)


Judge = Callable[[Evidence], Iterator[Problem]]


def judge(evidence: Evidence) -> list[Problem]:
    """Collect all problems, the worst first."""
    judges = JUDGES + (JUDGES_OF_ALL_FRAMES if evidence.complete else ())
    problems = [problem for examine in judges for problem in examine(evidence)]
    return sorted(problems, key=lambda problem: SEVERITIES.index(problem.severity))


def judge_cases(evidence: Evidence) -> Iterator[Problem]:
    """Cases in two splits, and guessed cases and videos."""
    dataset = evidence.dataset
    divided = [
        f"{case} ({', '.join(f'{video.id} in {video.split}' for video in dataset.cases[case] if video.split)})"
        for case in dataset.divided_cases
    ]
    yield from evidence.report("divided-case", divided, severity="warning" if dataset.divides_cases else None)
    guessed = {case: videos for case, videos in evidence.file.cases.items() if ("cases", case) in evidence.guesses}
    yield from evidence.report(
        "guessed-case",
        [f"{case} ({listed(videos, NAMED)})" for case, videos in guessed.items()],
        count=sum(map(len, guessed.values())),
        severity="warning" if len(dataset.cases) == 1 else None,  # then there is nothing to test on
    )
    if OPEN_VIDEOS_BY in evidence.text.splitlines():
        yield make_problem("several-operations", count=1)


def judge_splits(evidence: Evidence) -> Iterator[Problem]:
    """Training videos that are for the test by their names or by lists, and the reverse; cases that lists divide."""
    dataset = evidence.dataset
    expected = splits_by_name({video.id: f"{video.case} {video.id}" for video in dataset})
    expected |= {video: next(iter(counts)) for video, counts in dataset.listed.items() if len(counts) == 1}
    turned = {("test", "train"), ("train", "test"), ("test", "val")}
    places = [f"{v.id} in {v.split}" for v in dataset if (expected.get(v.id), v.split) in turned]
    yield from evidence.report("misnamed-split", places)
    divided = []
    for case, videos in dataset.cases.items():
        lines = sum((dataset.listed.get(video.id, Counter()) for video in videos), Counter[Split]())
        split = videos[0].split
        if len(lines) > 1 and (split is None or evidence.file.split is None or ("split", split) in evidence.guesses):
            parts = [f"{number(lines[split], 'line')} in {split}" for split in SPLITS if lines[split]]
            divided.append(f"{case}: {listed(parts)}")
    yield from evidence.report("divided-by-list", divided)


def judge_dataset_file(evidence: Evidence) -> Iterator[Problem]:
    """Named videos that do not exist, and a protocol that does not fit the classes."""
    dataset = evidence.dataset
    yield from evidence.report("missing-video", dataset.missing_videos)
    try:
        protocol_named(dataset.protocol).validate_classes(dataset.classes.names)
    except UserError as error:
        yield make_problem("protocol", count=1, detail=str(error).removesuffix(f": {messages.PROTOCOL}."))


def judge_videos(evidence: Evidence) -> Iterator[Problem]:
    """Videos that cannot be read, are cut off or short, or whose frames differ."""
    dataset = evidence.dataset
    yield from evidence.report("bad-video", [error.removesuffix(".") for error in evidence.broken.values()])
    missing = {video.id: video.file.missing for video in dataset if video.file}
    cut = [
        f"{video} (about {count:,} after frame {len(dataset[video]) - 1:,})"
        for video, count in missing.items()
        if count
    ]
    yield from evidence.report("cut-video", cut)
    short = {video.id: len(video) - len(video.excluded) for video in dataset if len(video.usable) < 2}
    yield from evidence.report("few-taken", [video for video, kept in short.items() if kept > 1])
    yield from evidence.report("one-frame", [video for video, kept in short.items() if kept == 1])
    yield from evidence.report("all-excluded", [video for video, kept in short.items() if kept == 0])
    places = [evidence.place(evidence.facts[video][0]) for video in evidence.mask_like]
    yield from _with_patterns(evidence, evidence.report("masks-for-frames", places))
    if largest := evidence.few_bits:
        places = [evidence.place(evidence.facts[video][0]) for video in largest]
        detail = f"divide their values by {low_depth_divisor(max(largest.values()))}"
        yield from evidence.report("few-bits", places, detail=detail)


def judge_frames(evidence: Evidence) -> Iterator[Problem]:
    """Frames that do not decode or change size, and views that do not fit them."""
    bad = [evidence.place(frame) for frame in evidence.frames if frame.size is None]
    yield from evidence.report("bad-frame", bad)
    changed: dict[str, str] = {}
    outside: dict[str, str] = {}
    for video in evidence.dataset:
        sized = [frame for frame in evidence.facts[video.id] if frame.size]
        if other := next((frame for frame in sized if frame.size != sized[0].size), None):
            size, first = ("×".join(map(str, frame.size or ())) for frame in (other, sized[0]))
            changed[video.id] = f"{evidence.place(other)} ({size}, not {first})"
        if sized and sized[0].size and isinstance(video.view_setting, View):
            try:
                video.view_setting.within(*sized[0].size, video.id)
            except UserError as error:
                outside[video.id] = str(error).removesuffix(".")
    yield from _of_videos(evidence, "size-change", changed)
    yield from _of_videos(evidence, "view", outside)


def _of_videos(evidence: Evidence, code: str, places: Mapping[str, str]) -> Iterator[Problem]:
    """Problems of videos. For videos in no split they are warnings, because training never reads those."""
    used = {video for video in places if evidence.dataset[video].split is not None}
    yield from evidence.report(code, [place for video, place in places.items() if video in used])
    others = [place for video, place in places.items() if video not in used]
    yield from evidence.report(code, others, severity="warning")


def judge_labels(evidence: Evidence) -> Iterator[Problem]:
    """Nothing to learn from, or nothing to score on."""
    dataset = evidence.dataset
    labelled = {split: sum(len(video.with_mask) for video in dataset.split(split)) for split in SPLITS}
    lost = evidence.mask_like or dataset.unmatched_masks or dataset.doubtful_masks or dataset.boxes
    if unread := list(unread_masks(evidence)):
        yield from unread
    elif not any(video.with_mask for video in dataset):
        if not lost:
            yield make_problem("no-masks", count=len(dataset.videos))
    elif not any(video.split for video in dataset):
        yield make_problem("no-split", count=len(dataset.videos))
    elif not labelled["train"]:
        yield make_problem("no-masks-in-train", count=1)
    elif not labelled["test"]:
        yield make_problem("no-masks-in-test", count=1)


def unread_masks(evidence: Evidence) -> Iterator[Problem]:
    """Mask folders of which nothing is read. An empty folder is no problem."""
    dataset = evidence.dataset
    read = any(v.with_mask for v in dataset) or dataset.unmatched_masks or dataset.doubtful_masks or dataset.boxes
    if read or not dataset.root.is_dir():
        return
    named = [place for place in evidence.file.mask_places if holds_files(dataset.root / place)]
    yield from evidence.report("no-label", named)
    yield from evidence.report("no-dataset-file", dataset.unread_masks)


def judge_unmatched_masks(evidence: Evidence) -> Iterator[Problem]:
    """Masks without a frame, or with several."""
    dataset = evidence.dataset
    code = "mask-without-frame" if any(video.with_mask for video in dataset) else "no-mask-fits"
    yield from _with_patterns(evidence, evidence.report(code, dataset.unmatched_masks))
    yield from _of_videos(evidence, "mask-past-end", dataset.late_masks)
    yield from evidence.report("doubtful-mask", dataset.doubtful_masks)
    excluded = [mask.name for video in dataset for index, mask in video.masks.items() if index in video.excluded]
    yield from evidence.report("mask-on-excluded", excluded)


def _with_patterns(evidence: Evidence, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Add the lines of `dataset.yaml` that bring these masks to frames whose names are almost equal."""
    for problem in problems:
        if evidence.patterns:
            frames, masks = evidence.patterns[0]
            fix = f'write `frames: "{frames}"` and `masks: "{masks}"` into dataset.yaml, without `videos`'
            yield replace(problem, fix=fix)
        else:
            yield problem


def judge_shapes(evidence: Evidence) -> Iterator[Problem]:
    """Annotations without an effect on a mask."""
    dataset = evidence.dataset
    for code, boxes in (
        ("boxes-only", [one for one in dataset.boxes if not one.shapes]),
        ("boxes", [one for one in dataset.boxes if one.shapes]),
    ):
        yield from evidence.report(code, map(str, boxes), count=sum(one.boxes for one in boxes))
    covered = {mask.name: mask.covered for mask in evidence.masks if mask.covered}
    yield from evidence.report("covered-shape", covered, count=sum(covered.values()))


def judge_masks(evidence: Evidence) -> Iterator[Problem]:
    """Masks that do not decode, differ in size from their frame, or hold unknown values."""
    yield from evidence.report("bad-mask", [mask.name for mask in evidence.masks if mask.error])
    differing = [
        f"{frame.mask.name} ({messages.on_frame(frame.mask.size, frame.size)})"
        for frame in evidence.frames
        if frame.mask and frame.mask.size and frame.size and frame.mask.size != frame.size
    ]
    yield from evidence.report("mask-size", differing)
    by_cause: dict[str, list[MaskFacts]] = defaultdict(list)
    for mask in evidence.masks:
        if cause := _cause(mask, evidence):
            by_cause[cause].append(mask)
    for cause, wrong in by_cause.items():
        counts: Counter[Raw] = Counter()
        for mask in wrong if cause == "unknown-value" else ():
            counts.update(mask.unknown)
        values = [f"{_value(value)} ({number(count, 'pixel')})" for value, count in counts.most_common()]
        yield from evidence.report(cause, [mask.name for mask in wrong], detail=listed(values, _NAMED_VALUES))
    yield from evidence.report(
        OPEN_QUESTION, [mask.name for mask in evidence.masks if mask.unstated and not mask.predicted]
    )


def _cause(mask: MaskFacts, evidence: Evidence) -> str | None:
    """Root cause of wrong values in a mask; None without wrong values."""
    if mask.error:
        return None
    if mask.predicted:
        return "predicted-mask"
    if is_jpeg(mask.name):
        return "jpeg-mask"
    if mask.colored:
        return "colours-for-ids"
    if evidence.dataset.classes.by_color and mask.unknown and all(_is_grey(value) for value in mask.unknown):
        return "ids-for-colours"
    if mask.between > MIN_SMOOTHED_SHARE:
        return "smoothed-mask"
    if evidence.ids_from_one in mask.unknown:
        return "ids-from-one"
    return "unknown-value" if mask.unknown else None


def is_jpeg(name: str) -> bool:
    """Test whether a mask is a JPEG, whose compression changes the class values."""
    return name.lower().endswith((".jpg", ".jpeg"))


def _is_grey(value: Raw) -> bool:
    return isinstance(value, tuple) and len(set(value)) == 1


def _value(value: Raw) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def judge_classes(evidence: Evidence) -> Iterator[Problem]:
    """Classes that cannot be learned or cannot be scored."""
    seen: dict[str, set[int]] = defaultdict(set)
    for frame in evidence.frames:
        if frame.mask and frame.mask.pixels is not None:
            seen[evidence.dataset[frame.video].split or ""].update(np.flatnonzero(frame.mask.pixels).tolist())
    names = evidence.dataset.classes.names
    if not any(seen.values()):
        return
    problem = nothing_to_learn([names[n] for n in sorted(seen["train"]) if n < len(names)]) if seen["train"] else None
    # Unknown values are counted as ignored and reported as unknown: this problem would mislead.
    if problem and not any(mask.unknown or mask.unstated for mask in evidence.masks):
        yield problem
        return
    outside = sum((mask.outside for mask in evidence.masks if mask.outside is not None), np.zeros(len(names), int))
    absent = set(range(len(names))) - set().union(*seen.values())
    hidden = [f"{names[n]} ({number(int(outside[n]), 'pixel')})" for n in sorted(absent) if outside[n]]
    yield from _named("class-outside-view", hidden)
    yield from _named("class-never", [names[n] for n in sorted(absent) if not outside[n]])
    if seen["train"]:
        scored: Split = "test" if seen["test"] else "val"
        others = (seen["test"] | seen["val"]) - seen["train"]
        unscored = seen["train"] - seen[scored] if seen[scored] else set()
        yield from _named("class-not-in-train", [names[n] for n in sorted(others) if n < len(names)])
        yield from _named("class-not-scored", [f"{names[n]} (no {scored})" for n in sorted(unscored) if n < len(names)])


def judge_classes_alike(evidence: Evidence) -> Iterator[Problem]:
    """Classes that are probably one class with two spellings."""
    for names in alike_but_for_capitals(evidence.dataset.classes.names):
        yield from _named("class-alike", names)


def nothing_to_learn(shown: Sequence[str]) -> Problem | None:
    """Problem of training labels that show fewer than two classes; None if they show more."""
    if len(shown) > 1:
        return None
    return make_problem("one-class" if shown else "all-ignored", count=1, detail="".join(shown))


def _named(code: str, names: Sequence[str]) -> Iterator[Problem]:
    """A problem of classes or labels, which has no place in a file."""
    if names:
        yield make_problem(code, count=len(names), detail=listed(names, NAMED))


def judge_duplicates(evidence: Evidence) -> Iterator[Problem]:
    """Frames that are in two splits, so that the test set holds training frames."""
    dataset = evidence.dataset
    of_split: dict[str, list[FrameFacts]] = defaultdict(list)
    for frame in evidence.frames:
        if frame.thumb is not None and frame.thumb.std() > MIN_CONTRAST and not frame.black:
            of_split[dataset[frame.video].split or ""].append(frame)
    same: list[tuple[FrameFacts, FrameFacts]] = []
    alike: list[tuple[FrameFacts, FrameFacts]] = []
    for one, other in (("train", "test"), ("train", "val"), ("val", "test")):
        known = {frame.digest: frame for frame in reversed(of_split[one])}
        same += [(known[frame.digest], frame) for frame in of_split[other] if frame.digest in known]
        others = [frame for frame in of_split[other] if frame.digest not in known]
        # Frames of one case resemble each other anyway, and a divided case is reported elsewhere.
        alike += [
            (first, second)
            for first, second in _look_alikes(list(known.values()), others)
            if dataset[first.video].case != dataset[second.video].case
        ]
    meant = dataset.divides_cases and all(dataset[a.video].case == dataset[b.video].case for a, b in same)
    places = [f"{evidence.place(a)} = {evidence.place(b)}" for a, b in same]
    yield from evidence.report("duplicate-frame", places, severity="warning" if meant else None)
    yield from evidence.report("similar-frame", [f"{evidence.place(a)} ≈ {evidence.place(b)}" for a, b in alike])


def _look_alikes(ones: Sequence[FrameFacts], others: Sequence[FrameFacts]) -> Iterator[tuple[FrameFacts, FrameFacts]]:
    """Pair each of the others with its most similar frame, if video coding explains their difference."""
    known = np.array([_coarse(frame) for frame in ones]).reshape(-1, 64)
    squares = (known**2).sum(axis=1)
    for begin in range(0, len(others) if ones else 0, _BLOCK_FRAMES):
        block = others[begin : begin + _BLOCK_FRAMES]
        sought = np.array([_coarse(frame) for frame in block])
        nearest = np.argmin(squares - 2 * sought @ known.T, axis=1)
        alike = np.abs(known[nearest] - sought).max(axis=1) <= MAX_ALIKE
        yield from ((ones[int(nearest[place])], block[place]) for place in np.flatnonzero(alike).tolist())


def _coarse(frame: FrameFacts) -> np.ndarray:
    """The thumbnail as 64 numbers."""
    assert frame.thumb is not None
    return cv2.resize(frame.thumb, (8, 8), interpolation=cv2.INTER_AREA).ravel().astype(np.float32)


def judge_stretches(evidence: Evidence) -> Iterator[Problem]:
    """Black, frozen and interlaced stretches."""
    kinds: tuple[tuple[str, Callable[[FrameFacts, FrameFacts | None], bool], int, int], ...] = (
        ("black", lambda frame, _: frame.black, 1, 1),
        ("frozen", _repeats, MIN_FROZEN_FRAMES - 1, 1),
        ("interlaced", lambda frame, _: frame.combed, MIN_COMBED_FRAMES, 5),
    )
    standing = {
        video: _by_position(evidence.dataset[video], facts)
        for video, facts in evidence.facts.items()
        if video not in evidence.mask_like
    }
    for code, holds, shortest, gap in kinds:
        places: list[str] = []
        count = 0
        for video, at in standing.items():
            if code == "black" and video in evidence.few_bits:
                continue
            marked = [position for position, frame in at.items() if holds(frame, at.get(position - 1))]
            for run in np.split(marked, np.flatnonzero(np.diff(marked) > gap) + 1):
                if len(run) >= shortest:
                    first, last = int(run[0]) - (code == "frozen"), int(run[-1])  # with the frame that is repeated
                    places.append(f"{video} {_range(at[first].index, at[last].index)}")
                    count += last - first + 1
        yield from evidence.report(code, places, count=count)


def _repeats(frame: FrameFacts, before: FrameFacts | None) -> bool:
    """Test whether a frame shows the same as the one before it; black frames are reported elsewhere."""
    if before is None or frame.thumb is None or frame.black:
        return False
    if frame.change is not None:
        return frame.change < STILL
    # Different processes read the two frames, so only their thumbnails can be compared.
    return before.thumb is not None and bool(np.abs(frame.thumb.astype(int) - before.thumb).mean() < STILL)


def _by_position(video: Video, facts: Sequence[FrameFacts]) -> dict[int, FrameFacts]:
    """Frames by position. Frames with only unused frames between them are neighbours."""
    indices = [frame.index for frame in facts]
    steps = np.where(video.torn(indices), np.diff(indices), 1)
    return dict(zip(np.cumsum([0, *steps]).tolist(), facts, strict=False))


def _range(first: int, last: int) -> str:
    return f"frame {first}" if first == last else f"frames {first}–{last}"


JUDGES: tuple[Judge, ...] = (
    judge_cases,
    judge_splits,
    judge_dataset_file,
    judge_videos,
    judge_labels,
    judge_unmatched_masks,
    judge_shapes,
    judge_classes_alike,
    judge_frames,
    judge_masks,
)
JUDGES_OF_ALL_FRAMES: tuple[Judge, ...] = (judge_classes, judge_duplicates, judge_stretches)
