"""A first `dataset.yaml` for a folder of videos and masks, with every guess marked."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from suture.checks.case_guesses import expected_splits, guess_cases, guess_split, labelled_cases, splits_of_names
from suture.checks.frame_facts import find_video_view
from suture.checks.mask_values import MaskValues, Value, read_mask_values
from suture.checks.parallel import in_parallel
from suture.core.errors import UserError
from suture.core.io import SafeLoader, read_text, read_yaml, write_text
from suture.core.text import listed, number
from suture.core.workers import cores
from suture.data.classes import Color, Raw, distinct_colors
from suture.data.dataset import FORMAT, Split, Video
from suture.data.dataset_file import EXCLUDE_FILE, FILE_NAME, OPEN_VIDEOS_BY, DatasetFile, Place, find_guesses, parse
from suture.data.datasets import sources
from suture.data.datasets.folder import (
    BESIDE,
    Masks,
    case_of_videos,
    find_masks,
    find_videos,
    guess_layout,
    image_masks,
    mask_places,
)
from suture.data.formats import holds_labelme, is_export, open_file
from suture.data.formats.labelme import LabelMeFile
from suture.data.listing import listing
from suture.data.split_lists import SplitLists
from suture.data.video_index import MASK_FOLDERS, VideoEntry, VideoIndex
from suture.data.view import View

MAX_CLASSES = 64
"""Values in masks beyond which they are no classes."""
_NAMED_VIDEOS = 3
_GUESS = "  # guess"
_HEAD = (
    "# Drafted by `suture check --write`. Correct what is marked as a guess, and remove the mark;",
    "# answer the questions, and run `suture check` again.",
    f"format: {FORMAT}",
)


def write_draft(root: Path, force: bool = False, workers: int | None = None) -> Path:
    """Write the draft beside the data; `force` completes an existing `dataset.yaml`."""
    path = root / FILE_NAME
    if path.exists() and not force:
        raise UserError(f"{path} is already there: use --force to draft what it does not contain yet.")
    write_text(path, draft_dataset_file(root, workers))
    return path


def draft_dataset_file(root: Path, workers: int | None = None) -> str:
    """Draft the text of a `dataset.yaml` for a folder; a comment marks each value that cannot be guessed.

    The keys of an existing file stay as they are, with their marks.
    """
    _require_unknown_layout(root)
    workers = workers or cores()
    path = root / FILE_NAME
    old = _OldFile.read(path)
    candidates = _mask_places(root)
    file = parse(DatasetFile, {"videos": guess_layout(root)[0].videos} | old.content, path)
    places = mask_places(root, file, path) if "masks" in old.content else candidates
    stated = bool(old.content.keys() & {"videos", "videos_by"})
    skip = {Path(os.path.normpath(place)) for place in places}
    folder = Path(os.path.normpath(root / file.videos))
    videos, lists = find_videos(folder, skip, file, SplitLists.find(root), stated=stated)
    names = [place.name for place in candidates]
    if "masks" not in old.content:
        names = names or [*_plainest_first(videos.beside), *_labelme_beside(videos)]
        file = file.model_copy(update={"masks": names[0] if names else _masks_among(videos, root)})
    masks = find_masks(root, file, path, videos)
    ids = [video.id for video in videos.all]
    old.forget_outdated("view", ids)
    old.forget_outdated("cases", ids)
    told_apart = "videos_by" in old.content and ("videos_by",) not in old.guesses
    cases = _stated_cases(file, path, videos) if "cases" in old.content else guess_cases(videos.all, told_apart)
    old.forget_outdated("split", cases)
    sections = (
        [
            *_HEAD,
            *old.section(
                "name", lambda: [f"name: {_inline_yaml(root.resolve().name)}  # guess: the name of the folder"]
            ),
            *old.section("videos", lambda: [f"videos: {_inline_yaml(file.videos)}{_GUESS}"]),
            *old.section("videos_by", lambda: _draft_videos_by(videos)),
            *old.section("masks", lambda: _draft_masks(file.masks, names[1:])),
        ],
        _draft_classes(masks, old, file, path, workers),
        old.section("cases", lambda: _draft_cases(cases)),
        old.section("split", lambda: _draft_split(videos, cases, _count_labelled(masks, videos), lists)),
        old.section("view", lambda: _draft_view(videos.all, workers)),
        [*old.section("take_every", list), *old.section("exclude", lambda: _exclude(root))],
        old.section("annotated", list),
        old.section("protocol", list),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


@dataclass
class _OldFile:
    """The `dataset.yaml` that a draft completes."""

    content: dict[str, Any]
    """The keys with a value."""
    lines: dict[str, list[str]]
    """Key → its lines, without the comments between them."""
    guesses: set[Place]

    @staticmethod
    def read(path: Path) -> "_OldFile":
        if not path.exists():
            return _OldFile({}, {}, set())
        try:
            DatasetFile.read(path)
        except UserError as error:
            raise UserError(f"{error} Correct it, or remove the file to draft it from nothing.") from error
        content = read_yaml(path)
        text = read_text(path)
        node = yaml.compose(text, SafeLoader)
        if node.flow_style:
            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
            node = yaml.compose(text, SafeLoader)
        lines = text.splitlines()
        starts = [key.start_mark.line for key, _ in node.value]
        ranges = zip(node.value, starts, [*starts[1:], len(lines)], strict=True)
        of_key = {key.value: [line for line in lines[a:b] if _is_content(line)] for (key, _), a, b in ranges}
        kept = {key: value for key, value in content.items() if value not in (None, [], {}) or key == "view"}
        return _OldFile(kept, of_key, find_guesses(text))

    def forget_outdated(self, key: str, known: Collection[str]) -> None:
        """Drop a key whose entries are all guesses and name what is no longer there: it is guessed anew."""
        entries = self.content.get(key)
        if isinstance(entries, dict) and all((key, str(name)) in self.guesses for name in entries):
            names = entries if key == "view" else chain.from_iterable(entries.values())
            if not set(map(str, names)) <= set(known):
                del self.content[key]

    def section(self, key: str, draft: Callable[[], list[str]]) -> list[str]:
        """The lines of a key that is there, else the draft of it."""
        return self.lines[key] if key in self.content else draft()


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _stated_cases(file: DatasetFile, path: Path, videos: VideoIndex) -> dict[str, list[str]]:
    cases: dict[str, list[str]] = defaultdict(list)
    for video, case in case_of_videos(file, path, videos).items():
        cases[case].append(video)
    return cases


def _require_unknown_layout(root: Path) -> None:
    if not root.is_dir():
        raise UserError(f"{root} is not a folder: a dataset.yaml is drafted into the folder of the videos.")
    for name, known in sources().items():
        if name != "folder" and known.matches(root):
            raise UserError(f"{root} is {name}, which needs no {FILE_NAME}: classes and splits are built in.")


def _mask_places(root: Path) -> list[Path]:
    """Folders with a usual name for masks, or exports that lie beside the videos."""
    folders, files = listing(root)
    places = [root / name for name in MASK_FOLDERS if name in folders]
    return places or [root / name for name in (*folders, *files) if is_export(root / name) and _opens(root / name)]


def _opens(export: Path) -> bool:
    """Test whether an export holds labels of several frames, unlike LabelMe's files."""
    try:
        opened = open_file(export)
    except UserError:
        return False  # some other JSON or zip
    return not isinstance(opened, LabelMeFile) and bool(opened.frames)


