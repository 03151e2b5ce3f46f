"""What can be wrong with a dataset: one function per kind of problem, each looking at facts that were read before."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from suture.checks.measurements import FrameFacts, MaskFacts
from suture.core.errors import UserError
from suture.core.text import NAMED, listed, number
from suture.data import messages as mends
from suture.data.classes import ClassTable, Raw, alike_but_for_capitals, nearest_color
from suture.data.dataset import SPLITS, Boxes, Dataset, Split, Video, splits_by_name
from suture.data.dataset_file import FILE_NAME, DatasetFile, Place, asked_of_videos, unanswered
from suture.data.datasets.folder import guess
from suture.data.images import low_depth_divisor
from suture.data.listing import holds_files, mask_suffixes
from suture.data.scoring_rules import protocol_named
from suture.data.view import View

Severity = Literal["fatal", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("fatal", "warning", "note")
_PLACES = 50
"""Places that a problem names; its count says how many there are."""
STILL = 0.25
"""Mean change below which a frame repeats the one before; the noise of a running camera is several times that."""
FROZEN_FRAMES = 5
COMBED_FRAMES = 3
SMOOTHED = 0.1
"""The share of in-between pixels at the edges of a mask that was resized smoothly; drawn by hand it is near 0."""
_BLOCK = 256
"""Frames that are compared with all others at once."""
FLAT = 4.0
"""The contrast below which a thumbnail shows nothing that could be recognised elsewhere."""


@dataclass(frozen=True)
class Problem:
    """One kind of trouble: how bad, how often, where first, and how to mend it."""

    code: str
    severity: Severity
    count: int
    what: str
    places: tuple[str, ...]
    """Files relative to the dataset's root, or videos with ranges of frames; not more than a few dozen."""
    fix: str

    @property
    def first(self) -> str:
        """Where to look first."""
        return self.places[0] if self.places else ""


@dataclass
class Evidence:
    """Everything the judges look at."""

    dataset: Dataset
    facts: dict[str, list[FrameFacts]]
    """The facts of each video's frames that were read, in order."""
    complete: bool
    """Whether all frames were read, so that what was not seen is not there."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Video files that cannot be read: they are no longer part of the dataset here."""

    @cached_property
    def file(self) -> DatasetFile:
        """What `dataset.yaml` says, where there is one."""
        return DatasetFile.of(self.dataset.root)

    @cached_property
    def text(self) -> str:
        """`dataset.yaml` with its comments; nothing where there is none."""
        path = self.dataset.root / FILE_NAME
        return path.read_text(encoding="utf-8-sig") if path.is_file() else ""

    @cached_property
    def guesses(self) -> set[Place]:
        """What it still marks as a guess."""
        return unanswered(self.text) if self.text else set()

    @property
    def frames(self) -> Iterator[FrameFacts]:
        return (facts for of_video in self.facts.values() for facts in of_video)

    @cached_property
    def masks(self) -> list[MaskFacts]:
        return [frame.mask for frame in self.frames if frame.mask is not None]

    @cached_property
    def ids_from_one(self) -> int | None:
        """The id beyond the class table, where the masks hold 1 … n though the table says 0 … n−1."""
        ids = [value for value in self.dataset.classes.values if isinstance(value, int)]
        if 0 not in ids or any(mask.has_zero for mask in self.masks):
            return None
        unknown = {value for mask in self.masks for value in mask.unknown}
        return max(ids) + 1 if unknown == {max(ids) + 1} else None

    @cached_property
    def mask_like(self) -> list[str]:
        """Videos made of images that hold a few values each, in flat areas, as masks do."""
        painted = {video: [frame.painted for frame in frames if frame.size] for video, frames in self.facts.items()}
        images = (video.id for video in self.dataset if video.file is None)
        return [video for video in images if painted[video] and all(painted[video]) and max(painted[video]) > 1]

    @cached_property
    def few_bits(self) -> dict[str, int]:
        """Videos of 16-bit images that are all read as black though they show something, with their largest value."""
        found = {}
        for video, frames in self.facts.items():
            tops = [-1 if frame.largest is None else frame.largest for frame in frames if frame.size]
            if min(tops, default=-1) >= 0 and low_depth_divisor(max(tops)):  # single frames may be black indeed
                found[video] = max(tops)
        return found

    def place(self, frame: FrameFacts) -> str:
        """A frame's file, or its video and number."""
        image = self.dataset[frame.video].frames[frame.index].image
        return self.relative(str(image)) if image else f"{frame.video} frame {frame.index}"

    def relative(self, name: str) -> str:
        """A file's name as seen from the dataset's root."""
        root = str(self.dataset.root)
        return os.path.relpath(name, root) if name.startswith(root + os.sep) else name

    def problem(
        self, code: str, severity: Severity, what: str, places: Iterable[str], mend: str, count: int | None = None
    ) -> Iterator[Problem]:
        """A problem if it has any place, else nothing."""
        found = [self.relative(place) for place in places]
        if found:
            yield Problem(code, severity, count or len(found), what, tuple(found[:_PLACES]), mend)


