"""The values of all masks, from which the draft of a `dataset.yaml` makes classes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from suture.checks.judge import is_jpeg
from suture.checks.parallel import in_parallel
from suture.core.errors import UserError
from suture.data.classes import UNPAINTED, Color, pack, unpack
from suture.data.images import MaskFile

Value = int | Color
_MIN_PARALLEL_MASKS = 64


@dataclass(frozen=True)
class MaskValues:
    """Pixels and masks of each value; compressed masks (JPEG) are not read."""

    pixels: Counter[Value]
    masks: Counter[Value]
    read: int
    """Masks that were read."""
    compressed: list[Path]

    @property
    def by_color(self) -> bool:
        return any(isinstance(value, tuple) for value in self.pixels)


def read_mask_values(images: Sequence[Path], workers: int, by_color: bool = False) -> MaskValues:
    """Count the values of masks: ids, or colours if `by_color` or if any mask is a colour image."""
    compressed = [image for image in images if is_jpeg(image.name)]
    others = [image for image in images if not is_jpeg(image.name)]
    workers = workers if len(others) > _MIN_PARALLEL_MASKS else 1
    counts = [] if by_color else [count for _, count in in_parallel(_count_ids, others, workers)]
    if by_color or not all(counts):
        colors = [count for _, count in in_parallel(_count_colors, others, workers)]
        counts = colors if any(colors) else counts
    read = [count for count in counts if count]
    pixels: Counter[Value] = Counter()
    masks: Counter[Value] = Counter()
    for count in read:
        pixels.update(count)
        masks.update(count.keys())
    return MaskValues(pixels, masks, len(read), compressed)


def _count(path: Path, by_color: bool) -> dict[Value, int] | None:
    """Pixels of each value; None where the mask cannot be read as such."""
    try:
        raw = MaskFile(path).read(by_color)
    except UserError:
        return None
    values, counts = np.unique(pack(raw) if by_color else raw, return_counts=True)
    names: list[Value] = list(map(unpack, values.tolist())) if by_color else values.tolist()
    return {value: count for value, count in zip(names, counts.tolist(), strict=True) if value != UNPAINTED}


_count_ids = partial(_count, by_color=False)
_count_colors = partial(_count, by_color=True)
