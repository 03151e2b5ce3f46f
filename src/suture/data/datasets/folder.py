"""Dataset source `folder`: videos and masks described by a `dataset.yaml`."""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suture.core.errors import UserError
from suture.core.text import listed, number
from suture.data import messages
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Split, Video
from suture.data.dataset_file import EXCLUDE_FILE, FILE_NAME, DatasetFile, nearest, parse, read_exclusions
from suture.data.datasets import Source
from suture.data.formats import EXPORT_SUFFIXES, JSON, Export, is_export, open_export, open_file, open_labelme
from suture.data.formats.labelme import LabelMeFile, labelme_export
from suture.data.images import MaskFile
from suture.data.listing import composed, holds_files, images_of, iterate_folders, listing, mask_suffixes
from suture.data.pattern import find_files, is_pattern
from suture.data.split_lists import SplitLists
from suture.data.video_index import MASK_FOLDERS, VIDEO_FOLDERS, VideoEntry, VideoIndex
from suture.data.view import View

_SWAPPED: dict[Split, Split] = {"train": "test", "test": "train"}
_MAX_NAMED_FRAMES = 3


def load(root: Path, swap_splits: bool = False, mirror: dict[str, str] | None = None) -> Dataset:
    """Read the videos below the root, and find the frame of each mask by its name.

    A mask has one of these names: the name of its frame; `VIDEO__frame_000120.png` for frame 120 of a video, counted
    from 0 in decoding order; or `frame_000120.png` in a folder or an export that is named after a video file.

    Args:
        root: The folder.
        swap_splits: Train on the cases for test, and test on those for training.
        mirror: Classes that swap in a mirror image, for data whose `dataset.yaml` does not state them.
    """
    path = root / FILE_NAME
    file = DatasetFile.read(path) if path.is_file() else guess_layout(root)
    if swap_splits and file.split:
        split = {_SWAPPED.get(name, name): cases for name, cases in file.split.items()}
        file = file.model_copy(update={"split": split})
    if mirror is not None:
        file = parse(DatasetFile, file.model_dump() | {"mirror": mirror}, path)
    videos = find_videos(root, file)
    lists = SplitLists.find(root, videos)
    unread = [*filter(holds_files, _usual_masks(root))]
    unread += itertools.chain.from_iterable(videos.beside.values())
    masks = find_masks(root, file, path, videos)
    table = _class_table(file, path, masks)
    unmatched, doubtful = _match(masks, videos, table, _annotated(file, path, videos, table))
    late = dict(_take_late(videos, unmatched))
    return Dataset(
        file.name or (root.stem if root.is_file() else root.resolve().name),
        root,
        table,
        _make_videos(file, path, videos),
        protocol=file.protocol,
        videos_by=file.videos_by,
        notes=[*_notes(root, file, videos), *lists.notes, *(note for part in masks for note in part.export.notes)],
        unread_masks=[str(place) for place in unread] if file.masks is None else [],
        unmatched_masks=unmatched,
        doubtful_masks=doubtful,
        late_masks=late,
        boxes=[boxes for part in masks for boxes in part.export.boxes],
        missing_videos=videos.missing,
        listed=lists.splits,
    )


def _notes(root: Path, file: DatasetFile, videos: VideoIndex) -> Iterator[str]:
    """Notes on files that may be meant but are not read."""
    unread = [*itertools.chain.from_iterable(videos.beside.values()), *videos.json_beside_frames.values()]
    unread += videos.json_among_frames
    if unread:
        files = f"{number(len(unread), 'file')} beside frames (first: {os.path.relpath(unread[0], root)})"
        yield f"{files} may be masks or labels and are not read: name those to read by `masks` in dataset.yaml."
    elif root.is_dir() and not (root / FILE_NAME).is_file() and not any(map(holds_files, _usual_masks(root))):
        yield f"There is no dataset.yaml: `suture check {root} --write` drafts one."
    if file.exclude is None and (root / EXCLUDE_FILE).is_file():
        yield f"{EXCLUDE_FILE} is not read: write `exclude: {EXCLUDE_FILE}` into dataset.yaml."


def guess_layout(root: Path) -> DatasetFile:
    """Guess the folder of the videos by its name."""
    folders = listing(root)[0] if root.is_dir() else []
    return DatasetFile(videos=next((name for name in VIDEO_FOLDERS if name in folders), "."))


def _usual_masks(root: Path) -> list[Path]:
    folders = listing(root)[0] if root.is_dir() else []
    return [root / name for name in folders if name in MASK_FOLDERS]