ASKED = "unpainted"
"""The problem that a draft asks about: it says nothing against the data, and only the user can answer it."""
UNLABELLED = frozenset(
    {"masks-for-frames", "no-dataset-file", "no-label", "no-mask-fits", "no-masks", "no-masks-in-train"}
)
"""Why there may be nothing to learn from."""


def judge(evidence: Evidence) -> list[Problem]:
    """All problems, the worst first."""
    judges = JUDGES + (JUDGES_OF_ALL_FRAMES if evidence.complete else ())
    found = [problem for look in judges for problem in look(evidence)]
    return sorted(found, key=lambda problem: SEVERITIES.index(problem.severity))


def divided_cases(evidence: Evidence) -> Iterator[Problem]:
    """A case in two splits: its test scores say nothing about a new patient."""
    dataset = evidence.dataset
    divided = dataset.divided_cases
    places = [
        f"{case} ({', '.join(f'{v.id} in {v.split}' for v in dataset.cases[case] if v.split)})" for case in divided
    ]
    what = f"{number(len(divided), 'case')} in more than one split"
    if dataset.divides_cases:
        mend = "this protocol does so on purpose: say of its scores that they are not of new patients"
        yield from evidence.problem("divided-case", "warning", what, places, mend)
    else:
        yield from evidence.problem("divided-case", "fatal", what, places, "put all videos of a case into one split")


def misnamed_splits(evidence: Evidence) -> Iterator[Problem]:
    """A video that says test in train or val, or the other way round; its case's name counts before its own, and a list
    before both."""
    said = splits_by_name({video.id: f"{video.case} {video.id}" for video in evidence.dataset})
    said |= {video: next(iter(found)) for video, found in evidence.dataset.listed.items() if len(found) == 1}
    turned = {("test", "train"), ("train", "test"), ("test", "val")}
    if "test" in said.values():  # else val is often taken as the test
        turned.add(("val", "test"))
    places = [f"{v.id} in {v.split}" for v in evidence.dataset if (said.get(v.id), v.split) in turned]
    what = f"{number(len(places), 'video')} in another split than the name, the folder or a list says"
    mend = (
        "move the case under `split` in dataset.yaml, or leave it if it is meant; scores are then not of the official "
        "split"
    )
    yield from evidence.problem("misnamed-split", "warning", what, places, mend)


def divided_by_lists(evidence: Evidence) -> Iterator[Problem]:
    """Cases of which the lists beside the data put some frames into one split and some into another, until the user has
    said where they belong."""
    dataset = evidence.dataset
    guessed = _guessed_splits(evidence) if dataset.listed else set()
    places = []
    for case, videos in dataset.cases.items():
        if videos[0].split not in guessed:
            continue
        found = sum((dataset.listed.get(video.id, Counter()) for video in videos), Counter[Split]())
        parts = [f"{number(found[split], 'line')} in {split}" for split in SPLITS if found[split]]
        if len(parts) > 1:
            places.append(f"{case}: {listed(parts)}")
    what = f"{number(len(places), 'case')} that the lists divide: by them, what was learnt from would be scored"
    mend = (
        "put each case into one split as a whole in dataset.yaml, without the mark `# guess`, and say of the scores "
        "that they are not by the lists"
    )
    yield from evidence.problem("divided-by-list", "warning", what, places, mend)


def _guessed_splits(evidence: Evidence) -> set[Split | None]:
    """The splits whose cases nobody has stated in `dataset.yaml`; while there is one, cases in none are open too."""
    stated = evidence.file.split
    if stated is None:
        return {*SPLITS, None}
    marked = {split for split in stated if ("split", split) in evidence.guesses}
    return {*marked, None} if marked else set()


def guessed_cases(evidence: Evidence) -> Iterator[Problem]:
    """What the draft took for one operation, until the user has said whether it is: a split keeps it together."""
    cases = {case: videos for case, videos in evidence.file.cases.items() if ("cases", case) in evidence.guesses}
    count = sum(map(len, cases.values()))
    what = (
        f"{number(count, 'video')} joined to {number(len(cases), 'case')} by a guess, from folders and names: a case "
        "is one operation, and is in one split as a whole"
    )
    places = [f"{case} ({listed(videos, NAMED)})" for case, videos in cases.items()]
    mend = (
        "take the mark `# guess` off under `cases` in dataset.yaml if it is right; else list there the videos of each "
        "operation, also of one that is a single video, and name the new cases under `split`"
    )
    severity: Severity = "warning" if len(evidence.dataset.cases) == 1 else "note"  # then there is nothing to test on
    yield from evidence.problem("guessed-case", severity, what, places, mend)


