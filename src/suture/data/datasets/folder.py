"""The user's own data: video files or folders of frames, masks, and `dataset.yaml` that says what is what."""

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from suture.core.errors import UserError
from suture.core.text import listed, number
from suture.data import messages as mends
from suture.data.classes import ClassTable, Raw
from suture.data.dataset import Boxes, Dataset, DoubtfulMask, LateMasks, Split, Video
from suture.data.dataset_file import EXCLUDE_FILE, FILE_NAME, DatasetFile, nearest, read_exclusions
from suture.data.datasets import source
from suture.data.formats import EXPORT_SUFFIXES, JSON, Export, is_export, open_export, open_file, open_labelme
from suture.data.formats.labelme import LabelMeFile, labelme_export
from suture.data.images import MaskFile, has_channels
from suture.data.listing import STAR, composed, holds_files, images_of, iterate_folders, listing, mask_suffixes
from suture.data.split_lists import SplitLists
from suture.data.video_index import MASK_FOLDERS, VIDEO_FOLDERS, VideoEntry, VideoIndex
from suture.data.view import View

BESIDE = f"{STAR}{JSON}"
"""The pattern of LabelMe files beside their frames."""
_SOME = 3
"""Frames that are named of those that a mask fits."""


@source("folder", matches=lambda root: (root / FILE_NAME).is_file())
def load(root: Path) -> Dataset:
    """Read the videos below the root, and find the frame of each mask by its name.

    A mask has the name of its frame; or it is called `VIDEO__frame_000120.png` for frame 120 of a video, counted from
    0 in decoding order; or `frame_000120.png` in a folder or an export that is named after a video file.
    """
    path = root / FILE_NAME
    file, skip, notes = DatasetFile(), set[Path](), list[str]()
    if path.is_file():
        file = DatasetFile.read(path)
        skip = {Path(os.path.normpath(place)) for place in mask_places(root, file, path)} or _unnamed_masks(root, file)
    elif root.is_dir():
        file, skip = guess(root)
    place = root if root.is_file() else Path(os.path.normpath(root / file.videos))
    lists = SplitLists.find(root) if root.is_dir() else SplitLists({})
    clips, lists = find_videos(place, skip, file, lists, stated=path.is_file())
    beside = {pattern: files for pattern, files in clips.beside.items() if pattern != file.mask_pattern}
    if beside:
        notes.append(_passed_over(beside))
    unread = [*itertools.chain.from_iterable(beside.values()), *clips.masks_inside.values()]
    notes += [*lists.notes, *_unread_json(root, file, clips)]
    if root.is_dir() and not path.is_file() and not unread and not any(map(holds_files, skip)):
        # Of masks without a dataset.yaml it is told with them: suture.checks.problems
        notes.append(f"There is no dataset.yaml: `suture check {root} --write` drafts one.")
    if file.exclude is None and (root / EXCLUDE_FILE).is_file():
        notes.append(f"{EXCLUDE_FILE} is not read: `exclude: {EXCLUDE_FILE}` in dataset.yaml says to.")
    masks = find_masks(root, file, path, clips)
    table, by_id = _class_table(file, path, masks)
    unmatched, doubtful, strange = _match(masks, clips, table, _annotated(file, path, clips, table))
    late = list(_take_late(clips, unmatched))
    if strange:
        notes.append(
            f"{number(strange.total(), 'mask')} found by file name alone, since no video is called like the folder "
            f"before it ({listed(list(strange), _SOME)}): look whether they are of these frames."
        )
    videos = _videos(file, path, clips)
    return Dataset(
        file.name or _name(root),
        root,
        table,
        videos,
        protocol=file.protocol,
        videos_by="name" if clips.are_by_name else "folder",
        notes=[*notes, *(note for found in masks for note in found.export.notes)],
        unread_masks=[str(place) for place in unread] if file.masks is None else [],
        unmatched_masks=unmatched,
        doubtful_masks=doubtful,
        late_masks=late,
        boxes=[boxes for found in masks for boxes in found.export.boxes],
        labels_by_id=by_id,
        missing_videos=clips.missing,
        listed=lists.splits,
    )


def _passed_over(unread: Mapping[str, Sequence[Path]]) -> str:
    """That images are no frames, which would be lost without a word if their names said mask by chance."""
    count = number(sum(map(len, unread.values())), "image")
    parts = listed([f"{len(files):,} {pattern}" for pattern, files in unread.items()], _SOME)
    return (
        f"{count} beside frames passed over as masks by name ({parts}): rename them if they are frames; the masks to "
        "read are named by `masks` in dataset.yaml."
    )


