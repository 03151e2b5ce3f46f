"""A first `dataset.yaml` for a folder of videos and masks, with every guess marked."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from suture.checks.case_guesses import guess_cases, guess_split, splits_of_names
from suture.checks.frame_facts import find_video_view, painted_levels
from suture.checks.mask_values import MaskValues, Value, read_mask_values
from suture.checks.parallel import in_parallel
from suture.core.errors import UserError
from suture.core.io import SafeLoader, read_text, read_yaml, remove_leftovers_of, write_text
from suture.core.text import listed, number
from suture.core.workers import cores
from suture.data.classes import Color, Raw, distinct_colors
from suture.data.dataset import FORMAT, Split, Video
from suture.data.dataset_file import EXCLUDE_FILE, FILE_NAME, OPEN_VIDEOS_BY, DatasetFile, Place, find_guesses, parse
from suture.data.datasets import sources
from suture.data.datasets.folder import (
    Masks,
    case_of_videos,
    find_masks,
    find_videos,
    guess_layout,
    image_masks,
)
from suture.data.formats import holds_labelme, is_export, open_file
from suture.data.formats.labelme import LabelMeFile
from suture.data.images import read_image
from suture.data.listing import before_number, listing
from suture.data.pattern import find_files, propose_patterns
from suture.data.split_lists import SplitLists
from suture.data.video_index import MASK_FOLDERS, VideoEntry, VideoIndex
from suture.data.view import View

MAX_CLASSES = 64
"""Values in masks beyond which they are no classes."""
_MAX_NAMED_VIDEOS = 3
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
    remove_leftovers_of(path)
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
    file = parse(DatasetFile, {"videos": guess_layout(root).videos} | old.content, path)
    names = [] if "masks" in old.content else _mask_places(root)
    videos = find_videos(root, file)
    if "masks" not in old.content:
        frames = None
        if not names:
            frames, names = _guess_patterns(root, videos)
        file = file.model_copy(update={"masks": names[0] if names else _masks_among(videos, root, file)})
        videos = find_videos(root, file)
        if frames and not file.frames and not _count_labelled(find_masks(root, file, path, videos), videos):
            file = file.model_copy(update={"frames": frames})
            videos = find_videos(root, file)
    masks = find_masks(root, file, path, videos)
    told_apart = "videos_by" in old.content and ("videos_by",) not in old.guesses
    cases = _stated_cases(file, path, videos) if "cases" in old.content else guess_cases(videos.all, told_apart)
    sections = (
        [
            *_HEAD,
            *old.section(
                "name", lambda: [f"name: {_inline_yaml(root.resolve().name)}  # guess: the name of the folder"]
            ),
            *old.section("frames", lambda: [f"frames: {_inline_yaml(file.frames)}{_GUESS}"] if file.frames else []),
            *old.section("videos", lambda: [] if file.frames else [f"videos: {_inline_yaml(file.videos)}{_GUESS}"]),
            *old.section("videos_by", lambda: _draft_videos_by(videos)),
            *old.section("masks", lambda: _draft_masks(file.masks, names[1:])),
        ],
        _draft_classes(masks, old, file, path, workers),
        old.section("cases", lambda: _draft_cases(cases)),
        old.section("split", lambda: _draft_split(videos, cases, _count_labelled(masks, videos), root)),
        old.section("view", lambda: _draft_view(videos.all, workers)),
        [*old.section("take_every", list), *old.section("exclude", lambda: _exclude(root))],
        *(old.section(key, list) for key in ("deinterlace", "annotated", "protocol", "flip", "mirror")),
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
        content, text = read_yaml(path), read_text(path)
        node = yaml.compose(text, SafeLoader)
        if node.flow_style:
            raise UserError(f"{path} is written in braces: write one key a line to have it completed.")
        lines = text.splitlines()
        starts = [key.start_mark.line for key, _ in node.value]
        ranges = zip(node.value, starts, [*starts[1:], len(lines)], strict=True)
        of_key = {key.value: [line for line in lines[a:b] if _is_content(line)] for (key, _), a, b in ranges}
        kept = {key: value for key, value in content.items() if value not in (None, [], {}) or key == "view"}
        return _OldFile(kept, of_key, find_guesses(text))

    def section(self, key: str, draft: Callable[[], list[str]]) -> list[str]:
        """The lines of a key that is there, else the draft of it."""
        return self.lines[key] if key in self.content else draft()


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _stated_cases(file: DatasetFile, path: Path, videos: VideoIndex) -> dict[str, list[str]]:
    cases: dict[str, list[str]] = {}
    for video, case in case_of_videos(file, path, videos).items():
        cases.setdefault(case, []).append(video)
    return cases


def _require_unknown_layout(root: Path) -> None:
    if not root.is_dir():
        raise UserError(f"{root} is not a folder: a dataset.yaml is drafted into the folder of the videos.")
    for name, known in sources().items():
        if name != "folder" and known.matches(root):
            raise UserError(f"{root} is {name}, which needs no {FILE_NAME}: classes and splits are built in.")


def _mask_places(root: Path) -> list[str]:
    """Folders with a usual name for masks, or exports that lie beside the videos."""
    folders, files = listing(root)
    usual = [name for name in MASK_FOLDERS if name in folders]
    return usual or [name for name in (*folders, *files) if is_export(root / name) and _opens(root / name)]


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


def _guess_patterns(root: Path, videos: VideoIndex) -> tuple[str | None, list[str]]:
    """Patterns of the frames and of masks that lie among them: first the masks with few values."""

    def untidiness(patterns: tuple[str, str]) -> tuple[int, int, bool]:
        files = [root / path for path in find_files(root, patterns[1]).values()]
        values = read_mask_values(files[:1], 1)
        return len(values.pixels), values.pixels[0] + values.pixels[0, 0, 0], values.by_color

    painted = {video.id for video in videos.all if video.images and _is_painted(video)}
    frames = [path for video in videos.all if video.id not in painted for path in _paths(root, video)]
    masks = [os.path.relpath(file, root) for files in videos.beside.values() for file in files]
    masks += [path for video in videos.all if video.id in painted for path in _paths(root, video)]
    if pairs := sorted(propose_patterns(frames, masks), key=untidiness):
        return pairs[0][0], [pattern for of_frames, pattern in pairs if of_frames == pairs[0][0]]
    labelme = [os.path.relpath(file, root) for file in videos.json_beside_frames.values() if holds_labelme(file)]
    return None, [pattern for _, pattern in propose_patterns(frames, labelme)]


def _paths(root: Path, video: VideoEntry) -> list[str]:
    within = "" if video.folder == root else f"{os.path.relpath(video.folder, root)}/"
    return [within + name for name in video.images.values()]


def _is_painted(video: VideoEntry) -> bool:
    """Test whether a video's images look like masks."""
    names = list(video.images.values())
    try:
        levels = [painted_levels(read_image(video.folder / name)[..., 1]) for name in (names[0], names[-1])]
    except UserError:
        return False
    return all(levels) and max(levels) > 1


