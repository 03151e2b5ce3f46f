"""A first `dataset.yaml` for a folder of videos and masks, with every guess marked."""

import contextlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from suture.checks.check import DatasetSummary
from suture.checks.measurements import between_share, found_view, in_parallel
from suture.checks.problems import SMOOTHED, is_jpeg
from suture.core.errors import UserError
from suture.core.io import read_yaml, write_text
from suture.core.text import listed, number
from suture.core.workers import cores
from suture.data.classes import (
    IGNORE,
    UNPAINTED,
    ClassTable,
    Color,
    Raw,
    alike_but_for_capitals,
    distinct_colors,
    nearest_color,
    pack,
    unpack,
)
from suture.data.dataset import FORMAT, SPLITS, Split, Video, is_split_word, splits_by_name
from suture.data.dataset_file import (
    EXCLUDE_FILE,
    FILE_NAME,
    SEVERAL,
    ClassEntry,
    DatasetFile,
    Place,
    parse,
    unanswered,
)
from suture.data.datasets import sources
from suture.data.datasets.folder import (
    BESIDE,
    Masks,
    case_of_videos,
    find_masks,
    find_videos,
    guess,
    image_masks,
    mask_places,
)
from suture.data.formats import holds_labelme, is_export, open_file
from suture.data.formats.labelme import LabelMeFile
from suture.data.images import MaskFile
from suture.data.listing import before_number, in_order, listing, natural
from suture.data.split_lists import SplitLists
from suture.data.video_index import MASK_FOLDERS, VideoEntry, VideoIndex
from suture.data.view import View

_MOST_CLASSES, _MOST_OF_SMOOTHED = 64, 12
"""Values in masks, and in those with smooth edges, beyond which they are no classes."""
_STAND_IN = "stand_in"
"""The class of a value that is none; it goes with the next draft."""
_SOME = 3
"""Videos that a line names of many."""
_RARER = 10
"""How many times as frequent a colour must be for an almost equal one to be in doubt."""
_MANY = 50_000
"""Frames beyond which a training looks at some only, though it stores all of them: it draws 16,000 by default."""
_VALIDATED = 5
"""Labelled cases from which on some are for validation: with fewer, the training needs them more."""
_PART = re.compile(r"(.+?)[ _.-]*(?:part|pt|teil|chunk|segment|disc|cd)[ _.-]*([0-9]+)", re.IGNORECASE)
_COUNTED = re.compile(r"(.*[0-9].*?)(?:[ _.-]+([0-9]{1,2})|(?<=[0-9])[ _.-]?([a-h]))")
"""A number in the name and a count behind it: case07_2, case07b. In video_2 the only number tells videos apart."""
_CHAPTER = re.compile(r"(?:(G[HXLP])[0-9]{2}|GOPR)([0-9]{4})", re.IGNORECASE)
"""A GoPro's chapter and number of a recording: GX010123, GX020123, with older cameras GOPR0123, GP010123."""
_STAMPED = re.compile(r"(.*[0-9].*?)[ _.-]+([0-9]{3,})")
"""A number in the name and that of a frame behind it: video01_00080. Where they count 001, 002, they are none."""

_HEAD = (
    "# Drafted by `suture check --write`. Whatever is marked as a guess or asked as a question is yours to decide:",
    "# mend it, remove the mark, and run `suture check` again.",
    f"format: {FORMAT}",
)

_ALTERNATING = "frames"
"""The case of folders train and test that hold frames of one video."""
_KEPT_GUESS = "  # guess, kept"

Value = int | Color


def write_draft(root: Path, force: bool = False, workers: int | None = None) -> Path:
    """Write the draft beside the data; into a `dataset.yaml` that is there only by force, and what it says stays."""
    path = root / FILE_NAME
    if path.exists() and not force:
        raise UserError(f"{path} is already there: use --force to draft what it does not say yet.")
    write_text(path, draft_dataset_file(root, workers))
    return path


