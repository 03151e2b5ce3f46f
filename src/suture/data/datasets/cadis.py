"""CaDIS: cataract surgery, 25 videos, 4670 frames, all labelled (Grammatikopoulou et al., 2021)."""

import csv
import re
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.data.classes import IGNORE, ClassTable, Raw, default_colors
from suture.data.dataset import Dataset, Frame, Split, Video
from suture.data.datasets import source
from suture.data.images import MaskFile
from suture.data.listing import images_of, iterate_folders, last_number

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
"""The names of the raw ids 0–35."""
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


def class_table(task: int) -> ClassTable:
    """The classes of task 1 (8), 2 (17) or 3 (25); raw ids that a task has no class for are ignore."""
    tasks: dict[int, dict[str, tuple[int, ...]]] = {
        1: {"Instrument": tuple(range(7, 36))},
        2: TASK_2,
        3: {RAW[raw]: (raw,) for raw in range(7, 25)},
    }
    instruments = tasks[task]
    values: dict[Raw, int] = {raw: raw if raw < 7 else IGNORE for raw in range(36)}
    for target, raws in enumerate(instruments.values(), start=len(ANATOMY)):
        values.update(dict.fromkeys(raws, target))
    names = (*ANATOMY, *instruments)
    return ClassTable(names, tuple(default_colors(names)), values)


def _folders(root: Path) -> dict[int, Path]:
    """The folder of each video's number."""
    found: dict[int, Path] = {}
    for folder, folders, _ in iterate_folders(root, depth=3):
        number = re.fullmatch(r"Video([0-9]+)", folder.name)
        if number and "Images" in folders:
            if other := found.get(int(number[1])):
                raise UserError(f"{root} holds video {int(number[1])} twice, in {other} and {folder}: remove one.")
            found[int(number[1])] = folder
            folders.clear()
    return dict(sorted(found.items()))


@source("cadis", matches=lambda root: root.is_dir() and bool(_folders(root)))
def load(root: Path, task: int = 1, leave_out: str | Path | None = None) -> Dataset:
    """Read `VideoNN/Images/VideoN_frameNNNNNN.png` and `VideoNN/Labels/…` of the same names.

    Every video is a case. `leave_out` names a list of frames to exclude, such as those known to be mislabelled:
    a CSV file with the columns video and frame, or a text file with one frame's name per line.
    """
    if task not in (1, 2, 3) or isinstance(task, bool):
        raise UserError(f"CaDIS has no task {task!r}: it has the tasks 1 (8 classes), 2 (17) and 3 (25).")
    split_of = {number: split for split, numbers in SPLIT.items() for number in numbers}
    videos: list[Video] = []
    unmatched: list[str] = []
    for number, folder in _folders(root).items():
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
        notes.append(f"{_leave_out(Path(str(leave_out)), videos)} frames are left out as {leave_out} says.")
    return Dataset("cadis", root, class_table(task), videos, protocol="cadis", notes=notes, unmatched_masks=unmatched)


def _frame_number(path: Path, stem: str) -> int:
    number = last_number(stem.rpartition("frame")[2])
    if number is None:
        raise UserError(f"{path} has no frame number: expected a name like Video1_frame000090.png.")
    return number


def _leave_out(path: Path, videos: list[Video]) -> int:
    """Exclude the listed frames; returns their count."""
    listed = _listed(path)
    for video in videos:
        number = int(video.id[5:])
        video.excluded = frozenset(frame.index for frame in video.frames if listed.pop((number, frame.number), None))
    if listed:
        (video_number, frame_number), line = next(iter(listed.items()))
        raise UserError(
            f"{path}, line {line}: there is no frame {frame_number} of video {video_number} here ({len(listed)} such "
            "lines): mend the list."
        )
    return sum(len(video.excluded) for video in videos)


def _listed(path: Path) -> dict[tuple[int, int], int]:
    """The listed frames as (video, frame number) → line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"leave_out: {path} cannot be read ({error}): expected a CSV or text file.") from error
    frames: dict[tuple[int, int], int] = {}
    if suffix_of(path) == ".csv":
        rows = csv.reader(lines)
        header = [name.strip() for name in next(rows, [])]
        if header != ["video", "frame"]:
            raise UserError(f"{path} has the columns {', '.join(header)}, expected video, frame and no others.")
        for line, row in enumerate(rows, start=2):
            if not row:
                continue
            if len(row) != 2 or not all(cell.strip().isdecimal() for cell in row):
                raise UserError(f"{path}, line {line}: found {','.join(row)!r}, expected two numbers: video,frame.")
            frames[int(row[0]), int(row[1])] = line
        return frames
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        name = re.search(r"Video([0-9]+)_frame([0-9]+)(\.[A-Za-z]+)?$", text.strip())
        if name is None:
            raise UserError(
                f"{path}, line {line}: found {text.strip()!r}, expected a name like Video1_frame000090.png."
            )
        frames[int(name[1]), int(name[2])] = line
    return frames