def several_operations(evidence: Evidence) -> Iterator[Problem]:
    """What the draft asks: whether images of one folder are several videos. Cases, split and scores hang on it."""
    asked = asked_of_videos(evidence.text) if "videos_by" not in evidence.file.model_fields_set else ""
    if asked:
        what = f"The images of a folder are one video, but their names may be those of several operations: {asked}"
        mend = (
            "say `videos_by: name` in dataset.yaml if they are, and draft again with --write --force; "
            "`videos_by: folder` if not"
        )
        yield Problem("several-operations", "warning", 1, what, (), mend)


def missing_videos(evidence: Evidence) -> Iterator[Problem]:
    """What is named in `dataset.yaml`, and is not there."""
    places = evidence.dataset.missing_videos
    what = f"{number(len(places), 'name')} of no video or case that is there"
    yield from evidence.problem("missing-video", "fatal", what, places, mends.MISSING)


def protocol(evidence: Evidence) -> Iterator[Problem]:
    """Rules of scoring that are not there, or not for these classes: a training would be refused."""
    try:
        protocol_named(evidence.dataset.protocol).validate_classes(evidence.dataset.classes.names)
    except UserError as error:
        what = str(error).removesuffix(f": {mends.PROTOCOL}.")
        yield Problem("protocol", "fatal", 1, what, (), mends.PROTOCOL)


def short_videos(evidence: Evidence) -> Iterator[Problem]:
    """Videos that are no videos."""
    short = [video for video in evidence.dataset if len(video.usable) < 2]
    thinned = [video.id for video in short if len(video) - len(video.excluded) > 1]
    what = f"{number(len(thinned), 'video')} of which take_every leaves one frame or none"
    yield from evidence.problem("few-taken", "warning", what, thinned, "give a smaller take_every in dataset.yaml")
    single = [video.id for video in short if len(video) - len(video.excluded) == 1]
    mend = (
        "give the whole video, or put the frames of one video into one folder: methods learn from neighbouring frames"
    )
    yield from evidence.problem("one-frame", "warning", f"{number(len(single), 'video')} of one frame", single, mend)
    empty = [video.id for video in short if len(video) == len(video.excluded)]
    what = f"{number(len(empty), 'video')} with every frame excluded"
    yield from evidence.problem("all-excluded", "warning", what, empty, "look at the list of excluded frames")


def cut_videos(evidence: Evidence) -> Iterator[Problem]:
    """Files that end before their recording does: its rest would be missed by nobody."""
    missing = {video.id: video.file.missing for video in evidence.dataset if video.file}
    places = [
        f"{video} (about {count:,} after frame {len(evidence.dataset[video]) - 1:,})"
        for video, count in missing.items()
        if count
    ]
    what = f"{number(len(places), 'video')} cut off: frames are missing at the end"
    yield from evidence.problem("cut-video", "warning", what, places, "copy the files again; what is there can be used")


def masks_for_frames(evidence: Evidence) -> Iterator[Problem]:
    """Folders of masks that were taken for videos."""
    places = [evidence.place(evidence.facts[video][0]) for video in evidence.mask_like]
    what = f"{number(len(places), 'video')} of images that look like masks, not frames: each holds only a few values"
    mend = (
        "frames or video files are expected in a folder `videos` and the masks in `masks` beside it: give the folder "
        "that holds both, or name them in dataset.yaml"
    )
    if places and (named := evidence.file.mask_places):
        both = ", ".join([*named, places[0].rpartition("/")[0] or "."])
        mend = f"where they are masks too, name their folder beside the other in dataset.yaml: `masks: [{both}]`"
    yield from evidence.problem("masks-for-frames", "fatal", what, places, mend)


def missing_labels(evidence: Evidence) -> Iterator[Problem]:
    """Nothing to learn from, or nothing to score on."""
    dataset = evidence.dataset
    labelled = {split: sum(len(video.with_mask) for video in dataset.split(split)) for split in SPLITS}
    if unread := list(unread_masks(evidence)):
        yield from unread
    elif not any(video.with_mask for video in dataset):
        mend = "`suture select` says which frames to label first"
        if not (evidence.mask_like or dataset.unmatched_masks or dataset.doubtful_masks or dataset.boxes):
            yield Problem("no-masks", "note", len(dataset.videos), "No frame has a mask", (), mend)
    elif not any(video.split for video in dataset):
        mend = "say under `split` in dataset.yaml which cases are for train, val and test"
        yield Problem("no-split", "warning", len(dataset.videos), "No video is assigned to a split", (), mend)
    elif not labelled["train"]:
        mend = "move labelled videos into train"
        yield Problem("no-masks-in-train", "fatal", 1, "No frame of the split train has a mask", (), mend)
    elif not labelled["test"]:
        mend = "move some labelled cases into test, or judge by cross-validation"
        yield Problem(
            "no-masks-in-test", "note", 1, "No frame of the split test has a mask: nothing to score on", (), mend
        )


