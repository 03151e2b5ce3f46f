"""`suture labels import`: exports of labelling tools become masks of a dataset."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from suture.annotate.drafts import ToolLabels
from suture.annotate.png import label_map, write_mask
from suture.core.errors import UserError
from suture.core.io import filling, write_text
from suture.core.text import number
from suture.data import messages
from suture.data.classes import IGNORE
from suture.data.dataset import Dataset, Video
from suture.data.dataset_file import BACKGROUND, FILE_NAME, DatasetFile
from suture.data.datasets.folder import ImageMasks, find_videos, guess_layout, load, open_masks, place_of_new_masks
from suture.data.formats import Export
from suture.data.formats.cvat import LABEL_MAP
from suture.data.labelling import frame_name
from suture.data.video_index import VideoEntry


@dataclass
class ImportedLabels:
    """Outcome of an import."""

    folders: list[Path] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Imported masks of each video."""
    notes: list[str] = field(default_factory=list)


def import_labels(
    root: Path, exports: Sequence[Path], annotator: str | None = None, force: bool = False
) -> ImportedLabels:
    """Write the masks of exports into the dataset's folder of masks, one folder with a label map per export.

    Args:
        root: Folder of the dataset.
        exports: Files or folders of CVAT, Label Studio, COCO, Datumaro or LabelMe.
        annotator: Whose annotations to take, where Label Studio has several of a frame: an address or an id.
        force: Replace earlier imports of the same names.

    Raises:
        UserError: Something is wrong. The message lists every problem, and nothing is written.
    """
    job = _Import(root, annotator, force)
    for path in exports:
        job.read(path)
    if job.problems:
        lines = "".join(f"\n- {problem}" for problem in job.problems)
        raise UserError(f"{number(len(job.problems), 'problem')}, so nothing was imported:{lines}")
    for part in job.parts:
        part.write(job)
    return job.result


@dataclass
class _Part:
    """One export, with the place of each of its frames."""

    out: Path
    export: Export
    places: dict[str, tuple[Video, int]]

    def labels(self) -> list[str]:
        """Labels of the tool; CVAT's black background is what nobody painted."""
        return [label for label, value in self.export.labels.items() if (label, value) != (BACKGROUND, (0, 0, 0))]

    def masks(self) -> Iterator[tuple[str, np.ndarray | UserError]]:
        """Read the masks as places in the labels, `IGNORE` without a label; a mask that cannot be read is an error."""
        label_ids = {label: position for position, label in enumerate(self.labels())}
        for frame in self.places:
            try:
                ids = self.export.mask(frame, label_ids, None).read(by_color=False)
                yield frame, np.where(ids < 0, IGNORE, ids).astype(np.uint8)
            except UserError as error:
                yield frame, error

    def write(self, job: "_Import") -> None:
        known = dict(zip(job.dataset.classes.names, job.dataset.classes.colors, strict=True))
        labels = ToolLabels.of(self.labels(), known)
        with filling(self.out, last=LABEL_MAP) as folder:
            for frame, ids in self.masks():
                video, index = self.places[frame]
                assert isinstance(ids, np.ndarray)
                write_mask(folder, frame_name(video.id, index), ids, labels)
                job.result.counts[video.id] += 1
            write_text(folder / LABEL_MAP, label_map(labels))
        job.result.folders.append(self.out)


class _Import:
    """Reads exports and collects their problems."""

    def __init__(self, root: Path, annotator: str | None, force: bool) -> None:
        self.root = root
        self.annotator = annotator
        self.force = force
        self.dataset: Dataset = load(root)
        path = root / FILE_NAME
        self.file = DatasetFile.read(path) if path.is_file() else guess_layout(root)
        self.videos = find_videos(root, self.file)
        self.result = ImportedLabels()
        self.problems: list[str] = []
        self.parts: list[_Part] = []
        self.taken: dict[tuple[str, int], str] = {}
        """Name of the mask that each frame gets."""

    def read(self, path: Path) -> None:
        """Read an export, or a folder of exports."""
        try:
            opened = list(open_masks(path, self.videos, None, self.annotator))
        except UserError as error:
            self.problems.append(str(error))
            return
        for masks in opened:
            if isinstance(masks.export, ImageMasks):
                self.problems.append(f"{path} holds masks without {LABEL_MAP}: copy them into the folder of masks.")
            else:
                self.result.notes += masks.export.notes
                self._add(masks.export, masks.only)

    def _add(self, export: Export, only: VideoEntry | None) -> None:
        out = place_of_new_masks(self.root) / export.path.stem
        if any(part.out == out for part in self.parts):
            self.problems.append(f"{export.path}: another export is called {out.name}: rename one.")
        if out.exists() and not self.force:
            self.problems.append(f"{out} exists: rename the export, or use --force to replace the earlier import.")
        earlier = f"{out}: "
        part = _Part(out, export, {})
        self.problems += (f"{boxes}: {messages.BOXES}" for boxes in export.boxes if not boxes.shapes)
        for frame, places in self.videos.match(export.frames, only):
            mask = export.mask(frame, {}, None)
            if len(places) != 1:
                names = ", ".join(sorted(video.id for video, _ in places)) or "no frame of the dataset"
                self.problems.append(f"{mask.name} fits {names}: keep the names that `suture select` gives.")
                continue
            video, index = self.dataset[places[0][0].id], places[0][1]
            if index >= len(video):
                self.problems.append(f"{mask.name}: {messages.length(video.id, len(video))}.")
                continue
            before = video.masks[index].name if index in video.masks else ""
            other = self.taken.setdefault((video.id, index), mask.name)
            if other != mask.name or (before and not before.startswith(earlier)):
                self.problems.append(f"{mask.name}: the frame has the mask {before or other}: remove one of them.")
            part.places[frame] = video, index
        self._validate_masks(part)
        self.parts.append(part)

    def _validate_masks(self, part: _Part) -> None:
        """Read all masks, and find labels without a class."""
        labels, used = part.labels(), Counter[str]()
        if len(labels) > IGNORE:
            self.problems.append(f"{part.export.path} has {len(labels)} labels, expected at most {IGNORE}.")
            return
        for frame, ids in part.masks():
            if isinstance(ids, UserError):
                self.problems.append(str(ids))
                continue
            video, index = part.places[frame]
            if ids.shape[::-1] != (size := video.size_of(index)):
                wrong = messages.on_frame((ids.shape[1], ids.shape[0]), size)
                self.problems.append(f"{part.export.path}: {frame} is {wrong}: {messages.SIZE}.")
            used.update(labels[value] for value in np.unique(ids).tolist() if value != IGNORE)
        path = self.root / FILE_NAME
        known = self.file.class_table(path, part.export.labels, []).label_ids if self.file.classes else labels
        for label in sorted(used.keys() - set(known)):
            frames = number(used[label], "frame")
            self.problems.append(f"{part.export.path}: the label {label} ({frames}) is no class of {path}: add it.")
