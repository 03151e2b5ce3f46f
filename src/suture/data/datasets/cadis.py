"""CaDIS: cataract surgery, 25 videos, 4670 frames, all labelled (Grammatikopoulou et al., 2021)."""

import re
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import read_text
from suture.core.text import short
from suture.data.classes import IGNORE, ClassTable, Raw, default_colors
from suture.data.dataset import Dataset, Split, Video
from suture.data.datasets import Source, make_frames
from suture.data.listing import images_of, iterate_folders, last_number
from suture.data.scoring_rules import Protocol

SPLIT: dict[Split, tuple[int, ...]] = {
    "train": (1, 3, 4, 6, 8, 9, 10, 11, 13, 14, 15, 17, 18, 19, 20, 21, 23, 24, 25),
    "val": (5, 7, 16),
    "test": (2, 12, 22),
}
ANATOMY = ("Pupil", "Surgical Tape", "Hand", "Eye Retractors", "Iris", "Skin", "Cornea")
INSTRUMENTS = (
    *("Hydrodissection Cannula", "Viscoelastic Cannula", "Capsulorhexis Cystotome", "Rycroft Cannula", "Bonn Forceps"),
    *("Primary Knife", "Phacoemulsifier Handpiece", "Lens Injector", "I/A Handpiece", "Secondary Knife"),
    *("Micromanipulator", "I/A Handpiece Handle", "Capsulorhexis Forceps", "Rycroft Cannula Handle"),
    *("Phacoemulsifier Handpiece Handle", "Capsulorhexis Cystotome Handle", "Secondary Knife Handle"),
    *("Lens Injector Handle", "Suture Needle", "Needle Holder", "Charleux Cannula", "Primary Knife Handle"),
    *("Vitrectomy Handpiece", "Mendez Ring", "Marker", "Hydrodissection Cannula Handle", "Troutman Forceps"),
    *("Cotton", "Iris Hooks"),
)
RAW = ANATOMY + INSTRUMENTS
"""Names of the raw ids 0–35."""
TASK_2 = {
    "Cannula": (7, 8, 10, 20, 27, 32),
    "Cap. Cystotome": (9, 22),
    "Tissue Forceps": (11, 33),
    "Primary Knife": (12, 28),
    "Ph. Handpiece": (13, 21),
    "Lens Injector": (14, 24),
    "I/A Handpiece": (15, 18),
    "Secondary Knife": (16, 23),
    "Micromanipulator": (17,),
    "Cap. Forceps": (19,),
}


PROTOCOLS = (
    Protocol(
        "cadis",
        boundary_tolerance=9,
        notes=("one confusion matrix over the split; mIoU and PAC over the classes that occur",),
    ),
)


def class_table(task: int) -> ClassTable:
    """Return the classes of task 1 (8), 2 (17) or 3 (25); raw ids without a class are ignored."""
    tasks: dict[int, dict[str, tuple[int, ...]]] = {
        1: {"Instrument": tuple(range(7, 36))},
        2: TASK_2,
        3: {RAW[raw]: (raw,) for raw in range(7, 25)},
    }
    values: dict[Raw, int] = {raw: raw if raw < 7 else IGNORE for raw in range(36)}
    for target, raws in enumerate(tasks[task].values(), start=len(ANATOMY)):
        values.update(dict.fromkeys(raws, target))
    names = (*ANATOMY, *tasks[task])
    return ClassTable(names, tuple(default_colors(names)), values)


def _find_folders(root: Path) -> dict[int, Path]:
    """Find the folder of each video by its number."""
    found: dict[int, Path] = {}
    for folder, folders, _ in iterate_folders(root, depth=3) if root.is_dir() else ():
        name = re.fullmatch(r"Video([0-9]+)", folder.name)
        if name and "Images" in folders:
            number = int(name[1])
            if number in found:
                raise UserError(f"{root} holds video {number} twice, in {found[number]} and {folder}: remove one.")
            found[number] = folder
            folders.clear()
    return dict(sorted(found.items()))


def load(root: Path, task: int = 1, leave_out: str | Path | None = None) -> Dataset:
    """Read `VideoNN/Images/VideoN_frameNNNNNN.png` and `VideoNN/Labels/…` of the same names.

    Args:
        root: The folder with the folders of the videos, each of which is a case.
        task: The class table: 1 (8 classes), 2 (17) or 3 (25).
        leave_out: List of frames to exclude, such as mislabelled ones: a text file with one frame's name per line.
    """
    if task not in (1, 2, 3) or isinstance(task, bool):
        raise UserError(f"CaDIS has no task {task!r}: it has the tasks 1 (8 classes), 2 (17) and 3 (25).")
    split_of = {number: split for split, numbers in SPLIT.items() for number in numbers}
    videos: list[Video] = []
    unmatched: list[str] = []
    for number, folder in _find_folders(root).items():
        if number not in split_of:
            raise UserError(f"{folder} is not a video of CaDIS: its videos are 1 to 25.")
        images = images_of(folder / "Images")
        masks = images_of(folder / "Labels") if (folder / "Labels").is_dir() else {}
        numbered = sorted((_frame_number(folder / "Images" / file, stem), stem) for stem, file in images.items())
        frames = make_frames(numbered, folder / "Images", images, folder / "Labels", masks)
        unmatched += [str(folder / "Labels" / name) for stem, name in masks.items() if stem not in images]
        name = f"Video{number:02d}"
        videos.append(Video(name, name, frames, split_of[number]))
    if not videos:
        raise UserError(f"{root} is not CaDIS: expected folders Video01/Images and Video01/Labels below it.")
    notes = [f"CaDIS, task {task}: {len(videos)} of its 25 videos, {sum(map(len, videos))} of its 4670 frames."]
    if leave_out is not None:
        notes.append(f"{_exclude_listed(Path(str(leave_out)), videos)} frames are left out by {leave_out}.")
    return Dataset("cadis", root, class_table(task), videos, protocol="cadis", notes=notes, unmatched_masks=unmatched)


def _frame_number(path: Path, stem: str) -> int:
    number = last_number(stem.rpartition("frame")[2])
    if number is None:
        raise UserError(f"{path} has no frame number: expected a name like Video1_frame000090.png.")
    return number


def _exclude_listed(path: Path, videos: list[Video]) -> int:
    """Exclude the listed frames; return their number."""
    frames = {Path(image).stem: (video, index) for video in videos for index, image in enumerate(video.files)}
    excluded: dict[str, set[int]] = {}
    for line, text in enumerate(read_text(path, "one frame's name per line").splitlines(), start=1):
        if not (name := text.strip()):
            continue
        if Path(name).stem not in frames:
            raise UserError(f"{path}, line {line} is {short(name)}, expected a frame here as Video1_frame000090.png.")
        video, index = frames[Path(name).stem]
        excluded.setdefault(video.id, set()).add(index)
    for video in videos:
        video.excluded = frozenset(excluded.get(video.id, ()))
    return sum(map(len, excluded.values()))


SOURCE = Source(lambda root: bool(_find_folders(root)), load, PROTOCOLS)