def unread_masks(evidence: Evidence) -> Iterator[Problem]:
    """Folders of masks of which nothing is read; an empty one waits for them."""
    dataset = evidence.dataset
    placed = any(v.with_mask for v in dataset) or dataset.unmatched_masks or dataset.doubtful_masks or dataset.boxes
    if placed or not dataset.root.is_dir():
        return
    if named := evidence.file.mask_places:
        full = [place for place in named if holds_files(dataset.root / place)]
        what = "Masks that dataset.yaml names, but no frame is labelled in them"
        yield from evidence.problem("no-label", "fatal", what, full, mends.NO_LABEL)
        return
    places = sorted(str(place) for place in guess(dataset.root)[1] if holds_files(place)) or dataset.unread_masks
    there = (dataset.root / FILE_NAME).exists()
    again = " --force" if there else ""
    mend = f"`suture check {dataset.root} --write{again}` drafts it: say there what the values of the masks mean"
    silent = "dataset.yaml does not say" if there else "no dataset.yaml says"
    what = f"Masks are here, but {silent} what their values mean: they are left out"
    yield from evidence.problem("no-dataset-file", "fatal", what, places, mend)


def unmatched_masks(evidence: Evidence) -> Iterator[Problem]:
    """Labels that would be lost without a word."""
    dataset = evidence.dataset
    names = dataset.unmatched_masks
    what = f"{number(len(names), 'mask')} without a frame"
    if any(video.with_mask for video in dataset):
        yield from evidence.problem("mask-without-frame", "warning", what, names, mends.NAME)
    else:
        # What stands behind a frame's name is left out only where it is the same in all: others may be of other kinds.
        ends = Counter(end for name in names for end in [*mask_suffixes(os.path.splitext(name)[0])][-1:])
        what, mend = f"{what}, and none with one", mends.NAME
        if 1 < len(ends) <= NAMED:
            what += f"; names end in {listed([f'{end} ({count:,})' for end, count in ends.items()])}"
            mend = f"{mends.ENDS}, or {mend}"
        yield from evidence.problem("no-mask-fits", "fatal", what, names, mend)
    late = {found.video: found.in_words() for found in dataset.late_masks}
    what = "{} with masks past the end, whose other masks may be on wrong frames too"
    yield from _of_videos(evidence, "mask-past-end", what, late, mends.NUMBERS)
    places = [mask.in_words(evidence.relative) for mask in dataset.doubtful_masks]
    what = f"{number(len(places), 'mask')} left out: the name fits several frames, or one that has a mask already"
    yield from evidence.problem("doubtful-mask", "fatal", what, places, mends.DOUBTFUL)
    masked = [mask.name for video in evidence.dataset for i, mask in video.masks.items() if i in video.excluded]
    what = f"{number(len(masked), 'mask')} on excluded frames: left out with them"
    mend = "take the frames off the list of excluded ones if they are to be learnt from"
    yield from evidence.problem("mask-on-excluded", "note", what, masked, mend)


def lost_shapes(evidence: Evidence) -> Iterator[Problem]:
    """Annotations of exports of which nothing comes into a mask."""
    of_boxes = [found for found in evidence.dataset.boxes if not found.shapes]
    of_both = [found for found in evidence.dataset.boxes if found.shapes]
    kinds: tuple[tuple[str, Severity, list[Boxes]], ...] = (
        ("boxes-only", "fatal", of_boxes),
        ("boxes", "warning", of_both),
    )
    for code, severity, boxes in kinds:
        count = sum(found.boxes for found in boxes)
        what = f"{number(count, 'annotation')} left out: without a shape"
        places = [found.in_words(evidence.relative) for found in boxes]
        yield from evidence.problem(code, severity, what, places, mends.BOXES, count=count)
    covered = {mask.name: mask.covered for mask in evidence.masks if mask.covered}
    count = sum(covered.values())
    what = f"{number(count, 'shape')} wholly covered by later ones of other classes"
    yield from evidence.problem("covered-shape", "warning", what, covered, mends.COVERED, count=count)


def labels_by_id(evidence: Evidence) -> Iterator[Problem]:
    """Labels and values of images that count as one class, though only their numbers are the same."""
    if found := evidence.dataset.labels_by_id:
        yield Problem("label-by-id", "warning", len(found), mends.by_id(found), (), mends.BY_ID)


def names_alike(evidence: Evidence) -> Iterator[Problem]:
    """Classes that were probably meant as one."""
    for first, *others in alike_but_for_capitals(evidence.dataset.classes.names):
        what = f"{number(1 + len(others), 'class', 'classes')} whose names differ in capitals only: "
        mend = f"if they are one, write `merge: {first}` in dataset.yaml into the line of {listed(others)}"
        yield Problem("class-alike", "warning", 1 + len(others), what + listed([first, *others], NAMED), (), mend)