def find_videos(root: Path, file: DatasetFile) -> VideoIndex:
    """Find the videos of the file's pattern or folder; masks must not become videos."""
    if file.frames is not None:
        masks = {path for name in file.mask_places if is_pattern(name) for path in find_files(root, name).values()}
        frames = find_files(root, file.frames)
        return VideoIndex.of_pattern(root, file.frames, {n: path for n, path in frames.items() if path not in masks})
    place = root if root.is_file() else Path(os.path.normpath(root / file.videos))
    skip = set(_usual_masks(root) if file.masks is None else _mask_paths(root, file))
    return VideoIndex.below(place, skip - {place}, by_name=file.videos_by == "name")


def _mask_paths(root: Path, file: DatasetFile) -> Iterator[Path]:
    """The places of masks that the file names, and the files of its patterns."""
    for name in file.mask_places:
        if is_pattern(name):
            yield from (root / found for found in find_files(root, name).values())
        elif (root / name).exists():
            yield Path(os.path.normpath(root / name))
        else:
            raise UserError(f"{root / FILE_NAME}: masks names {root / name}, which does not exist.")


def require_outside_dataset(out: Path, *, pictures: bool = False) -> None:
    """Raise if an output would become part of a dataset's videos or masks.

    Args:
        out: Where something is to be written.
        pictures: Plain pictures are written. Runs and predictions may lie in a dataset's own folder: they are known
            as what they are.
    """
    place = Path(os.path.realpath(out))
    for root in (place, *place.parents):
        path = root / FILE_NAME
        if not path.is_file():
            continue
        try:
            file = DatasetFile.read(path)
        except UserError:
            continue  # reported to whoever reads that dataset
        masks = [place for place in file.mask_places if not is_pattern(place)]
        taken = {"videos": [file.videos], "masks": masks or [*MASK_FOLDERS]}
        for what, names in taken.items():
            for folder in (Path(os.path.realpath(root / name)) for name in names):
                if place.is_relative_to(folder) and (pictures or folder != root):
                    where = f"{folder}, where {path} has its {what}"
                    raise UserError(f"{out} lies in {where}, and would become one of them: give a place outside of it.")


class ImageMasks(Export):
    """Masks in plain image files, as an export without labels of its own: `members` are the files."""

    def path_of(self, frame: str) -> str:
        return f"{self.path}{os.sep}{self.members[frame]}"

    def mask(self, frame: str, label_ids: Mapping[str, int], annotated: tuple[str, ...] | None) -> MaskFile:
        return MaskFile(Path(self.path_of(frame)), annotated)


@dataclass(frozen=True)
class Masks:
    """An export, and the video that all of it belongs to, if it is named after one."""

    export: Export
    only: VideoEntry | None


def image_masks(masks: Sequence[Masks]) -> list[str]:
    """The masks that are image files."""
    exports = (part.export for part in masks)
    return [export.path_of(frame) for export in exports if isinstance(export, ImageMasks) for frame in export.members]


def place_of_new_masks(root: Path) -> Path:
    """The folder for masks yet to be made: the one that `dataset.yaml` names, else `masks`."""
    return next(
        (root / place for place in DatasetFile.of(root).mask_places if (root / place).is_dir()), root / MASK_FOLDERS[0]
    )


def find_masks(root: Path, file: DatasetFile, path: Path, videos: VideoIndex) -> list[Masks]:
    """Open all masks and exports that the file names."""
    if isinstance(file.masks, dict):
        named = [(root / place, videos.find(name, f"{path}: masks")) for name, place in file.masks.items()]
        return [masks for place, video in named if video for masks in open_masks(place, videos, video)]
    masks: list[Masks] = []
    for name in file.mask_places:
        masks += (
            [_masks_of_pattern(root, name, videos.only)] if is_pattern(name) else open_masks(root / name, videos, None)
        )
    return masks


def _masks_of_pattern(root: Path, pattern: str, only: VideoEntry | None) -> Masks:
    files = find_files(root, pattern)
    if not files:
        raise UserError(f"{root / FILE_NAME}: masks is {pattern!r}, which is the path of no file below {root}.")
    if pattern.lower().endswith(JSON):
        return Masks(open_labelme(root, {name: root / file for name, file in files.items()}), only)
    return Masks(ImageMasks(root, {}, files), only)


