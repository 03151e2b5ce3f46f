"""`suture labels import`: exports of labelling tools become masks of a dataset."""

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
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
        exports: Exports of CVAT, Label Studio, COCO, Datumaro or LabelMe: files or folders.
        annotator: Address or id of the annotator to take where Label Studio has several for a frame.
        force: Replace earlier imports of the same names.

    Raises:
        UserError: Something is wrong. The message lists every problem, and nothing is written.
    """
    job = _Import(root, annotator, force)
    with ExitStack() as stack:  # which discards all folders if a problem is raised
        for path in exports:
            job.read(path, stack)
        if job.problems:
            lines = "".join(f"\n- {problem}" for problem in job.problems)
            raise UserError(f"{number(len(job.problems), 'problem')}, so nothing was imported:{lines}")
        for folder in job.result.folders:
            shutil.rmtree(folder, ignore_errors=True)
    return job.result


class _Import:
    """Reads exports, writes their masks and collects their problems."""

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
        self.taken: dict[tuple[str, int], str] = {}
        """Name of the mask that each frame gets."""

    def read(self, path: Path, stack: ExitStack) -> None:
        """Read an export, or a folder of exports; the stack finishes or discards what is written."""
        try:
            opened = list(open_masks(path, self.videos, None, self.annotator))
        except UserError as error:
            self.problems.append(str(error))
            return
        for masks in opened:
            if isinstance(masks.export, ImageMasks):
                self.problems.append(f"{path} holds masks without {LABEL_MAP}: copy them into the folder of masks.")
            else:
                self._add(masks.export, masks.only, stack)

    def _add(self, export: Export, only: VideoEntry | None, stack: ExitStack) -> None:
        out = place_of_new_masks(self.root) / export.path.stem
        # Black in CVAT means unpainted.
        names = [label for label, value in export.labels.items() if (label, value) != (BACKGROUND, (0, 0, 0))]
        if out in self.result.folders or (out.exists() and not self.force):
            self.problems.append(f"{out} exists: rename {export.path}, or use --force to replace an earlier import.")
        if not export.frames or len(names) > IGNORE:
            count = f"{len(export.frames)} labelled frames and {len(names)} labels"
            self.problems.append(f"{export.path} has {count}: expected some frames, and at most {IGNORE} labels.")
            return
        self.result.folders.append(out)
        self.result.notes += export.notes
        self.problems += (f"{boxes}: {messages.BOXES}" for boxes in export.boxes if not boxes.shapes)
        colors = dict(zip(self.dataset.classes.names, self.dataset.classes.colors, strict=True))
        labels, used = ToolLabels.of(names, colors), Counter[str]()
        folder = stack.enter_context(filling(out, last=LABEL_MAP))
        for frame, places in self.videos.match(export.frames, only):
            mask = export.mask(frame, {label: number for number, label in enumerate(names)}, None)
            try:
                video, index = self._frame_of(mask.name, places, out)
                raw = mask.read(by_color=False)
                if (raw.shape[1], raw.shape[0]) != (size := video.size_of(index)):
                    wrong = messages.on_frame((raw.shape[1], raw.shape[0]), size)
                    raise UserError(f"{mask.name} is {wrong}: {messages.SIZE}.")
            except UserError as error:
                self.problems.append(str(error))
                continue
            ids = np.where(raw < 0, IGNORE, raw).astype(np.uint8)
            used.update(names[value] for value in np.unique(ids).tolist() if value != IGNORE)
            write_mask(folder, frame_name(video.id, index), ids, labels)
            self.result.counts[video.id] += 1
        write_text(folder / LABEL_MAP, label_map(labels))
        path = self.root / FILE_NAME
        known = self.file.class_table(path, names, []).label_ids if self.file.classes else names
        for label in sorted(used.keys() - set(known)):
            frames = number(used[label], "frame")
            self.problems.append(f"{export.path}: the label {label} ({frames}) is no class of {path}: add it.")

    def _frame_of(self, mask: str, places: Sequence[tuple[VideoEntry, int]], out: Path) -> tuple[Video, int]:
        """The frame of a mask; raises unless there is exactly one, without another mask."""
        if len(places) != 1:
            names = ", ".join(sorted(video.id for video, _ in places)) or "no frame of the dataset"
            raise UserError(f"{mask} fits {names}: keep the names that `suture select` gives.")
        video, index = self.dataset[places[0][0].id], places[0][1]
        if index >= len(video):
            raise UserError(f"{mask}: {messages.length(video.id, len(video))}.")
        other = self.taken.setdefault((video.id, index), mask)
        before = video.masks[index].name if index in video.masks else ""
        if other != mask or (before and not before.startswith(f"{out}: ")):
            raise UserError(f"{mask}: the frame has the mask {before or other}: remove one of them.")
        return video, index