def _unread_json(root: Path, file: DatasetFile, clips: VideoIndex) -> Iterator[str]:
    """That labels may lie among the frames which nobody reads."""
    beside = set(clips.json_beside_frames.values() if file.mask_pattern == BESIDE else ())
    if found := [path for path in clips.json_of_frames if path not in beside]:
        first = os.path.relpath(found[0], root)
        yield (
            f"{number(len(found), 'JSON file')} named after frames not read (first: {first}): LabelMe's beside their "
            f'frames are by `masks: "{BESIDE}"` in dataset.yaml; convert other labels to COCO or to PNG masks.'
        )
    read = {os.path.normpath(root / place) for place in file.mask_places}
    others = {place: clip for place, clip in clips.json_among_frames.items() if os.path.normpath(place) not in read}
    for place, clip in list(others.items())[:1]:
        first = os.path.relpath(place, root)
        named = f"[{first}]" if clips.are_by_name else f"{{{clip.id}: {first}}}"
        yield (
            f"{number(len(others), 'JSON file')} among the frames not read (first: {first}): what is COCO can be named "
            f"in dataset.yaml, as `masks: {named}`; convert other labels to COCO or to PNG masks."
        )


def _name(root: Path) -> str:
    return root.stem if root.is_file() else root.resolve().name


def guess(root: Path) -> tuple[DatasetFile, set[Path]]:
    """What a folder without `dataset.yaml` seems to be, and the folders in it that seem to hold masks."""
    folders = listing(root)[0]
    videos = next((name for name in VIDEO_FOLDERS if name in folders), ".")
    return DatasetFile(videos=videos), {root / name for name in MASK_FOLDERS if name in folders}


def find_videos(
    place: Path, skip: set[Path], file: DatasetFile, lists: SplitLists, *, stated: bool
) -> tuple[VideoIndex, SplitLists]:
    """The videos by folder or by name, as the file says, and what the lists name among them.

    Where it is not `stated`, they are by name only if the split does not hang on that guess, since the lists or the
    folders say it: chunks of one operation (GX010123_0001, GX020123_0001) are named just as several operations are.
    """
    clips = VideoIndex.below(place, skip, file.mask_pattern)
    clips = clips.without_masks() if file.masks is None else clips
    if stated and file.videos_by == "name":
        clips = clips.by_name()
    among = lists.among(clips)
    if stated or not (lists.lines or clips.are_by_split):
        return clips, among
    by_name = clips.by_name()
    among_named = lists.among(by_name)
    listed_whole = among_named.divide_no_video and not among.divide_no_video
    said = listed_whole or clips.are_by_split
    return (by_name, among_named) if said and clips.tell_by_name(single=listed_whole) else (clips, among)


def _unnamed_masks(root: Path, file: DatasetFile) -> set[Path]:
    """Folders that seem to hold masks, where the file names none: they must not become videos."""
    videos = Path(os.path.normpath(root / file.videos))
    return {place for place in guess(root)[1] if place != videos} if file.masks is None else set()


def require_outside_dataset(out: Path, *, pictures: bool = False) -> None:
    """Refuse to write where a dataset's videos or masks are looked for: what is written would become data.

    In a dataset's own folder, where videos may lie too, runs and predictions are known as what they are; plain
    `pictures` are not.
    """
    place = Path(os.path.realpath(out))
    for root in (place, *place.parents):
        path = root / FILE_NAME
        if not path.is_file():
            continue
        try:
            file = DatasetFile.read(path)
        except UserError:
            continue  # told to whoever reads that dataset
        taken = {"videos": [file.videos], "masks": file.mask_places or [*MASK_FOLDERS]}
        for what, names in taken.items():
            for folder in (Path(os.path.realpath(root / name)) for name in names):
                if place.is_relative_to(folder) and (pictures or folder != root):
                    raise UserError(
                        f"{out} lies in {folder}, where {path} has its {what}, and would become one of them: give a "
                        "place outside of it."
                    )


@dataclass(frozen=True)
class ImageMasks:
    """Masks in plain image files, as an export without labels of its own."""

    path: Path
    files: Mapping[str, str]
    labels: Mapping[str, Raw] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    boxes: list[Boxes] = field(default_factory=list)

    @property
    def frames(self) -> list[str]:
        return list(self.files)

    def path_of(self, frame: str) -> str:
        return f"{self.path}{os.sep}{self.files[frame]}"

    def mask(self, frame: str, label_ids: Mapping[str, int], annotated: tuple[str, ...] | None) -> MaskFile:
        return MaskFile(Path(self.path_of(frame)), annotated)