def open_masks(
    place: Path, videos: VideoIndex, only: VideoEntry | None, annotator: str | None = None
) -> Iterator[Masks]:
    """Open an export, or a folder of exports and images; what is named after a video belongs to it."""
    if is_export(place):
        yield Masks(open_export(place, annotator), only or _named_after(place, videos))
        return
    if not place.is_dir():
        raise UserError(f"{place} holds no masks: expected a folder, or an export of CVAT, COCO or LabelMe.")
    images: dict[str, str] = {}
    labelme: dict[str, LabelMeFile] = {}
    for folder, folders, files in iterate_folders(place):
        within = "" if folder == place else f"{folder.relative_to(place).as_posix()}/"
        exports = [folder / name for name in folders if is_export(folder / name)]
        folders[:] = [name for name in folders if folder / name not in exports]
        names = (name for name in files if name.lower().endswith(EXPORT_SUFFIXES))
        exports += [folder / name for name in names if is_export(folder / name)]
        of_folder: dict[str, LabelMeFile] = {}
        for export in exports:
            opened = open_file(export, annotator)
            if isinstance(opened, LabelMeFile):
                of_folder[within + export.stem] = opened
            else:
                yield Masks(opened, only or _named_after(export, videos))
        labelme |= of_folder
        if not of_folder:  # images beside LabelMe files are copies of the frames
            images |= {within + stem: within + name for stem, name in images_of(folder, files).items()}
    if labelme:
        yield Masks(labelme_export(place, labelme), only)
    if images:
        yield Masks(ImageMasks(place, {}, _without_suffix(images, videos, only)), only)


def _without_suffix(images: dict[str, str], videos: VideoIndex, only: VideoEntry | None) -> dict[str, str]:
    """Masks by the names of their frames, without a suffix that all have (frame_80_mask)."""
    suffixes = [end for end in mask_suffixes(next(iter(images))) if all(name.endswith(end) for name in images)]
    for suffix in ("", *suffixes) if suffixes else ():
        shorter = {name.removesuffix(suffix): file for name, file in images.items()}
        if any(places for _, places in videos.match(list(shorter), only)):
            return shorter
    return images


def _named_after(export: Path, videos: VideoIndex) -> VideoEntry | None:
    named = videos.named(export.name if export.is_dir() else export.stem)
    if len(named) > 1:
        fitting = " and ".join(video.id for video in named)
        raise UserError(f"The name of {export} fits {fitting}: name it after one of them.")
    return named[0] if named else None


def _class_table(file: DatasetFile, path: Path, masks: list[Masks]) -> ClassTable:
    if any(part.export.frames for part in masks) and not file.classes:
        raise UserError(f"{path} names masks but no classes: list under classes what their values mean.")
    table = file.class_table(path, [label for part in masks for label in part.export.labels], image_masks(masks))
    for part in masks:
        if part.export.labels and not part.export.labels.keys() & table.label_ids.keys():
            labels_of = f"the labels of {part.export.path} ({', '.join(part.export.labels)})"
            raise UserError(f"{path}: none of {labels_of} is a class or a value of one: list them under classes.")
    return table


def _match(
    masks: list[Masks], videos: VideoIndex, table: ClassTable, annotated: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], list[str]]:
    """Give each frame its mask; return the masks without a frame, and those in doubt."""
    unmatched: list[str] = []
    doubtful: list[str] = []
    for part in masks:
        for name, places in videos.match(part.export.frames, part.only):
            video, index = places[0] if places else (None, 0)
            mask = part.export.mask(name, table.label_ids, annotated.get(video.id) if video else None)
            if video is None:
                unmatched.append(mask.name)
            elif len(places) > 1 or index in video.masks:
                frames = listed(sorted(f"{one.id} (frame {at})" for one, at in places), _MAX_NAMED_FRAMES)
                other = f", which has the mask {video.masks[index].name}" if len(places) == 1 else ""
                doubtful.append(f"{mask.name} fits {frames}{other}")
            else:
                video.masks[index] = mask
    return unmatched, doubtful


def _take_late(videos: VideoIndex, unmatched: list[str]) -> Iterator[tuple[str, str]]:
    """Take away the masks past the end of a video file; without others they are unmatched."""
    for video in videos.all:
        # A file that cannot be read is reported to whoever reads it; here it would hide everything else.
        with contextlib.suppress(UserError):
            late = [index for index in sorted(video.masks) if index >= video.length] if video.file is not None else []
            names = [video.masks.pop(index).name for index in late]
            length = messages.length(video.id, video.length) if late else ""
            if names and video.masks:
                yield video.id, f"masks up to frame {late[-1]}, but {length} (another frame rate?)"
            else:
                unmatched += [f"{name} ({length})" for name in names]


