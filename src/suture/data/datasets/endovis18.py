"""EndoVis18: robotic scene segmentation, MICCAI 2018 challenge (Allan et al., 2020)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suture.core.errors import UserError
from suture.data.classes import ClassTable, Color, Raw
from suture.data.dataset import Dataset, Frame, Video
from suture.data.datasets import Source
from suture.data.images import MaskFile
from suture.data.listing import images_of, iterate_folders, last_number
from suture.data.scoring_rules import Protocol

COLORS: dict[str, Color] = {
    "background-tissue": (0, 0, 0),
    "instrument-shaft": (0, 255, 0),
    "instrument-clasper": (0, 255, 255),
    "instrument-wrist": (125, 255, 12),
    "kidney-parenchyma": (255, 55, 0),
    "covered-kidney": (24, 55, 125),
    "thread": (187, 155, 25),
    "clamps": (0, 255, 125),
    "suturing-needle": (255, 255, 125),
    "suction-instrument": (123, 15, 175),
    "small-intestine": (124, 155, 5),
    "ultrasound-probe": (12, 255, 141),
}
NAMES = tuple(COLORS)
OTHER_THREAD: Color = (128, 155, 25)
"""The colour of the thread in one public copy."""
VALUES: dict[Raw, int] = {
    **dict(enumerate(range(len(NAMES)))),
    **{color: target for target, color in enumerate(COLORS.values())},
    OTHER_THREAD: NAMES.index("thread"),
}
TRAIN_FRAMES = dict.fromkeys((*range(1, 8), *range(9, 17)), 149)
"""Lengths of the training sequences; there is no sequence 8."""
TEST_FRAMES = {1: 250, 2: 249, 3: 249, 4: 249}
PROTOCOLS = (
    Protocol(
        "endovis18",
        primary="miou_frames",
        per_sequence=True,
        background="background-tissue",
        boundary_tolerance=13,
        notes=("mIoU per frame over the classes in its ground truth, then over frames (the challenge's metric)",),
    ),
)


@dataclass(frozen=True, order=True)
class _SequenceFolder:
    """A folder `seq_N`: the sequence, or some of its files in an archive of their own."""

    test: bool
    number: int
    repairs: bool
    path: Path

    @property
    def name(self) -> str:
        return f"{'test_' if self.test else ''}seq_{self.number}"

    @property
    def has_frames(self) -> bool:
        return (self.path / "left_frames").is_dir()

    def files(self, kind: str) -> dict[str, Path]:
        place = self.path / kind
        return {stem: place / name for stem, name in images_of(place).items()} if place.is_dir() else {}


def load(root: Path) -> Dataset:
    """Read every `seq_N/left_frames` below the root, in any arrangement of the release archives.

    A sequence below a folder whose name begins with "test" is a test sequence; files below `repairs` replace others;
    masks are `labels/frameNNN.png` in the challenge's colours, or `labels/grayframeNNN.png` with ids. The release does
    not state which sequences are of one operation: each is a case of its own.
    """
    sequences: dict[str, list[_SequenceFolder]] = {}
    for folder in sorted(_find(root)):  # repairs come last
        sequences.setdefault(folder.name, []).append(folder)
    videos: list[Video] = []
    notes: list[str] = []
    unmatched: list[str] = []
    for name, parts in sequences.items():
        first = parts[0]
        lengths = TEST_FRAMES if first.test else TRAIN_FRAMES
        frames, without_frame = _frames(name, parts)
        if first.number not in lengths or (not first.test and len(frames) == TEST_FRAMES.get(first.number)):
            raise UserError(
                f"{first.path} is not a sequence of EndoVis18: it has test sequences 1 to 4, below a folder whose name "
                'begins with "test", and training sequences 1 to 7 and 9 to 16.'
            )
        if not frames:
            notes.append(f"{name} has masks but no left_frames: it is left out.")
            continue
        unmatched += without_frame
        if len(frames) != lengths[first.number]:
            notes.append(f"{name} has {len(frames)} frames, the release has {lengths[first.number]}.")
        videos.append(Video(name, name, frames, "test" if first.test else "train"))
    if not videos:
        raise UserError(f"{root} is not EndoVis18: expected folders seq_N/left_frames below it.")
    return Dataset(
        "endovis18",
        root,
        ClassTable(NAMES, tuple(COLORS.values()), VALUES),
        videos,
        protocol="endovis18",
        notes=[*_summarise(videos), *notes],
        unmatched_masks=unmatched,
    )


def _find(root: Path) -> Iterator[_SequenceFolder]:
    """Find the folders `seq_N`."""
    for folder, folders, _ in iterate_folders(root, depth=6) if root.is_dir() else ():
        if number := re.fullmatch(r"seq_([0-9]+)", folder.name):
            above = [part.lower() for part in folder.relative_to(root).parts]
            test = any(part.startswith("test") for part in above)
            yield _SequenceFolder(test, int(number[1]), any("repair" in part for part in above), folder)
            folders.clear()


def _frames(name: str, parts: list[_SequenceFolder]) -> tuple[list[Frame], list[str]]:
    """Collect the frames of a sequence from all its folders, and the masks without a frame."""
    whole = [str(part.path) for part in parts if part.has_frames and not part.repairs]
    if len(whole) > 1:
        raise UserError(f"{name} is there twice, in {' and '.join(whole)}: keep replacements below a folder `repairs`.")
    images, masks = (
        {stem: path for part in parts for stem, path in part.files(kind).items()} for kind in ("left_frames", "labels")
    )
    frames = []
    for index, stem in enumerate(sorted(images, key=lambda stem: (last_number(stem) or 0, stem))):
        colors, ids = masks.pop(stem, None), masks.pop(f"gray{stem}", None)
        mask = MaskFile(colors) if colors else MaskFile(ids, ids=True) if ids else None
        number = last_number(stem)
        frames.append(Frame(index, index if number is None else number, images[stem], mask))
    return frames, [str(path) for path in masks.values()]


def _summarise(videos: list[Video]) -> list[str]:
    train = [video for video in videos if video.split == "train"]
    missing = sorted(TRAIN_FRAMES.keys() - {int(video.id.rpartition("_")[2]) for video in train})
    notes = [f"EndoVis18: {len(train)} training and {len(videos) - len(train)} test sequences, each a case of its own."]
    if train and missing:
        notes.append(f"Training sequences that are not here: {', '.join(map(str, missing))}.")
    return notes


SOURCE = Source(lambda root: any(folder.has_frames for folder in _find(root)), load, PROTOCOLS)