@dataclass(frozen=True)
class Masks:
    """An export, and the video that all of it belongs to, if it is named after one."""

    export: Export
    only: VideoEntry | None


def image_masks(masks: Sequence[Masks]) -> list[str]:
    """The masks that are image files."""
    exports = (found.export for found in masks)
    return [export.path_of(frame) for export in exports if isinstance(export, ImageMasks) for frame in export.files]


def mask_places(root: Path, file: DatasetFile, path: Path) -> list[Path]:
    """Where the file says that masks are."""
    places = [root / place for place in file.mask_places]
    for place in places:
        if not place.exists():
            raise UserError(f"{path}: masks names {place}, which does not exist.")
    return places


def place_of_new_masks(root: Path) -> Path:
    """The folder that masks yet to be made go into: the one that `dataset.yaml` names, else `masks`."""
    return next(
        (root / place for place in DatasetFile.of(root).mask_places if (root / place).is_dir()), root / MASK_FOLDERS[0]
    )


def find_masks(root: Path, file: DatasetFile, path: Path, clips: VideoIndex) -> list[Masks]:
    """All masks and exports that the file names."""
    if isinstance(file.masks, dict):
        return [
            masks
            for video, place in file.masks.items()
            if (clip := clips.find(video, f"{path}: masks", file.masks)) is not None
            for masks in open_masks(root / place, clips, clip)
        ]
    if file.mask_pattern:
        return _masks_beside(file.mask_pattern, path, clips)
    return [masks for place in file.mask_places for masks in open_masks(root / place, clips, None)]


def _masks_beside(pattern: str, path: Path, clips: VideoIndex) -> list[Masks]:
    """The masks that lie among the frames of each video and fit the pattern."""
    if pattern == BESIDE and clips.json_beside_frames:
        return [Masks(open_labelme(clips.place, clips.json_beside_frames), None)]
    found = [Masks(ImageMasks(clip.folder, clip.beside[pattern]), clip) for clip in clips.all if pattern in clip.beside]
    if not found:
        beside = f" (there are {listed(list(clips.beside), _SOME)})" if clips.beside else ""
        raise UserError(f"{path}: masks is {pattern!r}, but no file beside a frame is called like that{beside}.")
    return found


def open_masks(place: Path, clips: VideoIndex, only: VideoEntry | None) -> Iterator[Masks]:
    """An export, or a folder of exports and images; what is named after a video belongs to it."""
    if is_export(place):
        yield Masks(open_export(place), _named_after(place, clips) if only is None else only)
        return
    if not place.is_dir():
        raise UserError(
            f"{place} holds no masks: expected a folder, a CVAT export as zip, or a COCO or LabelMe file (.json)."
        )
    images: dict[str, str] = {}
    labelme: dict[str, LabelMeFile] = {}
    for folder, folders, files in iterate_folders(place):
        within = "" if folder == place else f"{folder.relative_to(place).as_posix()}/"
        images |= {within + stem: within + name for stem, name in images_of(folder, files).items()}
        exports = [folder / name for name in folders if is_export(folder / name)]
        folders[:] = [name for name in folders if folder / name not in exports]
        exports += [folder / name for name in files if name.lower().endswith(EXPORT_SUFFIXES)]
        for export in exports:
            found = open_file(export)
            if isinstance(found, LabelMeFile):
                labelme[within + export.stem] = found
            else:
                yield Masks(found, _named_after(export, clips) if only is None else only)
    if labelme:
        waiting = _waiting(place, images, labelme)
        yield Masks(labelme_export(place, labelme, list(waiting.values())), only)
        images = {name: file for name, file in images.items() if name not in labelme and name not in waiting}
    if images:
        yield Masks(ImageMasks(place, _without_suffix(images, clips, only)), only)


def _waiting(place: Path, images: Mapping[str, str], labelme: Mapping[str, LabelMeFile]) -> dict[str, str]:
    """Copies of frames without a LabelMe file yet: colour images, in the folders of such that have one beside them."""
    folders = {os.path.dirname(name) for name in labelme if name in images and has_channels(place / images[name])}
    others = {name: file for name, file in images.items() if name not in labelme and os.path.dirname(name) in folders}
    return {name: file for name, file in others.items() if has_channels(place / file)}