def undecodable(evidence: Evidence) -> Iterator[Problem]:
    """Videos, frames and masks that cannot be read."""
    videos = [error.removesuffix(".") for error in evidence.broken.values()]
    what = f"{number(len(videos), 'video')} that cannot be read"
    yield from evidence.problem("bad-video", "fatal", what, videos, "copy or export the files again, or take them away")
    frames = [evidence.place(frame) for frame in evidence.frames if frame.size is None]
    what = f"{number(len(frames), 'frame')} that cannot be decoded"
    yield from evidence.problem(
        "bad-frame", "fatal", what, frames, "copy the files again, or list the frames in `exclude`"
    )
    masks = [mask.name for mask in evidence.masks if mask.error]
    what = f"{number(len(masks), 'mask')} that cannot be decoded"
    yield from evidence.problem("bad-mask", "fatal", what, masks, "export the masks again, or remove them")


def sizes(evidence: Evidence) -> Iterator[Problem]:
    """Masks that do not lie on their frame."""
    differing = [
        (frame.mask, frame.size)
        for frame in evidence.frames
        if frame.mask and frame.mask.size and frame.size and frame.mask.size != frame.size
    ]
    if differing:
        mask, size = differing[0]
        assert mask.size is not None
        what = (
            f"{number(len(differing), 'mask')} of another size than the frame: "
            f"the first is {mends.on_frame(mask.size, size)}"
        )
        yield from evidence.problem("mask-size", "fatal", what, [mask.name for mask, _ in differing], mends.SIZE)


def changing_sizes(evidence: Evidence) -> Iterator[Problem]:
    """Frames that change size within a video: one view is used for all of them."""
    places: dict[str, str] = {}
    for video, frames in evidence.facts.items():
        sized = [frame for frame in frames if frame.size]
        if other := next((frame for frame in sized if frame.size != sized[0].size), None):
            size, first = ("×".join(map(str, frame.size or ())) for frame in (other, sized[0]))
            places[video] = f"{evidence.place(other)} ({size}, not {first})"
    what = "{} whose frames change size"
    yield from _of_videos(evidence, "size-change", what, places, mends.ONE_SIZE)


def views(evidence: Evidence) -> Iterator[Problem]:
    """Views that were stated for other frames: they show nothing of these."""
    wrong: dict[str, str] = {}
    for video in evidence.dataset:
        size = next((frame.size for frame in evidence.facts[video.id] if frame.size), None)
        if size and isinstance(video.view_setting, View):
            try:
                video.view_setting.within(*size, video.id)
            except UserError as error:
                wrong[video.id] = str(error).removesuffix(".")
    what = "{} with a `view` that shows nothing of the frames"
    yield from _of_videos(evidence, "view", what, wrong, "state `view` in pixels of these frames, or as auto")


def _of_videos(evidence: Evidence, code: str, what: str, places: Mapping[str, str], mend: str) -> Iterator[Problem]:
    """What a training would refuse; of videos in no split, which it never reads, a warning."""
    kinds: tuple[tuple[Severity, bool], ...] = (("fatal", True), ("warning", False))
    for severity, used in kinds:
        found = [place for video, place in places.items() if (evidence.dataset[video].split is not None) == used]
        yield from evidence.problem(code, severity, what.format(number(len(found), "video")), found, mend)


def mask_values(evidence: Evidence) -> Iterator[Problem]:
    """What stands in the masks against what the class table says; each mask is reported for one cause only."""
    by_cause: dict[str, list[MaskFacts]] = defaultdict(list)
    for mask in evidence.masks:
        if cause := _cause(mask, evidence):
            by_cause[cause].append(mask)
    explain: dict[str, tuple[Severity, str, str]] = {
        "colours-for-ids": (
            "fatal",
            "in colours, though the class table is given by ids",
            "give each class its colour as `value` in dataset.yaml (`suture check --write` drafts it), "
            "or save the masks as one channel of ids",
        ),
        "ids-for-colours": (
            "fatal",
            "in grey values, though the class table is given by colours",
            "give each class its id as `value` in dataset.yaml, or export the masks in colour",
        ),
        "jpeg-mask": (
            "fatal",
            "saved with lossy compression (JPEG): the values have drifted from those of the classes",
            "export the masks again as PNG; a compressed mask cannot be mended",
        ),
        "smoothed-mask": (
            "fatal",
            "with smooth edges, as of anti-aliasing or smooth resizing: the pixels there hold values in between",
            "export without anti-aliasing, and resize masks by the nearest pixel",
        ),
        "ids-from-one": (
            "fatal",
            f"whose ids run from 1 to {evidence.ids_from_one}, though the class table begins with 0",
            "raise each `value` of the class table by one, or lower the ids in the masks by one",
        ),
    }
    for code, (severity, what, mend) in explain.items():
        masks = by_cause[code]
        yield from evidence.problem(
            code, severity, f"{number(len(masks), 'mask')} {what}", [mask.name for mask in masks], mend
        )
    unknown = by_cause["unknown-value"]
    counts: Counter[Raw] = Counter()
    for mask in unknown:
        counts.update(mask.unknown)
    kind = "colours" if evidence.dataset.classes.by_color else "ids"
    almost = {value: _almost(value, evidence.dataset.classes) for value in counts}
    values = [f"{_value(value)} ({count} pixels{almost[value]})" for value, count in counts.most_common()]
    what = f"{number(len(unknown), 'mask')} with {kind} that the class table does not know: {listed(values, 4)}"
    mend = mends.DRIFTED if all(almost.values()) else mends.UNKNOWN
    if any(almost.values()) and not all(almost.values()):
        mend = f"{mends.DRIFTED}; others: {mends.UNKNOWN}"
    if 255 in counts or (255, 255, 255) in counts:
        mend += "; 255 often marks pixels to leave out, said by a class with `ignore: true`"
    yield from evidence.problem("unknown-value", "fatal", what, [mask.name for mask in unknown], mend)