def _count_labelled(masks: Sequence[Masks], videos: VideoIndex) -> Counter[str]:
    """The number of masks of each video."""
    matches = (places for part in masks for _, places in videos.match(part.export.frames, part.only))
    return Counter(places[0][0].id for places in matches if len(places) == 1)


def _plainest_first(beside: Mapping[str, Sequence[Path]]) -> list[str]:
    """The patterns of masks beside frames: first those with few values, then those of ids."""

    def untidiness(pattern: str) -> tuple[int, int, bool]:
        files = beside[pattern]
        values = read_mask_values([files[0], files[len(files) // 2], files[-1]], 1)
        return len(values.pixels), values.pixels[0] + values.pixels[0, 0, 0], values.by_color

    return sorted(beside, key=untidiness)


def _labelme_beside(videos: VideoIndex) -> list[str]:
    """The pattern of LabelMe files beside their frames, if that is what lies there."""
    beside = videos.json_beside_frames.values()
    return [BESIDE] if beside and all(map(holds_labelme, beside)) else []


def _masks_among(videos: VideoIndex, root: Path) -> dict[str, str] | list[str] | None:
    """The COCO file or folder of masks in each video's folder, or a list of all files."""
    exports = {place: video.id for place, video in videos.json_among_frames.items() if _opens(place)}
    if videos.are_by_name and exports:
        return [os.path.relpath(place, root) for place in exports]
    counts = Counter(exports.values())
    of_video = {video: place for place, video in exports.items() if counts[video] == 1} or videos.masks_inside
    return {video: os.path.relpath(place, root) for video, place in of_video.items()} or None


def _draft_videos_by(videos: VideoIndex) -> list[str]:
    if videos.are_by_name:
        names = listed([video.id for video in videos.all if video.file is None], _NAMED_VIDEOS)
        return [f"videos_by: name  # guess: {names}, by what stands before the numbers of images"]
    several = [video.id for video in videos.by_name().all if len(video.images) > 1]
    if len(several) <= sum(len(video.images) > 1 for video in videos.all):
        return []
    return [
        f"# question: are {listed(several, _NAMED_VIDEOS)} of several operations? Now the images of a folder are one"
        " video.",
        "# If they are, take the # off the next line, and draft again with --write --force.",
        OPEN_VIDEOS_BY,
    ]


def _draft_masks(places: str | list[str] | dict[str, str] | None, others: Sequence[str]) -> list[str]:
    if places is None:
        return ["# masks: masks  # question: no masks were found; where are they, or where will they be?"]
    if isinstance(places, dict):
        return [
            f"masks:{_GUESS}",
            *(f"  {_inline_yaml(video)}: {_inline_yaml(place)}{_GUESS}" for video, place in places.items()),
        ]
    return [f"masks: {_inline_yaml(places)}{_GUESS}{'; also found: ' if others else ''}{', '.join(others)}"]


def _draft_classes(masks: Sequence[Masks], old: _OldFile, file: DatasetFile, path: Path, workers: int) -> list[str]:
    """The classes of the old file, new ones of the masks, and the meaning of unpainted pixels."""
    entries = old.content.get("classes", [])
    marks = [_GUESS if ("classes", position) in old.guesses else "" for position in range(len(entries))]
    kept = [f"  - {_inline_yaml(entry)}{mark}" for entry, mark in zip(entries, marks, strict=True)]
    table = file.class_table(path, {}, images=()) if entries else None
    known = {*table.values, *file.targets} if table else set[Raw]()
    used = list(table.colors) if table else []
    images = [Path(image) for image in image_masks(masks)]
    values = read_mask_values(images, workers, table is not None and table.by_color) if images else None
    # The ids of a tool's labels may be other ones than those of the images beside them.
    labels = _new_labels(masks, {value for value in known if not images or not isinstance(value, int)})
    if values:
        lines, unpainted = _classes_of_values(values, kept, known, used)
        if labels:
            lines.append(f"  # question: to which values do the labels {listed(labels)} belong? Write both, as")
            lines.append("  # value: [1, label], into the line of the class.")
    elif masks:
        colors = distinct_colors(len(labels), used)
        new = ({"name": name, "color": list(color)} for name, color in zip(labels, colors, strict=True))
        lines = [*kept, *(f"  - {_inline_yaml(entry)}  # guess: the colour to show it in" for entry in new)]
        unpainted = _question_of_unpainted("what nobody painted")
    else:
        lines, unpainted = kept, []
    if not kept and not any(line.startswith("  - ") for line in lines):
        lines = ["# classes:  # question: which values or labels have which classes?", *lines]
        lines.append("#   - {name: instrument, value: 1}")
    else:
        lines = ["classes:", *lines]
    return [*lines, *old.section("unpainted", lambda: unpainted)]


def _new_labels(masks: Sequence[Masks], known: Collection[Raw]) -> list[str]:
    """The labels of annotation tools that no class has yet."""
    labels = {label: value for part in masks for label, value in part.export.labels.items()}
    return [label for label, value in labels.items() if label != "background" and not {label, value} & {*known}]


def _classes_of_values(
    values: MaskValues, kept: Sequence[str], known: Collection[Raw], used: Sequence[Color]
) -> tuple[list[str], list[str]]:
    """Lines of the kept classes and of new values, and the question about unpainted pixels."""
    total = values.pixels.total() or 1
    empty = [value for value in (0, (0, 0, 0)) if value in values.pixels and value not in known]
    new = [value for value in values.pixels if value not in empty and value not in known]
    lines = [*kept]
    if values.compressed:
        lines.append(
            f"  # {number(len(values.compressed), 'mask')} saved with lossy compression (JPEG) left out, first "
            f"{values.compressed[0].name}: export again as PNG, then draft again with --write --force."
        )
    if len(new) > MAX_CLASSES:
        lines.append(
            f"  # {len(new):,} values are too many for classes: export the masks without anti-aliasing, as PNG."
        )
        new = []
    new.sort(key=lambda value: value if isinstance(value, tuple) else (value,))
    for (name, value), color in zip(_name_values(new, known).items(), distinct_colors(len(new), used), strict=True):
        entry = _entry(name, value, color)
        share = f"{values.pixels[value] / total:.2%} of the pixels, in {number(values.masks[value], 'mask')}"
        lines.append(f"  - {_inline_yaml(entry)}  # guess: the name; {share}")
    if not empty:
        return lines, _question_of_unpainted("what nobody painted") if not values.read else []
    black = "black" if isinstance(empty[0], tuple) else "the value 0"
    share = f"{sum(values.pixels[value] for value in empty) / total:.1%} of the pixels"
    return lines, _question_of_unpainted(f"{black}, {share}")


def _name_values(values: Sequence[Value], known: Collection[Raw]) -> dict[str, Value]:
    """Name values: white alone on black is the foreground, 255 beside others is ignored."""
    if list(values) in ([255], [(255, 255, 255)]) and {0, (0, 0, 0)}.issuperset(
        v for v in known if not isinstance(v, str)
    ):
        return {"foreground": values[0]}
    free = (name for i in range(1, len(values) + len(known) + 1) if (name := f"class_{i}") not in known)
    return {
        "ignored" if value == 255 else f"class_{value}" if isinstance(value, int) else next(free): value
        for value in values
    }


def _entry(name: str, value: Value, color: Color) -> dict[str, Any]:
    """A class of an id in the colour given, or of a colour in its own."""
    if name == "ignored":
        return {"name": name, "value": value, "ignore": True}
    if isinstance(value, tuple):
        return {"name": name, "value": list(value), "color": list(value)}
    return {"name": name, "value": value, "color": list(color)}


def _question_of_unpainted(what: str) -> list[str]:
    return [
        f"# question: what do unpainted pixels mean ({what})? State one; nothing is assumed.",
        "# unpainted: background  # or ignore, or one of the classes",
    ]


def _draft_cases(cases: Mapping[str, list[str]]) -> list[str]:
    several = {case: videos for case, videos in cases.items() if len(videos) > 1}
    if not several:
        return ["# cases:  # guess: every video is a case of its own; list here those of one operation or patient"]
    lines = ["cases:  # guess: by names and folders; a video that is not listed is a case of its own"]
    return lines + [f"  {_inline_yaml(case)}: {_inline_yaml(videos)}{_GUESS}" for case, videos in several.items()]


def _draft_split(
    videos: VideoIndex, cases: Mapping[str, list[str]], labelled: Counter[str], lists: SplitLists
) -> list[str]:
    """The split by lists or names, else by labelled cases."""
    expected: Mapping[str, Collection[Split]] = lists.splits or {v: {s} for v, s in splits_of_names(videos.all).items()}
    split = guess_split(expected, cases, labelled)
    if not any(split.values()):
        return ["# split:  # which cases are for train, val and test; drafted from two labelled cases on"]
    origin = listed(list(lists.lines)) if lists.splits else "names and folders"
    if any(len(expected_splits(of_case, expected)) == 1 for of_case in cases.values()):
        reason = f"by {origin}"
    else:
        reason = f"of {len(labelled_cases(cases, labelled))} labelled cases"
        reason += f"; not by {origin}, which divide each case" if expected else ""
    lines = [f"split:  # guess: {reason}"]
    chosen = {case for of_split in split.values() for case in of_split}
    if left := [case for case in cases if case not in chosen]:
        lines.append(f"  # question: which split have these? {origin} divide or do not name them: {_inline_yaml(left)}")
    return lines + [f"  {name}: {_inline_yaml(of_split)}{_GUESS}" for name, of_split in split.items() if of_split]


def _draft_view(videos: Sequence[VideoEntry], workers: int) -> list[str]:
    unknown = [Video(video.id, video.id, video.frames(), None, video.file, "auto") for video in videos]
    views: dict[str, View | None] = {
        video.id: view for video, view in in_parallel(find_video_view, unknown, workers if len(unknown) > 8 else 1)
    }
    lines = [
        f"  {_inline_yaml(video.id)}: {_inline_yaml(view.to_json())}{_GUESS}"
        for video in unknown
        if (view := views[video.id])
    ]
    if not lines:
        return ["view: none  # guess: no black border was found"]
    return ["view:  # guess: found in nine frames of each video; looked for anew in videos that are not listed", *lines]


def _exclude(root: Path) -> list[str]:
    if (root / EXCLUDE_FILE).is_file():
        return [f"exclude: {EXCLUDE_FILE}  # guess: by its name"]
    return [f"# exclude: {EXCLUDE_FILE}  # frames to leave out (no signal, out of body): video,first,last,reason"]


def _inline_yaml(value: Any) -> str:
    """YAML on one line, quoted where it needs to be."""
    return yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf")
    ).splitlines()[0]
