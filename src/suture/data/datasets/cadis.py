"""CaDIS: cataract surgery, 25 videos, 4670 frames, all labelled (Grammatikopoulou et al., 2021)."""

import re
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import read_text, suffix_of
from suture.core.text import short
from suture.data.classes import IGNORE, ClassTable, Raw, default_colors
from suture.data.dataset import Dataset, Frame, Split, Video
from suture.data.datasets import Source
from suture.data.images import MaskFile
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
        leave_out: List of frames to exclude, such as mislabelled ones: a CSV file with the columns video and frame, or
            a text file with one frame's name per line.
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
        frames = [
            Frame(
                index,
                frame_number,
                folder / "Images" / images[stem],
                MaskFile(folder / "Labels" / masks.pop(stem)) if stem in masks else None,
            )
            for index, (frame_number, stem) in enumerate(numbered)
        ]
        unmatched += [str(folder / "Labels" / name) for name in masks.values()]
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
    lines = _read_list(path)
    for video in videos:
        number = int(video.id[5:])
        video.excluded = frozenset(frame.index for frame in video.frames if lines.pop((number, frame.number), None))
    if lines:
        (number, frame), line = next(iter(lines.items()))
        raise UserError(f"{path}, line {line}: there is no frame {frame} of video {number} here: correct the list.")
    return sum(len(video.excluded) for video in videos)


def _read_list(path: Path) -> dict[tuple[int, int], int]:
    """Read listed frames as (video, frame number) → line."""
    lines = read_text(path, "a CSV or text file").splitlines()
    is_table = suffix_of(path) == ".csv"
    row = (
        r"\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*"
        if is_table
        else r".*Video([0-9]{1,9})_frame([0-9]{1,9})(?:\.[A-Za-z]+)?\s*"
    )
    if is_table and (not lines or lines[0].replace(" ", "") != "video,frame"):
        raise UserError(f"{path} begins with {short(lines[:1])}, expected the columns video,frame and no others.")
    frames: dict[tuple[int, int], int] = {}
    for line, text in enumerate(lines, start=1):
        if not text.strip() or (is_table and line == 1):
            continue
        match = re.fullmatch(row, text)
        if match is None:
            expected = "two numbers: video,frame" if is_table else "a name like Video1_frame000090.png"
            raise UserError(f"{path}, line {line} is {short(text)}, expected {expected}.")
        frames[int(match[1]), int(match[2])] = line
    return frames


SOURCE = Source(lambda root: bool(_find_folders(root)), load, PROTOCOLS)