def _without_suffix(images: dict[str, str], clips: VideoIndex, only: VideoEntry | None) -> dict[str, str]:
    """Masks by the names of their frames, where all of them have the same suffix behind it: frame_80_mask, 81_mask."""
    suffixes = [end for end in mask_suffixes(next(iter(images))) if all(name.endswith(end) for name in images)]
    for suffix in ("", *suffixes) if suffixes else ():
        shorter = {name.removesuffix(suffix): file for name, file in images.items()}
        if any(places for _, places in clips.frames(list(shorter), only)):
            return shorter
    return images


def _named_after(export: Path, clips: VideoIndex) -> VideoEntry | None:
    found = clips.named(export.name if export.is_dir() else export.stem)
    if len(found) > 1:
        raise UserError(
            f"The name of {export} fits {' and '.join(clip.id for clip in found)}: name it after one of them."
        )
    return found[0] if found else None


def _class_table(file: DatasetFile, path: Path, masks: list[Masks]) -> tuple[ClassTable, list[str]]:
    """The class table; and the labels that have a class by an id alone, which in images may mean something else."""
    if any(found.export.frames for found in masks) and not file.classes:
        raise UserError(f"{path} names masks but no classes: say under classes what their values mean.")
    labels = {label: value for found in masks for label, value in found.export.labels.items()}
    images = image_masks(masks)
    table = file.class_table(path, labels, images)
    for found in masks:
        if found.export.labels and not found.export.labels.keys() & table.label_ids.keys():
            names = list(found.export.labels)
            raise UserError(
                f"{path}: none of the labels of {found.export.path} ({', '.join(names)}) is a class or a value of one: "
                f"list them under classes, beside an id where some masks are images (value: [1, {names[0]}])."
            )
    classes = file.classes_of_labels(path, labels) if images else {}
    ids = {label: name for label, name in classes.items() if isinstance(labels[label], int) and label != name}
    return table, [f"{label} (id {labels[label]}) as {name}" for label, name in ids.items()]


def _match(
    masks: list[Masks], clips: VideoIndex, table: ClassTable, annotated: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], list[DoubtfulMask], Counter[str]]:
    """Give each frame its mask.

    Returns the masks that have no frame, those that may have another one, and the folders, with how many masks in them
    found a frame although it is not their video's.
    """
    unmatched: list[str] = []
    doubtful: list[DoubtfulMask] = []
    strange: Counter[str] = Counter()
    for found in masks:
        for name, places in clips.frames(found.export.frames, found.only):
            if len(places) != 1:
                mask = found.export.mask(name, table.label_ids, None)
                if places:
                    doubtful.append(DoubtfulMask(mask.name, _fitting(places)))
                else:
                    unmatched.append(mask.name)
                continue
            clip, index = places[0]
            mask = found.export.mask(name, table.label_ids, annotated.get(clip.id))
            if other := clip.masks.get(index):
                doubtful.append(DoubtfulMask(mask.name, _fitting(places), other.name))
                continue
            clip.masks[index] = mask
            folder = name.rpartition("/")[0]
            if found.only is None and "__frame_" not in name and clips.is_strange(folder, clip):
                strange[folder] += 1
    return unmatched, doubtful, strange


def _take_late(clips: VideoIndex, unmatched: list[str]) -> Iterator[LateMasks]:
    """Take away the masks past the end of a video file; where no other fits, they are only unmatched."""
    for clip in clips.all:
        # A file that cannot be read is told to whoever reads it; here it would hide everything else.
        with contextlib.suppress(UserError):
            late = [index for index in sorted(clip.masks) if index >= clip.length] if clip.file is not None else []
            names = [clip.masks.pop(index).name for index in late]
            if names and clip.masks:
                yield LateMasks(names, late[-1], clip.id, clip.length)
            else:
                unmatched += [f"{name} ({mends.length(clip.id, clip.length)})" for name in names]


def _fitting(places: list[tuple[VideoEntry, int]]) -> str:
    return listed(sorted(f"{clip.id} (frame {index})" for clip, index in places), _SOME)