def _masks_among(videos: VideoIndex, root: Path, file: DatasetFile) -> dict[str, str] | list[str] | None:
    """The COCO file or folder of masks in each video's folder, or a list of all files."""
    exports = {place: video.id for place, video in videos.json_among_frames.items() if _opens(place)}
    if file.videos_by == "name" and exports:
        return [os.path.relpath(place, root) for place in exports]
    counts = Counter(exports.values())
    return {video: os.path.relpath(place, root) for place, video in exports.items() if counts[video] == 1} or None


def _draft_videos_by(videos: VideoIndex) -> list[str]:
    names = {video.id: Counter(map(before_number, video.images)) for video in videos.all}
    several = {name for counts in names.values() if len(counts) > 1 for name in counts if name}
    if not several:
        return []
    return [
        f"# question: are {listed(sorted(several), _MAX_NAMED_VIDEOS)} of several operations? Now the images of a"
        " folder are one video.",
        "# If they are, take the # off the next line, remove cases and split, and draft again with --write --force.",
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
    lines = [f"  - {_inline_yaml(entry)}{mark}" for entry, mark in zip(entries, marks, strict=True)]
    table = file.class_table(path, {}, images=()) if entries else None
    known = {*table.values, *file.targets} if table else set[Raw]()
    used = list(table.colors) if table else []
    images = [Path(image) for image in image_masks(masks)]
    values = read_mask_values(images, workers, table is not None and table.by_color) if images else None
    labels = {label: own for part in masks for label, own in part.export.labels.items() if label not in known}
    labels.pop("background", None)
    unpainted: list[str] = []
    if values:
        new, unpainted = _classes_of_values(values, known, used)
        lines += new
        if labels:
            lines.append(f"  # question: to which values do the labels {listed([*labels])} belong? Write both, as")
            lines.append("  # value: [1, label], into the line of the class.")
    elif masks:
        for (label, value), color in zip(labels.items(), distinct_colors(len(labels), used), strict=True):
            own = value if isinstance(value, tuple) else color
            entry = _inline_yaml({"name": label, "color": list(own)})
            lines.append(f"  - {entry}  # guess: the colour to show it in")
        unpainted = _question_of_unpainted("what nobody painted")
    if any(line.startswith("  - ") for line in lines):
        lines = ["classes:", *lines]
    else:
        lines = ["# classes:  # question: which values or labels have which classes?", *lines]
        lines.append("#   - {name: instrument, value: 1}")
    return [*lines, *old.section("unpainted", lambda: unpainted)]


def _classes_of_values(
    values: MaskValues, known: Collection[Raw], used: Sequence[Color]
) -> tuple[list[str], list[str]]:
    """Lines of new values, and the question about unpainted pixels."""
    total = values.pixels.total() or 1
    empty = [value for value in (0, (0, 0, 0)) if value in values.pixels and value not in known]
    new = [value for value in values.pixels if value not in empty and value not in known]
    lines = []
    if values.compressed:
        masks = f"{number(len(values.compressed), 'JPEG mask')} left out (first: {values.compressed[0].name})"
        lines.append(f"  # {masks}: export again as PNG, then draft again with --write --force.")
    if len(new) > MAX_CLASSES:
        lines.append(f"  # {len(new):,} values are too many for classes: export the masks without anti-aliasing.")
        new = []
    new.sort(key=lambda value: value if isinstance(value, tuple) else (value,))
    for (name, value), color in zip(_name_values(new, known).items(), distinct_colors(len(new), used), strict=True):
        share = f"{values.pixels[value] / total:.2%} of the pixels, in {number(values.masks[value], 'mask')}"
        lines.append(f"  - {_inline_yaml(_entry(name, value, color))}  # guess: the name; {share}")
    if values.read and not empty:
        return lines, []
    share = f"value 0, {sum(values.pixels[value] for value in empty) / total:.1%} of the pixels"
    return lines, _question_of_unpainted(share if values.read else "what nobody painted")


def _name_values(values: Sequence[Value], known: Collection[Raw]) -> dict[str, Value]:
    """Name values: white alone is the foreground, 255 beside others is ignored."""
    ids = {value for value in known if not isinstance(value, str)}
    if list(values) in ([255], [(255, 255, 255)]) and ids <= {0, (0, 0, 0)}:
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


def _draft_split(videos: VideoIndex, cases: Mapping[str, list[str]], labelled: Counter[str], root: Path) -> list[str]:
    """The split by lists or names, else by labelled cases."""
    lists = SplitLists.find(root, videos)
    expected: Mapping[str, Collection[Split]] = lists.splits or {v: {s} for v, s in splits_of_names(videos.all).items()}
    split = guess_split(expected, cases, labelled)
    if not any(split.values()):
        return ["# split:  # which cases are for train, val and test; drafted from two labelled cases on"]
    origin = listed(lists.files) if lists.splits else "names and folders" if expected else "labelled cases"
    lines = [f"split:  # guess: by {origin}"]
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