def draft_dataset_file(root: Path, workers: int | None = None) -> str:
    """The text of a `dataset.yaml` for the folder, as far as it can be guessed; what cannot is asked in a comment.

    What a `dataset.yaml` that is there says is kept; of its comments, only that something is a guess is.
    """
    _refuse_known(root)
    workers = workers or cores()
    path = root / FILE_NAME
    said = _said(path) if path.exists() else {}
    guesses = unanswered(path.read_text(encoding="utf-8-sig")) if said else set()
    candidates = _mask_places(root)
    file = parse(DatasetFile, {"videos": guess(root)[0].videos} | said, path)
    places = mask_places(root, file, path) if "masks" in said else candidates
    skip = {Path(os.path.normpath(place)) for place in places}
    # What a file that names its videos does not say of them is no question any more: its other keys speak of these.
    stated = said.keys() & {"videos", "videos_by"}
    guessed = not stated or ("videos_by",) in guesses
    place = Path(os.path.normpath(root / file.videos))
    clips, lists = find_videos(place, skip, file, SplitLists.find(root), stated=bool(stated))
    found = [place.name for place in candidates]
    if "masks" not in said:
        found = found or [*_plainest_first(clips.beside), *_labelme_beside(clips)]
        inside = {video: os.path.relpath(folder, root) for video, folder in clips.masks_inside.items()}
        file = file.model_copy(update={"masks": found[0] if found else _exports_among(clips, root) or inside or None})
    masks = find_masks(root, file, path, clips)
    videos = [clip.id for clip in clips.all]
    _forget_outdated(said, guesses, "view", videos)
    _forget_outdated(said, guesses, "cases", videos)
    told = "videos_by" in said and ("videos_by",) not in guesses
    cases = _stated_cases(file, path, clips) if "cases" in said else guess_cases(clips.all, told)
    _forget_outdated(said, guesses, "split", cases)
    labelled = _labelled(masks, clips)
    if "split" in said and _is_outgrown(said["split"], guesses, _labelled_cases(cases, labelled)):
        del said["split"]
    table = file.class_table(path, {}, images=()) if "classes" in said else None

    def section(key: str, draft: Callable[[], list[str]]) -> list[str]:
        return _kept(key, said[key], guesses) if key in said else draft()

    sections = (
        [
            *_HEAD,
            *section("name", lambda: [f"name: {_flow(root.resolve().name)}  # guess: the name of the folder"]),
            *section("videos", lambda: [f"videos: {_flow(file.videos)}  # guess"]),
            *section("videos_by", lambda: _videos_by(clips)),
            *section("masks", lambda: _masks(file.masks, found[1:])),
        ],
        _classes(masks, said, guesses, table, file, workers),
        section("cases", lambda: _cases(cases)),
        section("split", lambda: _split(clips, cases, labelled, lists, guessed)),
        section("view", lambda: _view(_find_views(clips.all, workers))),
        [*section("take_every", lambda: _take_every(clips)), *section("exclude", lambda: _exclude(root))],
        section("annotated", list),
        section("protocol", list),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def kept_aside(summary: DatasetSummary, path: Path) -> str:
    """How many labelled frames the split of a dataset file leaves for scoring, in one sentence; nothing if none."""
    counts = {split: summary.labelled_in(split) for split in SPLITS if split != "train"}
    if not any(counts.values()):
        return ""
    parts = listed([f"{count:,} in {split}" for split, count in counts.items() if count])
    return (
        f"{sum(counts.values()):,} of {number(summary.labelled, 'labelled frame')} are kept aside for scoring "
        f"({parts}) and not learnt from: to change that, move cases under split in {path}."
    )


def _said(path: Path) -> dict[str, Any]:
    """What a file says already; `null` and an empty list say nothing, but as a view."""
    try:
        DatasetFile.read(path)
    except UserError as error:
        raise UserError(f"{error} Mend it, or remove the file to draft it from nothing.") from error
    return {key: value for key, value in read_yaml(path).items() if value not in (None, [], {}) or key == "view"}


def _forget_outdated(said: dict[str, Any], guesses: Collection[Place], key: str, known: Collection[str]) -> None:
    """Forget a guess that nobody has answered and that speaks of what is no longer there: it is guessed anew."""
    entries = said.get(key)
    if isinstance(entries, dict) and all((key, str(name)) in guesses for name in entries):
        names = entries if key == "view" else chain.from_iterable(entries.values())
        if not set(map(str, names)) <= set(known):
            del said[key]


def _kept(key: str, value: Any, guesses: Collection[Place]) -> list[str]:
    mark = _mark((key,), guesses)
    if not isinstance(value, dict):
        return [f"{key}: {_flow(value)}{mark}"]
    marked = {name for name in value if (key, str(name)) in guesses}
    if (key,) in guesses and not marked:  # all stood in one line, with its mark
        marked = {*value}
    entries = ((f"  {_flow(name)}: {_flow(entry)}", name in marked) for name, entry in value.items())
    return [f"{key}:{mark}", *(f"{line}{_KEPT_GUESS if guessed else ''}" for line, guessed in entries)]


def _mark(place: Place, guesses: Collection[Place]) -> str:
    return _KEPT_GUESS if place in guesses else "  # kept"


def _stated_cases(file: DatasetFile, path: Path, clips: VideoIndex) -> dict[str, list[str]]:
    cases: dict[str, list[str]] = defaultdict(list)
    for video, case in case_of_videos(file, path, clips).items():
        cases[case].append(video)
    return cases


def _is_outgrown(split: Mapping[str, Any], guesses: Collection[Place], labelled: Sequence[str]) -> bool:
    """Whether a split that nobody has answered was drafted when one case at most had labels: all are for training."""
    return set(split) == {"train"} and ("split", "train") in guesses and len(labelled) > 1


def guess_cases(clips: Sequence[VideoEntry], named: bool = False) -> dict[str, list[str]]:
    """Which videos belong to one operation, by their folders or by names that look chopped.

    If the user has said that the images of a folder are of several operations (`named`), the folder does not join them.

    Chopped are x_part2, case07_2, case07b, GX020123 (the second chapter of recording 0123) and video01_00080, the last
    unless all videos are called video01; and a video of which other frames lie in train than in test, whether it has a
    name or not. A case that is too large costs little, one operation in train and test gives wrong numbers.

    >>> guess_cases([VideoEntry((name,), Path(), {}) for name in ("op1_1", "op1_2", "op2")])
    {'op1': ['op1_1', 'op1_2'], 'op2': ['op2']}
    """
    beside = Counter(clip.folder for clip in clips if clip.file is None)
    apart = {clip.id for clip in clips if named and clip.file is None and beside[clip.folder] > 1}
    paths = _without_shared({clip.id: clip.parts[-1:] if clip.id in apart else clip.parts for clip in clips})
    if all(len(path) == 1 and is_split_word(path[0]) for path in paths.values()) and _alternate(clips):
        return {_ALTERNATING: list(paths)}
    # seq_1 of a folder train and seq_1 of a folder test are two operations; the videos of a train1 may be of one.
    folders = {
        video: paths[video][0]
        for video in _splits_by_name(clips)
        if len(paths[video]) > 2 or (len(paths[video]) == 2 and is_split_word(paths[video][0]))
    }
    paths = _without_shared({video: path[1:] if video in folders else path for video, path in paths.items()})
    of_frames = _split_by_frames([clip for clip in clips if clip.id in folders], paths)
    folders = {video: folder for video, folder in folders.items() if video not in of_frames}
    names = {path[0] for path in paths.values() if len(path) == 1}
    counted: dict[str, set[int]] = defaultdict(set)
    for name in names:
        if match := _COUNTED.fullmatch(name):
            counted[match[1]].add(int(match[2]) if match[2] else ord(match[3]) - ord("a"))
    stamped = {name: match for name in names if (match := _STAMPED.fullmatch(name))}
    moments: dict[str, set[int]] = defaultdict(set)
    for match in stamped.values():
        moments[match[1]].add(int(match[2]))
    stems = {name: match[1] for name, match in stamped.items() if not _is_chopped(moments[match[1]], False)}
    if len({stems.get(path[0], path[0]) for path in paths.values()}) == 1:
        stems = {}
    cases: dict[str, list[str]] = defaultdict(list)
    for video, path in paths.items():
        case = _case(path, names, counted, stems)
        cases[f"{folders[video]}_{case}" if video in folders else case].append(video)
    # A case must not bear the name of a video that is not its own.
    return {(case if len(videos) > 1 else videos[0]): videos for case, videos in cases.items()}


def _split_by_frames(clips: Sequence[VideoEntry], paths: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Videos in folders of several splits that are one: they have the same name, and not one frame of the same name."""
    found: dict[tuple[str, ...], list[VideoEntry]] = defaultdict(list)
    for clip in clips:
        found[paths[clip.id]].append(clip)
    groups = (group for group in found.values() if len(group) > 1 and all(clip.images for clip in group))
    return {clip.id for group in groups if not _share_a_frame(group) for clip in group}


def _alternate(clips: Sequence[VideoEntry]) -> bool:
    """Whether folders of splits have turns in the numbers of frames that are else called alike, so are of one video."""
    folder_of = {stem: clip.id for clip in clips for stem in clip.images}
    if len(set(map(before_number, folder_of))) != 1 or _share_a_frame(clips):
        return False
    return len(list(groupby(map(folder_of.__getitem__, in_order(folder_of))))) > len(clips)


def _share_a_frame(clips: Sequence[VideoEntry]) -> bool:
    return max(Counter(stem for clip in clips for stem in clip.images).values()) > 1


def guess_split(
    said: Mapping[str, Collection[Split]], cases: Mapping[str, list[str]], labelled: Counter[str]
) -> dict[Split, list[str]]:
    """The split that is said of videos, without the cases of which none or several are; else about 60, 20 and 20 % of
    the labelled cases.

    With fewer than five of them none is for validation, which training does not need, and one is for the test. Without
    any there is no split.
    """
    split: dict[Split, list[str]] = {name: [] for name in SPLITS}
    for case, videos in cases.items():
        if len(found := _splits_of(videos, said)) == 1:
            split[found.pop()].append(case)
    if any(split.values()):
        return split
    candidates = sorted(_labelled_cases(cases, labelled), key=natural)
    if not candidates:
        return split
    count = len(candidates)
    each = max(1, round(0.2 * count)) if count > 1 else 0
    validated = count >= _VALIDATED
    held_count = 2 * each if validated else each
    held = [candidates[(2 * i + 1) * count // (2 * held_count)] for i in range(held_count)]
    split["test"], split["val"] = (held[::2], held[1::2]) if validated else (held, [])
    split["train"] = [case for case in cases if case not in held]
    return split


def _splits_of(videos: Sequence[str], said: Mapping[str, Collection[Split]]) -> set[Split]:
    return {split for video in videos for split in said.get(video, ())}


def _labelled_cases(cases: Mapping[str, list[str]], labelled: Counter[str]) -> list[str]:
    return [case for case, videos in cases.items() if any(labelled[video] for video in videos)]


def _refuse_known(root: Path) -> None:
    if not root.is_dir():
        raise UserError(f"{root} is not a folder: a dataset.yaml stands in the folder of the videos.")
    for known in sources().values():
        if known.name != "folder" and known.matches(root):
            raise UserError(f"{root} is {known.name}, which needs no {FILE_NAME}: classes and splits are built in.")


def _mask_places(root: Path) -> list[Path]:
    """Folders that are usually called so, or exports of annotation tools that lie beside the videos."""
    folders, files = listing(root)
    places = [root / name for name in MASK_FOLDERS if name in folders]
    return places or [root / name for name in (*folders, *files) if is_export(root / name) and _opens(root / name)]


def _opens(export: Path) -> bool:
    """Whether it holds labels of several frames; LabelMe's files, of one each, are named by a folder or a pattern."""
    try:
        found = open_file(export)
    except UserError:
        return False  # some other JSON or zip
    return not isinstance(found, LabelMeFile) and bool(found.frames)


def _labelled(masks: Sequence[Masks], clips: VideoIndex) -> Counter[str]:
    """How many masks each video has."""
    found = (places for part in masks for _, places in clips.frames(part.export.frames, part.only))
    return Counter(places[0][0].id for places in found if len(places) == 1)


def _plainest_first(beside: Mapping[str, Sequence[Path]]) -> list[str]:
    """The patterns of masks beside frames: first those of few values, painted all over, and of ids, by a few masks."""

    def untidiness(pattern: str) -> tuple[int, int, bool]:
        files = beside[pattern]
        found = _read_values([files[0], files[len(files) // 2], files[-1]], 1, by_color=False).pixels
        return len(found), found[0] + found[0, 0, 0], any(isinstance(value, tuple) for value in found)

    return sorted(beside, key=untidiness)


def _labelme_beside(clips: VideoIndex) -> list[str]:
    """The pattern of LabelMe files beside their frames, if that is what lies there."""
    beside = clips.json_beside_frames.values()
    return [BESIDE] if beside and all(map(holds_labelme, beside)) else []


def _exports_among(clips: VideoIndex, root: Path) -> dict[str, str] | list[str]:
    """The COCO file among the frames of each video, where there is one; or all, where a folder holds several videos."""
    opening = {place: clip.id for place, clip in clips.json_among_frames.items() if _opens(place)}
    if clips.are_by_name:
        return [os.path.relpath(place, root) for place in opening]
    counts = Counter(opening.values())
    return {video: os.path.relpath(place, root) for place, video in opening.items() if counts[video] == 1}


def _videos_by(clips: VideoIndex) -> list[str]:
    """How videos are told apart, where names may say it."""
    if clips.are_by_name:
        videos = listed([clip.id for clip in clips.all if clip.file is None], _SOME)
        return [f"videos_by: name  # guess: {videos}, by what stands before the numbers of images"]
    several = [clip.id for clip in clips.by_name().all if len(clip.images) > 1]
    if len(several) <= sum(len(clip.images) > 1 for clip in clips.all):
        return []
    return [
        f"# question: are {listed(several, _SOME)} {SEVERAL} Now the images of a folder are one video.",
        "# If they are, take the # off the next line, and draft again with --write --force.",
        "# videos_by: name",
    ]


def _masks(places: str | list[str] | dict[str, str] | None, others: Sequence[str]) -> list[str]:
    if places is None:
        return ["# masks: masks  # question: no masks were found; where are they, or where will they be?"]
    if isinstance(places, dict):
        return ["masks:  # guess", *(f"  {_flow(video)}: {_flow(place)}  # guess" for video, place in places.items())]
    return [f"masks: {_flow(places)}  # guess{'; also found: ' if others else ''}{', '.join(others)}"]


def _classes(
    masks: Sequence[Masks],
    said: Mapping[str, Any],
    guesses: Collection[Place],
    table: ClassTable | None,
    file: DatasetFile,
    workers: int,
) -> list[str]:
    """The classes, and what unpainted pixels mean: those that are said, and whatever else is in the masks."""
    images = [Path(image) for image in image_masks(masks)]
    found = _read_values(images, workers, table is not None and table.by_color) if images else None
    gone = _gone(file.classes, guesses, table, found) if table and masks else set()
    left = {*file.targets.values()} - {file.targets[file.classes[position].name] for position in gone}
    known = {value for value, target in table.values.items() if target in left} if table else set[Raw]()
    used = [color for target, color in enumerate(table.colors) if target in left] if table else []
    kept = [
        f"  - {_flow(entry)}{_mark(('classes', position), guesses)}"
        for position, entry in enumerate(said.get("classes", ()))
        if position not in gone
    ]
    if found:
        taken = [name for name, target in file.targets.items() if target in left]
        lines, unpainted = _classes_of_values(found, kept, taken, known, used)
        asked = _missing_values([entry for entry in file.classes if not entry.is_in_images], found)
        asked += _labels_beside_values(_new_labels(masks, {*known, *file.targets}, ids=False), found)
        if asked:
            count = number(len(images), "image")
            asked.append(
                f"  # {count} among the masks, first {images[0].name}: move away what is no mask, and draft again."
            )
        lines += asked
    elif masks:
        lines = _classes_of_labels(masks, kept, {*known, *file.targets}, used)
        unpainted = _unpainted("what nobody painted")
    elif kept:
        lines, unpainted = ["classes:", *kept], []
    else:
        lines, unpainted = ["# classes:  # question: what do the values of the masks mean?"], []
        lines.append("#   - {name: instrument, value: 1}")
    return [*lines, *(_kept("unpainted", said["unpainted"], guesses) if "unpainted" in said else unpainted)]


def _gone(
    classes: Sequence[ClassEntry], guesses: Collection[Place], table: ClassTable, found: "_Values | None"
) -> set[int]:
    """Where guesses stand that no mask holds any more, as after smoothed masks were drawn anew, and no class needs."""
    guessed = {place: entry for place, entry in enumerate(classes) if ("classes", place) in guesses}
    stand_ins = {place for place, entry in guessed.items() if entry.name == _STAND_IN}
    if found and (found.unread or found.lossy):
        return stand_ins  # the others may be in masks that say nothing
    pixels = found.pixels if found else {}
    held = {target for value, target in table.values.items() if isinstance(value, str) or value in pixels}
    needed = {*(table.names[target] for target in held if target != IGNORE), *(entry.merge for entry in classes)}
    return stand_ins | {
        place
        for place, entry in guessed.items()
        if entry.is_in_images
        if (IGNORE not in held if entry.ignore else entry.name in {*table.names} - needed)
    }


def _new_labels(masks: Sequence[Masks], known: Collection[Raw], *, ids: bool = True) -> list[str]:
    """The labels of annotation tools that no class has yet; by their `ids` too, unless these may be those of images."""
    labels = {label: value for part in masks for label, value in part.export.labels.items()}
    known = {value for value in known if ids or not isinstance(value, int)}
    return [label for label, value in labels.items() if label != "background" and not {label, value} & known]


def _labels_beside_values(labels: Sequence[str], found: "_Values") -> list[str]:
    """Where some masks are images and others have labels, only the user knows which value and label are one class."""
    if not labels:
        return []
    example = _flow([_value_of(found), labels[0]])
    return [
        f"  # question: to which of these classes do the labels of the annotation tool belong ({listed(labels)})?",
        f"  # Write each beside its class's value, as {example}; a class of its own needs one too.",
    ]


def _missing_values(entries: Sequence[ClassEntry], found: "_Values") -> list[str]:
    """The same of classes that the file has by labels alone, as from before there were images."""
    if not entries:
        return []
    names, value, labels = listed([entry.name for entry in entries]), _value_of(found), entries[0].value
    example = _flow({"value": [value, *labels] if labels else value})
    return [
        f"  # question: which values have {names} in the images? Write each into the",
        f"  # line of its class, as {example}, and remove the line drafted for it; what no image shows needs one too.",
    ]


def _value_of(found: "_Values") -> int | list[int]:
    """One that images hold, as an example."""
    values = (list(value) if isinstance(value, tuple) else value for value in found.pixels)
    return next((value for value in values if value not in (0, [0, 0, 0])), 1)


def _classes_of_labels(
    masks: Sequence[Masks], kept: Sequence[str], known: Collection[Raw], used: Sequence[Color]
) -> list[str]:
    names = _new_labels(masks, known)
    if not names and not kept:
        return ["# classes:  # question: the export has no shapes, hence no labels; which classes will there be?"]
    lines = ["classes:  # the labels of the annotation tool", *kept]
    for name, color in zip(names, distinct_colors(len(names), used), strict=True):
        lines.append(f"  - {_flow({'name': name, 'color': list(color)})}  # guess: the colour to show it in")
    before = sorted(name for name in known if isinstance(name, str))
    for first, *others in alike_but_for_capitals([*before, *names]):
        if not set(names).isdisjoint(others):
            merge = f"write merge: {_flow(first)} into the line of {listed(others)}"
            lines.append(f"  # question: are {listed([first, *others])} one class? If so, {merge}.")
    return lines


@dataclass(frozen=True)
class _Values:
    """The values of all masks."""

    pixels: Counter[Value]
    masks: Counter[Value]
    count: int
    unread: int
    lossy: Sequence[Path]
    """Those that are compressed: they are read only where all are."""
    all_lossy: bool
    smoothed: int
    """How many of those that were read have smooth edges."""


def _classes_of_values(
    found: _Values, kept: Sequence[str], taken: Collection[str], known: Collection[Raw], used: Sequence[Color]
) -> tuple[list[str], list[str]]:
    """Lines of what the masks hold beside the classes that are `kept`, and the question of what unpainted pixels mean.

    Of values that are no classes one stands in, as the masks are checked against some class.
    """
    total = found.pixels.total() or 1
    empty = [value for value in (0, (0, 0, 0)) if value in found.pixels and value not in known]
    painted = [value for value, _ in found.pixels.most_common() if value not in empty and value not in known]
    most = _MOST_OF_SMOOTHED if 2 * found.smoothed > found.count else _MOST_CLASSES
    drifted = found.all_lossy or len(painted) > most
    stands_in = painted[:1] if drifted and not kept else []
    values = sorted([] if drifted else painted, key=lambda value: value if isinstance(value, tuple) else (value,))
    kind = "colours" if any(isinstance(value, tuple) for value in found.pixels) else "ids"
    among = number(found.count, "mask")
    lines = [f"classes:  # the {kind} found in {among}", *kept]
    if not kept and not values and not stands_in:
        why = f"nothing is painted in {among}" if found.count else "no mask could be read"
        lines = [f"# classes:  # question: {why}; which classes will there be?"]
    if found.lossy:
        lines.append(
            f"  # No classes are drafted from {number(len(found.lossy), 'mask')} saved with lossy compression (JPEG), "
            f"first {found.lossy[0].name}: export again as PNG, then draft again with --write --force."
        )
    if drifted and not found.all_lossy:
        lines.append(
            f"  # No classes are drafted from {len(painted):,} {kind}: the masks look anti-aliased or compressed. If "
            "they are, export again as PNG and without either, then draft again with --write --force; else list them."
        )
    if found.unread:
        lines.append(f"  # {number(found.unread, 'mask')} could not be read.")
    free = (name for i in range(1, len(values) + len(taken) + 1) if (name := f"class_{i}") not in taken)
    names = [f"class_{value}" if isinstance(value, int) else next(free) for value in values]
    binary = values in ([255], [(255, 255, 255)]) and {0, (0, 0, 0)}.issuperset(known)
    if binary:  # to leave it out would leave nothing to learn
        names = ["foreground"]

    def shown(value: Value) -> str:
        return f"{found.pixels[value] / total:.2%} of the pixels, in {number(found.masks[value], 'mask')}"

    for value in stands_in:
        why = "it stands in, as the most frequent one, so that the masks can be checked"
        entry = _entry(_STAND_IN, value, *distinct_colors(1, used))
        lines.append(f"  - {_flow(entry)}  # guess: the name; {why}; {shown(value)}")
    for name, value, color in zip(names, values, distinct_colors(len(names), used), strict=True):
        share = shown(value)
        if value == 255 and not binary:
            entry = {"name": "ignored", "value": value, "ignore": True}
            lines.append(f"  - {_flow(entry)}  # guess: 255 often marks what to leave out; {share}")
            continue
        if isinstance(value, tuple) and (near := _drifted_from(value, found.pixels, known)):
            share = f"a class at all? It is almost {list(near)}: anti-aliased or compressed masks? {share}"
        entry = _entry(name, value, color)
        lines.append(f"  - {_flow(entry)}  # guess: the name; {share}")
    if not found.count:
        return lines, _unpainted("what nobody painted")
    if not empty:
        return lines, ["# unpainted: ignore  # every pixel of these masks is painted"]
    words = "black" if isinstance(empty[0], tuple) else "the value 0"
    unpainted = sum(found.pixels[value] for value in empty) / total
    example = "[0, 0, 0]" if isinstance(empty[0], tuple) else "0"
    return lines, [
        *_unpainted(f"{words}, {unpainted:.1%} of the pixels"),
        f"# If {words} is a class of its own, add it to the classes with value: {example} instead.",
    ]


def _entry(name: str, value: Value, color: Color) -> dict[str, Any]:
    """A class of an id in the colour given, or of a colour in its own."""
    if isinstance(value, tuple):
        return {"name": name, "value": list(value), "color": list(value)}
    return {"name": name, "value": value, "color": list(color)}


def _drifted_from(color: Color, pixels: Mapping[Value, int], known: Collection[Raw]) -> Color | None:
    """The colour of a class, or a much more frequent one, that this almost is."""
    others = [other for other in known if isinstance(other, tuple)]
    often = [other for other, count in pixels.items() if isinstance(other, tuple) and count > _RARER * pixels[color]]
    return nearest_color(color, [*others, *often])


def _unpainted(what: str) -> list[str]:
    return [
        f"# question: what do unpainted pixels mean ({what})? Say one; nothing is assumed.",
        "# unpainted: background  # or ignore, or one of the classes",
    ]


def _read_values(images: Sequence[Path], workers: int, by_color: bool) -> _Values:
    """Count the values of masks: ids, or colours where that is asked for or any mask is a colour image."""
    lossy = [image for image in images if is_jpeg(image.name)]
    others = [image for image in images if not is_jpeg(image.name)]
    images = others or lossy
    parallel = workers if len(images) > 64 else 1
    counts = list(dict(in_parallel(_ids_of, images, parallel)).values())
    if by_color or not all(counts):
        colors = list(dict(in_parallel(_colors_of, images, parallel)).values())
        counts = colors if any(colors) else counts
    read = [found for found in counts if found]
    pixels: Counter[Value] = Counter()
    masks: Counter[Value] = Counter()
    for found, _ in read:
        pixels.update(found)
        masks.update(found.keys())
    smoothed = sum(smooth for _, smooth in read)
    return _Values(pixels, masks, len(read), len(counts) - len(read), lossy, not others, smoothed)


def _ids_of(path: Path) -> tuple[dict[Value, int], bool] | None:
    """The pixels of each value, and whether edges are smooth."""
    try:
        pixels = MaskFile(path).read(by_color=False)
    except UserError:
        return None
    found, counts = np.unique(pixels, return_counts=True)
    of_value = dict(zip(found.tolist(), counts.tolist(), strict=True))
    return {value: count for value, count in of_value.items() if value != UNPAINTED}, between_share(pixels) > SMOOTHED


def _colors_of(path: Path) -> tuple[dict[Value, int], bool] | None:
    try:
        pixels = MaskFile(path).read(by_color=True)
    except UserError:
        return None
    found, counts = np.unique(pack(pixels), return_counts=True)
    of_color: dict[Value, int] = dict(zip(map(unpack, found.tolist()), counts.tolist(), strict=True))
    return of_color, between_share(pixels) > SMOOTHED


def _splits_by_name(clips: Sequence[VideoEntry]) -> dict[str, Split]:
    """The splits that are said by the first folders or names that differ: in ann/train and ann/test none is."""
    return splits_by_name({video: path[0] for video, path in _without_shared({c.id: c.parts for c in clips}).items()})


def _without_shared(paths: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    shared = _shared_folders(list(paths.values()))
    return {video: path[shared:] for video, path in paths.items()}


def _shared_folders(paths: Sequence[tuple[str, ...]]) -> int:
    """How many folders at the beginning are the same for all videos: they tell no cases apart."""
    if len(paths) < 2:
        return 0
    levels = zip(*(path[:-1] for path in paths), strict=False)
    return len(list(takewhile(lambda level: len(set(level)) == 1, levels)))


def _case(path: tuple[str, ...], names: set[str], counted: Mapping[str, set[int]], stems: Mapping[str, str]) -> str:
    if len(path) > 1:
        return path[0]
    name = path[0]
    if match := _PART.fullmatch(name):
        return match[1]
    if match := _CHAPTER.fullmatch(name):
        return f"{match[1] or 'GP'}{match[2]}".upper()
    if (match := _COUNTED.fullmatch(name)) and _is_chopped(counted[match[1]], match[1] in names):
        return match[1]
    return stems.get(name, name)


def _is_chopped(numbers: set[int], with_first: bool) -> bool:
    """Whether the numbers count 1, 2, 3 or 0, 1, 2; the first file may go without."""
    starts = (0, 1, 2) if with_first else (0, 1)
    return len(numbers) + with_first >= 2 and any(numbers == set(range(n, n + len(numbers))) for n in starts)


def _cases(cases: Mapping[str, list[str]]) -> list[str]:
    several = {case: videos for case, videos in cases.items() if len(videos) > 1}
    if not several:
        return ["# cases:  # guess: every video is a case of its own; list here those of one operation or patient"]
    lines = ["cases:  # guess: by names and folders; a video that is not listed is a case of its own"]
    return lines + [f"  {_flow(case)}: {_flow(videos)}  # guess" for case, videos in several.items()]


def said_of_videos(clips: Sequence[VideoEntry]) -> dict[str, set[Split]]:
    """The splits that names and folders say."""
    return {video: {split} for video, split in _splits_by_name(clips).items()}


def _split(
    clips: VideoIndex, cases: Mapping[str, list[str]], labelled: Counter[str], lists: SplitLists, guessed: bool
) -> list[str]:
    """The split; `guessed` says that nobody has stated what the videos are."""
    said: Mapping[str, Collection[Split]] = lists.splits or said_of_videos(clips.all)
    split = guess_split(said, cases, labelled)
    if not any(split.values()):
        return [
            "# split:  # which cases are for train, val and test; drafted among those with masks, once there are some"
        ]
    count = len(_labelled_cases(cases, labelled))
    files = listed(list(lists.lines)) if lists.splits else ""
    source = files or "names and folders that say train, val or test"
    followed = any(len(_splits_of(videos, said)) == 1 for videos in cases.values())
    if followed:
        reason = f"by {source}"
    elif count == 1:
        reason = "with one labelled case all are for training, and there is nothing to score on new videos"
    elif count < _VALIDATED:
        reason = f"with {count} labelled cases one is for the test and none for validation: training needs them more"
    else:
        reason = "about 60, 20 and 20 % of the labelled cases"
    if said and not followed and guessed and clips.are_by_name:
        # By names alone: they may be the chunks of one operation, of which some would be for the test.
        return [f"# split:  # question: which cases are for train and test? {source} divide each: {_flow(list(cases))}"]
    if said and not followed:
        reason += f"; not by {source}: frames of one case would be in several splits, and scores wrong"
    lines = [f"split:  # guess: {reason}"]
    chosen = {case for found in split.values() for case in found}
    if left := [case for case in cases if case not in chosen]:
        which = f"which {files} divide or do not name" if files else "whose names say no one split"
        lines.append(f"  # question: where do these belong, {which}? They are left out: {_flow(left)}")
    return lines + [f"  {name}: {_flow(found)}  # guess" for name, found in split.items() if found]


def _find_views(clips: Sequence[VideoEntry], workers: int) -> dict[str, View]:
    videos = [Video(clip.id, clip.id, clip.frames(), None, clip.file, "auto") for clip in clips]
    found = {
        video.id: view for video, view in in_parallel(found_view, videos, workers if len(videos) > 8 else 1) if view
    }
    return {video.id: found[video.id] for video in videos if video.id in found}


def _view(views: Mapping[str, View]) -> list[str]:
    if not views:
        return ["view: none  # guess: no black border was found"]
    lines = ["view:  # guess: found in nine frames of each video; it is looked for anew in videos that are not listed"]
    return lines + [f"  {_flow(video)}: {_flow(view.to_json())}  # guess" for video, view in views.items()]


def _take_every(clips: VideoIndex) -> list[str]:
    """Long video has more frames than a training ever looks at, and they are all read and stored."""
    with contextlib.suppress(UserError):  # of a file that cannot be read `check` tells
        if (frames := sum(clip.length for clip in clips.all)) > _MANY:
            every = max(2, round(frames / _MANY))
            few = f"{frames:,} frames take long to read and much room to store; those with a mask take part anyway"
            return [f"# take_every: {every}  # to take one of {every} frames: {few}"]
    return []


def _exclude(root: Path) -> list[str]:
    if (root / EXCLUDE_FILE).is_file():
        return [f"exclude: {EXCLUDE_FILE}  # guess: by its name"]
    return [f"# exclude: {EXCLUDE_FILE}  # frames to leave out (no signal, out of body): video,first,last,reason"]


def _flow(value: Any) -> str:
    """YAML on one line, quoted where it needs to be."""
    return yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf")
    ).splitlines()[0]