def _annotated(file: DatasetFile, path: Path, videos: VideoIndex, table: ClassTable) -> dict[str, tuple[str, ...]]:
    """The classes that were annotated in a video, where not all were."""
    annotated: dict[str, tuple[str, ...]] = {}
    for name, classes in file.annotated.items():
        targets = [file.target_of(one) for one in classes]
        if unknown := next((target for target in targets if target not in table.names), None):
            near = nearest(unknown, table.names)
            raise UserError(f"{path}: annotated names {unknown!r}, which is no class{near}.")
        if video := videos.find(name, f"{path}: annotated"):
            annotated[video.id] = tuple(dict.fromkeys(targets))
    return annotated


def _make_videos(file: DatasetFile, path: Path, videos: VideoIndex) -> list[Video]:
    for video in videos.all:
        if video.file is not None:
            video.file.deinterlace = file.deinterlace
    case_of = case_of_videos(file, path, videos)
    split_of = _split(file, path, videos, case_of)
    views = _views(file, path, videos)
    excluded = _excluded(file, path, videos)
    return [
        Video(
            video.id,
            case_of[video.id],
            video.frames(),
            split_of.get(case_of[video.id]),
            video.file,
            views[video.id],
            frozenset(excluded.get(video.id, ())),
            file.deinterlace,
            file.take_every,
        )
        for video in videos.all
    ]


def case_of_videos(file: DatasetFile, path: Path, videos: VideoIndex) -> dict[str, str]:
    """The case of each video; a video that is in no list is a case of its own."""
    case_of: dict[str, str] = {}
    for case, names in file.cases.items():
        for name in names:
            video = videos.find(name, f"{path}: cases.{case}")
            if video and (other := case_of.setdefault(video.id, case)) != case:
                raise UserError(f"{path}: the video {video.id} is in the cases {other} and {case}: keep one.")
    for video in videos.all:
        if video.id not in case_of and video.id in file.cases:
            raise UserError(f"{path}: {video.id} is a case, and a video that is not in it: rename the case.")
        case_of.setdefault(video.id, video.id)
    return case_of


def _split(file: DatasetFile, path: Path, videos: VideoIndex, case_of: Mapping[str, str]) -> dict[str, Split]:
    """The split of each case that has one; without any split all cases are for training."""
    cases = list(dict.fromkeys(case_of.values()))
    if file.split is None:
        return dict.fromkeys(cases, "train")
    split_of: dict[str, Split] = {}
    known = {composed(case): case for case in cases}
    for split, names in file.split.items():
        for name in (known.get(composed(name), name) for name in names):
            if name in case_of and name not in cases:
                case = case_of[name]
                raise UserError(f"{path}: split.{split} names {name!r}, a video of the case {case}: name the case.")
            if name not in cases and name not in file.cases:  # the videos of a case that is listed are missed there
                videos.missing.append(f"{path}: split.{split} names {name!r}, which is no case{nearest(name, cases)}")
            if split_of.setdefault(name, split) != split:
                raise UserError(f"{path}: the case {name} is in the splits {split_of[name]} and {split}: keep one.")
    return split_of


def _views(file: DatasetFile, path: Path, videos: VideoIndex) -> dict[str, View | Literal["auto"] | None]:
    per_video = file.view if isinstance(file.view, dict) and not file.view.keys() <= {"rect", "circle"} else None
    common = "auto" if per_video is not None else file.view
    views = {video.id: _view(common, f"{path}: view") for video in videos.all}
    for name, value in (per_video or {}).items():
        view = _view(value, f"{path}: view.{name}")
        if video := videos.find(str(name), f"{path}: view"):
            views[video.id] = view
    return views


def _view(value: Any, where: str) -> View | Literal["auto"] | None:
    if value == "auto":
        return "auto"
    return None if value in (None, "none") else View.parse(value, where)


def _excluded(file: DatasetFile, path: Path, videos: VideoIndex) -> dict[str, set[int]]:
    excluded: dict[str, set[int]] = {}
    if file.exclude is None:
        return excluded
    place = path.parent / file.exclude
    for line, name, first, last in read_exclusions(place):
        video = videos.find(name, f"{place}, line {line}")
        if video is None:
            continue
        try:
            length = video.length
        except UserError:  # a file that cannot be read is reported to whoever reads it
            continue
        if last >= length:
            raise UserError(f"{place}, line {line}: frame {last} is excluded, but {video.id} ends at {length - 1}.")
        excluded.setdefault(video.id, set()).update(range(first, last + 1))
    return excluded


SOURCE = Source(lambda root: (root / FILE_NAME).is_file(), load)
