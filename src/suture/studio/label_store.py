"""LabelStore: masks and exclusions in the files that `suture train` reads."""

import io
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import yaml
from PIL import Image

from suture.core.errors import UserError
from suture.core.io import read_text, read_yaml, write_bytes, write_text
from suture.data.classes import IGNORE, Raw
from suture.data.dataset import Dataset, Mask, Video
from suture.data.dataset_file import EXCLUDE_FILE, FILE_NAME, DatasetFile
from suture.data.datasets.folder import place_of_new_masks
from suture.data.images import MaskFile
from suture.data.labelling import frame_name

STUDIO_FOLDER = ".studio"
"""Folder in a dataset for the studio's own files; hidden folders are never read as videos."""
EXCLUSION_REASON = "excluded in the studio"


class LabelStore:
    """Reads and writes the masks of a dataset, as class ids.

    A mask is written with the raw values of the class table. Only the pixels that change get a new value, so merged
    classes keep theirs.

    >>> labels = LabelStore(load_dataset("videos"))  # doctest: +SKIP
    >>> labels.write(video, 120, ids)  # doctest: +SKIP
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.root = dataset.root

    @cached_property
    def problem(self) -> str:
        """Reason why nothing can be labelled, with its fix; empty if labelling works."""
        if not (self.root / FILE_NAME).is_file():
            return "Name the classes first."
        file = DatasetFile.of(self.root)
        if not file.classes:
            return "Name the classes first."
        folder = place_of_new_masks(self.root)
        if isinstance(file.masks, dict) or folder not in [self.root / place for place in file.mask_places]:
            return f"dataset.yaml names no folder for new masks: write `masks: {folder.name}` and make that folder."
        if unpaintable := [name for id, name in enumerate(self.dataset.classes.names) if id not in self.raw_values]:
            return f"The class {unpaintable[0]} has no value from 0 to 255: add one in dataset.yaml."
        return ""

    @cached_property
    def raw_values(self) -> dict[int, Raw]:
        """Raw value of image files for each class id, and for `IGNORE` if there is one."""
        classes = self.dataset.classes
        kind = tuple if classes.by_color else int
        values: dict[int, Raw] = {}
        for raw, target in classes.values.items():
            if isinstance(raw, kind) and not (isinstance(raw, int) and raw > 255):
                values.setdefault(target, raw)
        blank: Raw = (0, 0, 0) if classes.by_color else 0
        if classes.unpainted is not None and blank not in classes.values:
            values.setdefault(classes.unpainted, blank)
        return values

    @property
    def blank(self) -> int:
        """Class id of a frame that nobody has painted yet, which the eraser paints too."""
        return self.dataset.classes.unpainted or 0

    @property
    def ground(self) -> int | None:
        """Class id of a frame that shows nothing; None if the dataset has no class for it."""
        names = self.dataset.classes.names
        named = next((id for id, name in enumerate(names) if name.startswith("background")), self.blank)
        return None if named == IGNORE else named

    def read(self, video: Video, index: int) -> np.ndarray | None:
        """Read the class ids of a label (H, W); None for a frame without."""
        mask = video.masks.get(index)
        return None if mask is None else self.dataset.classes.encode(mask.read(self.dataset.classes.by_color))

    def write(self, video: Video, index: int, ids: np.ndarray) -> int:
        """Write a label durably; return the number of pixels that differ from the label before."""
        if self.problem:
            raise UserError(self.problem)
        if unknown := set(np.unique(ids).tolist()) - self.raw_values.keys():
            raise UserError(f"The mask holds the class id {min(unknown)}, which dataset.yaml has no value for.")
        mask = video.masks.get(index)
        path = self._path(video, index)
        by_color = self.dataset.classes.by_color
        if mask is None:
            before = np.full(ids.shape, self.blank, np.uint8)
            raw = self._raw_table[before]
        else:
            raw = np.array(mask.read(by_color))
            before = self.dataset.classes.encode(raw)
        changed = before != ids
        raw[changed] = self._raw_table[ids[changed]]
        write_bytes(path, self._to_png(raw, path))
        annotated = next((one.annotated for one in video.masks.values()), None)
        self._masks(video)[index] = MaskFile(path, annotated)
        return int(np.count_nonzero(changed))

    def remove(self, video: Video, index: int) -> None:
        """Make a frame unlabelled; its file is kept in the studio's folder."""
        if index not in video.masks:
            return
        path = self._path(video, index)
        kept = self.root / STUDIO_FOLDER / "removed" / path.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, kept)
        del self._masks(video)[index]

    def exclude(self, video: Video, index: int, excluded: bool) -> None:
        """Exclude a frame from every use, or take it back in, in the dataset's list of exclusions."""
        if excluded == (index in video.excluded):
            return
        file = DatasetFile.of(self.root)
        path = self.root / (file.exclude or EXCLUDE_FILE)
        lines = read_text(path).splitlines() if path.exists() else ["video,first,last,reason"]
        name = video.id.replace('"', '""')
        row = (";" if lines[0].startswith("video;") else ",").join([f'"{name}"', *2 * [str(index)], EXCLUSION_REASON])
        if excluded:
            lines.append(row)
        elif row in lines:
            lines.remove(row)
        else:
            raise UserError(f"{path} excludes frame {index} with others: change its row there.")
        write_text(path, "\n".join([*lines, ""]))
        if file.exclude is None:
            add_keys(self.root, {"exclude": EXCLUDE_FILE})
        video.excluded = video.excluded | {index} if excluded else video.excluded - {index}
        video.__dict__.pop("usable", None)

    @cached_property
    def _raw_table(self) -> np.ndarray:
        """Raw values by class id: (256,) ids, or (256, 3) colours."""
        table = np.zeros((256, 3) if self.dataset.classes.by_color else 256, np.uint8)
        for target, raw in self.raw_values.items():
            table[target] = raw
        return table

    def _to_png(self, raw: np.ndarray, path: Path) -> bytes:
        if raw.ndim == 2 and raw.max(initial=0) > 255:
            raise UserError(f"{path} holds values above 255, which the studio cannot write.")
        image = Image.fromarray(raw.astype(np.uint8))
        if raw.ndim == 2:
            palette = np.zeros((256, 3), np.uint8)
            for value, target in self.dataset.classes.values.items():
                if isinstance(value, int) and value < 256 and target != IGNORE:
                    palette[value] = self.dataset.classes.colors[target]
            image.putpalette(palette.tobytes())
        content = io.BytesIO()
        image.save(content, "PNG", compress_level=3)
        return content.getvalue()

    def _path(self, video: Video, index: int) -> Path:
        mask = video.masks.get(index)
        if mask is None:
            return place_of_new_masks(self.root) / f"{frame_name(video.id, index)}.png"
        if isinstance(mask, MaskFile) and mask.path.suffix.lower() == ".png" and not mask.ids:
            return mask.path
        raise UserError(f"{mask.name} is no PNG mask: correct it in the tool that wrote it.")

    @staticmethod
    def _masks(video: Video) -> dict[int, Mask]:
        video.__dict__.pop("usable", None)  # with `take_every`, masks decide on the frames that take part
        return cast(dict[int, Mask], video.masks)


def name_classes(root: Path, names: Sequence[str]) -> None:
    """Write the classes of a new dataset into its `dataset.yaml`, which is drafted if there is none.

    Pixels that nobody paints are background.
    """
    from suture.checks.draft import write_draft
    from suture.data.classes import default_colors

    names = list(dict.fromkeys(["background", *(name.strip() for name in names if name.strip())]))
    path = root / FILE_NAME
    if not path.exists():
        write_draft(root)
    content = read_yaml(path)
    if content.get("classes"):
        raise UserError(f"{path} has classes already: edit them there, and start the studio again.")
    colors = zip(names, default_colors(names), strict=True)
    classes = [{"name": name, "value": id, "color": list(color)} for id, (name, color) in enumerate(colors)]
    added = {"classes": classes, "unpainted": "background", "masks": "masks"}
    add_keys(root, {key: value for key, value in added.items() if content.get(key) is None})
    place_of_new_masks(root).mkdir(exist_ok=True)


def add_keys(root: Path, keys: dict[str, object]) -> None:
    """Append keys to `dataset.yaml`; its comments stay."""
    path = root / FILE_NAME
    added = yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    write_text(path, f"{read_text(path).rstrip()}\n\n{added}")
