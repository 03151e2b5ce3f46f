"""EndoVis18: robotic scene segmentation, MICCAI 2018 challenge (Allan et al., 2020)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import RootModel

from suture.core.errors import UserError
from suture.core.io import read_json
from suture.core.settings import Settings
from suture.data.classes import ClassTable, Color, Raw
from suture.data.dataset import Dataset, Frame, Video
from suture.data.dataset_file import ColorField, nearest, parse
from suture.data.datasets import source
from suture.data.images import MaskFile
from suture.data.listing import images_of, iterate_folders, last_number

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
TRAIN_FRAMES = dict.fromkeys((*range(1, 8), *range(9, 17)), 149)
"""The training sequences and their lengths: there is no sequence 8."""
TEST_FRAMES = {1: 250, 2: 249, 3: 249, 4: 249}


class _Label(Settings):
    name: str
    color: ColorField
    classid: int


class _Labels(RootModel[list[_Label]]):
    pass


@dataclass(frozen=True, order=True)
class _SequenceFolder:
    """A folder `seq_N`: the sequence, or some of its files in an archive of their own."""

    test: bool
    number: int
    repairs: bool
    folder: Path

    def files(self, kind: str) -> dict[str, Path]:
        place = self.folder / kind
        return {stem: place / name for stem, name in images_of(place).items()} if place.is_dir() else {}

    @property
    def has_frames(self) -> bool:
        return (self.folder / "left_frames").is_dir()


@source("endovis18", matches=lambda root: root.is_dir() and any(part.has_frames for part in _find(root)[0]))
def load(root: Path) -> Dataset:
    """Read every `seq_N/left_frames` below the root, however the release archives are kept.

    A sequence below a folder whose name begins with "test" is a test sequence; files below `repairs` win over others;
    masks are `labels/frameNNN.png` in the colours of `labels.json` or of the challenge, or `labels/grayframeNNN.png`
    with ids. The release does not say which sequences are of one operation: each is a case of its own.
    """
    parts, label_files = _find(root)
    sequences: dict[tuple[bool, int], list[_SequenceFolder]] = {}
    for part in sorted(parts):
        sequences.setdefault((part.test, part.number), []).append(part)
    videos: list[Video] = []
    notes: list[str] = []
    unmatched: list[str] = []
    for (test, number), of_sequence in sequences.items():
        expected = TEST_FRAMES if test else TRAIN_FRAMES
        name = f"test_seq_{number}" if test else f"seq_{number}"
        if number not in expected:
            what = "test sequences 1 to 4" if test else "training sequences 1 to 7 and 9 to 16"
            raise UserError(f"{of_sequence[0].folder} is not a sequence of EndoVis18: it has the {what}.")
        frames, without_frame = _frames(name, of_sequence)
        if not frames:
            notes.append(f"{name} has masks but no left_frames: it is left out.")
            continue
        unmatched += without_frame
        if not test and len(frames) == TEST_FRAMES.get(number):
            raise UserError(
                f"{of_sequence[0].folder} has the {len(frames)} frames of a test sequence: "
                'keep test sequences below a folder whose name begins with "test" and give the folder above it.'
            )
        if len(frames) != expected[number]:
            notes.append(f"{name} has {len(frames)} frames, the release has {expected[number]}.")
        videos.append(Video(name, name, frames, "test" if test else "train"))
    if not videos:
        raise UserError(f"{root} is not EndoVis18: expected folders seq_N/left_frames below it.")
    return Dataset(
        "endovis18",
        root,
        _class_table(label_files),
        videos,
        protocol="endovis18",
        notes=[*_found(root, videos, parts, label_files), *notes],
        unmatched_masks=unmatched,
    )


def _find(root: Path) -> tuple[list[_SequenceFolder], list[Path]]:
    """The folders `seq_N` and the files `labels.json`."""
    parts: list[_SequenceFolder] = []
    labels: list[Path] = []
    for folder, folders, files in iterate_folders(root, depth=6):
        if "labels.json" in files:
            labels.append(folder / "labels.json")
        if number := re.fullmatch(r"seq_([0-9]+)", folder.name):
            above = [part.lower() for part in folder.relative_to(root).parts]
            test = any(part.startswith("test") for part in above)
            parts.append(_SequenceFolder(test, int(number[1]), any("repair" in part for part in above), folder))
            folders.clear()
    return parts, labels


def _frames(name: str, parts: list[_SequenceFolder]) -> tuple[list[Frame], list[str]]:
    """The frames of a sequence from all its folders, and the masks that have none."""
    whole = [part for part in parts if part.has_frames and not part.repairs]
    if len(whole) > 1:
        places = " and ".join(str(part.folder) for part in whole)
        raise UserError(
            f"{name} is there twice, in {places}: remove one, or keep replacements below a folder `repairs`."
        )
    images: dict[str, Path] = {}
    right: dict[str, Path] = {}
    masks: dict[str, Path] = {}
    for part in sorted(parts, key=lambda part: part.repairs):
        images |= part.files("left_frames")
        right |= part.files("right_frames")
        masks |= part.files("labels")
    frames = []
    for index, stem in enumerate(sorted(images, key=lambda stem: (last_number(stem) or 0, stem))):
        colors, ids = masks.pop(stem, None), masks.pop(f"gray{stem}", None)
        frames.append(
            Frame(
                index,
                index if (number := last_number(stem)) is None else number,
                images[stem],
                MaskFile(colors) if colors else MaskFile(ids, ids=True) if ids else None,
                {"right": right[stem]} if stem in right else {},
            )
        )
    return frames, [str(path) for path in masks.values()]


def _class_table(label_files: Iterable[Path]) -> ClassTable:
    """The challenge's classes by id and by colour: those of every `labels.json`, and the challenge's own."""
    values: dict[Raw, int] = dict(enumerate(range(len(NAMES))))
    origin: dict[Raw, Path] = {}
    for path in label_files:
        for label in parse(_Labels, read_json(path), path).root:
            if label.name not in NAMES:
                near = nearest(label.name, NAMES)
                raise UserError(f"{path} names the class {label.name!r}{near}; EndoVis18 has {', '.join(NAMES)}.")
            target = NAMES.index(label.name)
            if values.setdefault(label.color, target) != target:
                raise UserError(
                    f"{path} gives the colour {label.color} to {label.name}, {origin[label.color]} does not."
                )
            origin.setdefault(label.color, path)
    for target, color in enumerate(COLORS.values()):
        values.setdefault(color, target)
    return ClassTable(NAMES, tuple(COLORS.values()), values)


def _found(root: Path, videos: list[Video], parts: list[_SequenceFolder], label_files: list[Path]) -> list[str]:
    """What was found, in words."""
    train = [video for video in videos if video.split == "train"]
    masks = [frame.mask for video in videos for frame in video.frames if isinstance(frame.mask, MaskFile)]
    ids = sum(mask.ids for mask in masks)
    missing = sorted(TRAIN_FRAMES.keys() - {int(video.id.rpartition("_")[2]) for video in train})
    colors = ", ".join(str(path.relative_to(root)) for path in label_files) or "the challenge's table: no labels.json"
    notes = [
        f"EndoVis18: {len(train)} training and {len(videos) - len(train)} test sequences, each a case of its own.",
        f"{len(masks) - ids} masks in colours (from {colors}), {ids} in ids.",
    ]
    if train and missing:
        notes.append(f"Training sequences that are not here: {', '.join(map(str, missing))}.")
    if repairs := sum(part.repairs for part in parts):
        notes.append(f"Files of {repairs} sequences are replaced by those below `repairs`.")
    return notes