def unpainted(evidence: Evidence) -> Iterator[Problem]:
    """Pixels without a label, where nobody has said what they mean."""
    masks = [mask for mask in evidence.masks if mask.unstated]
    total = sum(mask.size[0] * mask.size[1] for mask in evidence.masks if mask.size)
    share = sum(mask.unstated for mask in masks) / total if total else 0
    what = f"{number(len(masks), 'mask')} with unpainted pixels ({share:.1%} of all) whose meaning is not stated"
    yield from evidence.problem(ASKED, "fatal", what, [mask.name for mask in masks], mends.UNPAINTED)


def absent_classes(evidence: Evidence) -> Iterator[Problem]:
    """Classes that cannot be learned or cannot be scored."""
    seen: dict[str, set[int]] = defaultdict(set)
    for frame in evidence.frames:
        if frame.mask and frame.mask.pixels is not None:
            seen[evidence.dataset[frame.video].split or ""].update(np.flatnonzero(frame.mask.pixels).tolist())
    names = evidence.dataset.classes.names
    if not any(seen.values()):
        return
    problem = nothing_to_learn([names[n] for n in sorted(seen["train"]) if n < len(names)]) if seen["train"] else None
    # What the table does not know is counted as ignored, and told as what it is: here it would mislead.
    if problem and not any(mask.unknown or mask.unstated for mask in evidence.masks):
        yield problem
        return
    outside = sum((mask.outside for mask in evidence.masks if mask.outside is not None), np.zeros(len(names), int))
    absent = [n for n in range(len(names)) if not any(n in found for found in seen.values())]
    hidden = [f"{names[n]} ({number(int(outside[n]), 'pixel')})" for n in absent if outside[n]]
    where = "with pixels outside the view only, where nothing is learnt or scored"
    yield from _of_classes("class-outside-view", "warning", hidden, where, mends.VIEW)
    never = [names[n] for n in absent if not outside[n]]
    mend = "look whether its value in the class table is right; if it is, leave the class out or merge it"
    yield from _of_classes("class-never", "warning", never, "without a single pixel", mend)
    if not seen["train"]:
        return
    others = set().union(*(seen[split] for split in ("val", "test")))
    unlearnable = [names[position] for position in sorted(others - seen["train"]) if position < len(names)]
    mend = "move a case that shows it into train, or merge it with another class"
    yield from _of_classes("class-not-in-train", "warning", unlearnable, "in test or val but not in train", mend)
    scored: Split = "test" if seen["test"] else "val"
    missed = sorted(seen["train"] - seen[scored]) if seen[scored] else []
    unscored = [names[position] for position in missed if position < len(names)]
    mend = f"such a class counts as 0 where it is predicted; if several cases show it, move one of them into {scored}"
    yield from _of_classes("class-not-scored", "note", unscored, f"in train but not in {scored}", mend)


def nothing_to_learn(shown: Sequence[str]) -> Problem | None:
    """What is wrong with training labels that show so few classes, of which `suture train` tells too."""
    if not shown:
        what = "Every pixel of the labelled training frames is ignored: there is nothing to learn from"
        return Problem("all-ignored", "fatal", 1, what, (), mends.IGNORED)
    if len(shown) == 1:
        what = f"The labelled training frames show no class but {shown[0]}: there is nothing to tell apart"
        return Problem("one-class", "fatal", 1, what, (), mends.ONE_CLASS)
    return None


def _of_classes(code: str, severity: Severity, names: Sequence[str], where: str, mend: str) -> Iterator[Problem]:
    """A problem of these classes, if there are any; they have no place to look at."""
    if names:
        what = f"{number(len(names), 'class', 'classes')} {where}: {listed(names, NAMED)}"
        yield Problem(code, severity, len(names), what, (), mend)