def _annotated(file: DatasetFile, path: Path, clips: VideoIndex, table: ClassTable) -> dict[str, tuple[str, ...]]:
    """The classes that were annotated in a video, where not all were."""
    annotated: dict[str, tuple[str, ...]] = {}
    for video, names in file.annotated.items():
        targets = [file.target_of(name) for name in names]
        for name, target in zip(names, targets, strict=True):
            if target not in table.names:
                near = nearest(name, [other for other in table.names if other not in targets])
                raise UserError(f"{path}: annotated names {name!r}, which is no class{near}.")
        if clip := clips.find(video, f"{path}: annotated", file.annotated):
            annotated[clip.id] = tuple(dict.fromkeys(targets))
    return annotated


def _videos(file: DatasetFile, path: Path, clips: VideoIndex) -> list[Video]:
    case_of = case_of_videos(file, path, clips)
    split_of = _split(file, path, clips, case_of)
    views = _views(file, path, clips)
    excluded = _excluded(file, path, clips)
    return [
        Video(
            clip.id,
            case_of[clip.id],
            clip.frames(),
            split_of.get(case_of[clip.id]),
            clip.file,
            views[clip.id],
            frozenset(excluded.get(clip.id, ())),
            file.take_every,
        )
        for clip in clips.all
    ]


def case_of_videos(file: DatasetFile, path: Path, clips: VideoIndex) -> dict[str, str]:
    """The case of each video; a video that is in no list is a case of its own."""
    case_of: dict[str, str] = {}
    in_cases = [video for videos in file.cases.values() for video in videos]
    for case, videos in file.cases.items():
        for video in videos:
            clip = clips.find(video, f"{path}: cases.{case}", in_cases)
            if clip and case_of.setdefault(clip.id, case) != case:
                raise UserError(f"{path}: the video {clip.id} is in the cases {case_of[clip.id]} and {case}: keep one.")
    for clip in clips.all:
        if clip.id not in case_of and clip.id in file.cases:
            raise UserError(f"{path}: {clip.id} is a case, and a video that is not in it: rename the case.")
        case_of.setdefault(clip.id, clip.id)
    return case_of


def _split(file: DatasetFile, path: Path, clips: VideoIndex, case_of: Mapping[str, str]) -> dict[str, Split]:
    """The split of each case that has one; without any split all cases are for training."""
    cases = list(dict.fromkeys(case_of.values()))
    if file.split is None:
        return dict.fromkeys(cases, "train")
    split_of: dict[str, Split] = {}
    named = {name for names in file.split.values() for name in names}
    known = {composed(case): case for case in cases}
    for split, names in file.split.items():
        for name in (known.get(composed(name), name) for name in names):
            if name in case_of and name not in cases:
                raise UserError(
                    f"{path}: split.{split} names {name!r}, which is no case: it is a video of the case "
                    f"{case_of[name]}, and splits are by case."
                )
            if name not in cases and name not in file.cases:  # the videos of a case that is listed are missed there
                near = nearest(name, [case for case in cases if case not in named])
                clips.missing.append(f"{path}: split.{split} names {name!r}, which is no case{near}")
            if split_of.setdefault(name, split) != split:
                raise UserError(f"{path}: the case {name} is in the splits {split_of[name]} and {split}: keep one.")
    return split_of


def _views(file: DatasetFile, path: Path, clips: VideoIndex) -> dict[str, View | Literal["auto"] | None]:
    per_video = file.view if isinstance(file.view, dict) and not file.view.keys() <= {"rect", "circle"} else None
    common = "auto" if per_video is not None else file.view
    views = {clip.id: _view(common, f"{path}: view") for clip in clips.all}
    for video, view in (per_video or {}).items():
        where = f"{path}: view.{video}"
        found = _view(view, where)
        if clip := clips.find(str(video), f"{path}: view", map(str, per_video or ())):
            views[clip.id] = found
    return views


def _view(value: Any, where: str) -> View | Literal["auto"] | None:
    if value == "auto":
        return "auto"
    return None if value in (None, "none") else View.parse(value, where)


def _excluded(file: DatasetFile, path: Path, clips: VideoIndex) -> dict[str, set[int]]:
    excluded: dict[str, set[int]] = {}
    if file.exclude is None:
        return excluded
    place = path.parent / file.exclude
    for line, video, first, last in read_exclusions(place):
        clip = clips.find(video, f"{place}, line {line}")
        if clip is None:
            continue
        try:
            length = clip.length
        except UserError:  # a file that cannot be read is told to whoever reads it; here it would hide everything else
            continue
        if last >= length:
            raise UserError(
                f"{place}, line {line}: frame {last} of {clip.id} is excluded, but its last frame is {length - 1}."
            )
        excluded.setdefault(clip.id, set()).update(range(first, last + 1))
    return excluded