def duplicates(evidence: Evidence) -> Iterator[Problem]:
    """Frames that lie in two splits: what was trained on is then tested on."""
    dataset = evidence.dataset
    of_split: dict[str, list[FrameFacts]] = defaultdict(list)
    for frame in evidence.frames:
        if frame.thumb is not None and frame.thumb.std() > FLAT and not frame.black:
            of_split[dataset[frame.video].split or ""].append(frame)
    same: list[tuple[FrameFacts, FrameFacts]] = []
    alike: list[tuple[FrameFacts, FrameFacts]] = []
    for one, other in (("train", "test"), ("train", "val"), ("val", "test")):
        known = {frame.digest: frame for frame in reversed(of_split[one])}
        same += [(known[frame.digest], frame) for frame in of_split[other] if frame.digest in known]
        others = [frame for frame in of_split[other] if frame.digest not in known]
        # Frames of one case resemble each other anyway, and a divided case is said elsewhere.
        alike += [
            (first, second)
            for first, second in _look_alikes(list(known.values()), others)
            if dataset[first.video].case != dataset[second.video].case
        ]
    mend = "put the videos into one case and split; if it is a title or a test picture, list the frames in `exclude`"
    meant = dataset.divides_cases and all(dataset[a.video].case == dataset[b.video].case for a, b in same)
    what = f"{number(len(same), 'frame')} of one split again in another, pixel for pixel"
    places = [f"{evidence.place(a)} = {evidence.place(b)}" for a, b in same]
    yield from evidence.problem("duplicate-frame", "warning" if meant else "fatal", what, places, mend)
    what = f"{number(len(alike), 'frame')} of one split almost the same in another"
    places = [f"{evidence.place(a)} ≈ {evidence.place(b)}" for a, b in alike]
    yield from evidence.problem("similar-frame", "warning", what, places, f"look at them; if they are copies, {mend}")


def few_bits(evidence: Evidence) -> Iterator[Problem]:
    """Frames whose values fill only the lower end of their 16 bits, of which the upper 8 are read."""
    if found := evidence.few_bits:
        videos, largest = number(len(found), "video"), max(found.values())
        what = f"{videos} of 16-bit images with no value above {largest}: read as black, since 65535 is white"
        places = [evidence.place(evidence.facts[video][0]) for video in found]
        mend = f"save the frames with 8 bits: divide their values by {low_depth_divisor(largest)}"
        yield from evidence.problem("few-bits", "fatal", what, places, mend)


def stretches(evidence: Evidence) -> Iterator[Problem]:
    """Black, frozen and interlaced stretches."""
    exclude = "list them in a file named by `exclude` in dataset.yaml (video, first, last, reason)"
    deinterlace = "deinterlace the recording before use (ffmpeg's bwdif, for example)"
    kinds: tuple[tuple[str, Callable[[FrameFacts, FrameFacts | None], bool], int, int, str, str], ...] = (
        ("black", lambda frame, _: frame.black, 1, 1, "black", exclude),
        ("frozen", _repeats, FROZEN_FRAMES - 1, 1, "frozen: the same picture again and again", exclude),
        (
            "interlaced",
            lambda frame, _: frame.combed,
            COMBED_FRAMES,
            5,
            "interlaced: lines of two moments",
            deinterlace,
        ),
    )
    standing = {video: _standing(evidence.dataset[video], frames) for video, frames in evidence.facts.items()}
    for code, holds, shortest, gap, what, mend in kinds:
        found: list[tuple[str, int, int]] = []
        count = 0
        for video, at in standing.items():
            if video in evidence.mask_like or (code == "black" and video in evidence.few_bits):
                continue
            marked = [place for place, frame in at.items() if holds(frame, at.get(place - 1))]
            runs = [(run[0], run[-1]) for run in _runs(marked, gap) if len(run) >= shortest]
            if code == "frozen":
                runs = [(first - 1, last) for first, last in runs]  # with the frame that is repeated
            found += [(video, at[first].index, at[last].index) for first, last in runs]
            count += sum(last - first + 1 for first, last in runs)
        places = [f"{video} {_range(first, last)}" for video, first, last in found]
        videos = number(len({video for video, _, _ in found}), "video")
        yield from evidence.problem(
            code, "warning", f"{number(count, 'frame')} in {videos} {what}", places, mend, count=count
        )


JUDGES_OF_MASKS: tuple[Callable[[Evidence], Iterator[Problem]], ...] = (undecodable, sizes, mask_values, unpainted)
JUDGES: tuple[Callable[[Evidence], Iterator[Problem]], ...] = (
    several_operations,
    divided_cases,
    divided_by_lists,
    guessed_cases,
    misnamed_splits,
    missing_videos,
    protocol,
    masks_for_frames,
    missing_labels,
    unmatched_masks,
    views,
    lost_shapes,
    labels_by_id,
    names_alike,
    *JUDGES_OF_MASKS,
    changing_sizes,
    short_videos,
    cut_videos,
    few_bits,
)
JUDGES_OF_ALL_FRAMES: tuple[Callable[[Evidence], Iterator[Problem]], ...] = (absent_classes, duplicates, stretches)


def _cause(mask: MaskFacts, evidence: Evidence) -> str | None:
    """The one reason for what is wrong with a mask's values; the others would only follow from it."""
    if mask.error:
        return None
    if is_jpeg(mask.name) or (mask.distinct > 12 and mask.near > 0.6):
        return "jpeg-mask"
    if mask.colored:
        return "colours-for-ids"
    if evidence.dataset.classes.by_color and mask.unknown and all(_is_grey(value) for value in mask.unknown):
        return "ids-for-colours"
    if mask.between > SMOOTHED:
        return "smoothed-mask"
    if evidence.ids_from_one in mask.unknown:
        return "ids-from-one"
    return "unknown-value" if mask.unknown else None


def is_jpeg(name: str) -> bool:
    """Whether a mask is compressed, so that its values are those of no class."""
    return name.lower().endswith((".jpg", ".jpeg"))


def _is_grey(value: Raw) -> bool:
    return isinstance(value, tuple) and len(set(value)) == 1


def _repeats(frame: FrameFacts, before: FrameFacts | None) -> bool:
    """Whether a frame shows the same as the one before it; black frames are told elsewhere."""
    if before is None or frame.thumb is None or frame.black:
        return False
    if frame.change is not None:
        return frame.change < STILL
    # The two were read by different processes: the thumbnails must do.
    return before.thumb is not None and bool(np.abs(frame.thumb.astype(int) - before.thumb).mean() < STILL)


def _standing(video: Video, frames: Sequence[FrameFacts]) -> dict[int, FrameFacts]:
    """The frames by their places in the video, next to each other where only frames lie between that take no part."""
    indices = [frame.index for frame in frames]
    steps = np.where(video.torn(indices), np.diff(indices), 1)
    return dict(zip(np.cumsum([0, *steps]).tolist(), frames, strict=False))


def _look_alikes(
    ones: Sequence[FrameFacts], others: Sequence[FrameFacts], difference: float = 2.0
) -> Iterator[tuple[FrameFacts, FrameFacts]]:
    """For each of the others the frame that looks most like it, where the two differ by no more than coding does."""
    # In order of brightness, a block of frames needs to be compared only with those that are about as bright.
    ones, others = sorted(ones, key=_brightness), sorted(others, key=_brightness)
    known = np.array([_coarse(frame) for frame in ones])
    brightness = np.array([_brightness(frame) for frame in ones])
    for begin in range(0, len(others), _BLOCK):
        block = others[begin : begin + _BLOCK]
        darkest, brightest = _brightness(block[0]) - difference, _brightness(block[-1]) + difference
        start, stop = np.searchsorted(brightness, [darkest, brightest])
        if start == stop:
            continue
        near, sought = known[start:stop], np.array([_coarse(frame) for frame in block])
        nearest = np.argmin((near**2).sum(axis=1) - 2 * sought @ near.T, axis=1)
        differences = np.abs(near[nearest] - sought).max(axis=1)
        for other, position, largest in zip(block, nearest.tolist(), differences.tolist(), strict=True):
            if largest <= 2 * difference:
                yield ones[start + position], other


def _brightness(frame: FrameFacts) -> float:
    assert frame.thumb is not None
    return float(frame.thumb.mean())


def _coarse(frame: FrameFacts) -> np.ndarray:
    """The thumbnail as 64 numbers."""
    assert frame.thumb is not None
    side = frame.thumb.shape[0] // 8
    return frame.thumb.reshape(8, side, 8, side).mean(axis=(1, 3)).ravel().astype(np.float32)


def _runs(indices: Sequence[int], gap: int) -> Iterator[list[int]]:
    """Split rising indices wherever the step is larger than `gap`.

    >>> list(_runs([1, 2, 3, 7, 8], 1))
    [[1, 2, 3], [7, 8]]
    """
    run: list[int] = []
    for index in indices:
        if run and index - run[-1] > gap:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def _range(first: int, last: int) -> str:
    return f"frame {first}" if first == last else f"frames {first}–{last}"


def _almost(value: Raw, classes: ClassTable) -> str:
    """Which class's colour it almost is, in words."""
    colors = [other for other in classes.values if isinstance(other, tuple)]
    near = nearest_color(value, colors) if isinstance(value, tuple) else None
    if near is None:
        return ""
    target = classes.values[near]
    return f", almost that of {classes.names[target] if target < len(classes) else 'an ignored class'}"


def _value(value: Raw) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
