"""The class table: the meaning of the raw ids or colours of a mask."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from suture.core.errors import UserError
from suture.core.text import listed

IGNORE = 255
"""The id of pixels that take no part in any loss or score."""
UNPAINTED = -1
"""The raw value of a pixel that an annotation tool left without any label."""
_NO_LABEL = (UNPAINTED, 0, (0, 0, 0))
"""The raw values of pixels that nobody painted, where the class table does not name them."""
_UNKNOWN = 254
_IDS = 65536
"""The ids an image file can hold; the labels of annotation tools are numbered after them."""
_NAMED_CHANGES = 5
_NO_IDS = np.zeros((0, 0), np.uint8)
_RED_GREEN_BLUE = np.array([65536, 256, 1], np.int32)

NEAR = 24
"""Difference in each channel up to which a colour is a drifted one of a class."""

Color = tuple[int, int, int]
Raw = int | Color | str
"""The raw value of a pixel: an id, a colour, or a label of the annotation tool."""
_SAFE_COLORS: tuple[Color, ...] = (
    # Okabe and Ito's eight without black. Then each time the colour farthest in CIELAB from all before it, black and
    # white, for the kind of colour vision that separates them worst (normal, protan, deutan or tritan).
    *((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167)),
    *((153, 51, 255), (102, 51, 0), (0, 255, 153), (153, 0, 102), (0, 51, 153), (255, 0, 102), (0, 0, 255)),
    *((204, 204, 204), (204, 102, 255), (102, 102, 51), (153, 204, 102), (255, 204, 255), (102, 0, 204)),
    *((153, 51, 153), (153, 153, 51), (204, 153, 153), (204, 0, 51), (153, 51, 204), (153, 255, 102)),
    *((255, 51, 204), (153, 102, 153), (102, 204, 51), (204, 51, 204), (255, 153, 255), (255, 102, 204)),
)


class UnknownValues(UserError):
    """A mask holds values that the class table does not know."""

    def __init__(self, counts: dict[Raw, int], known: str, ids: np.ndarray = _NO_IDS) -> None:
        self.counts = counts
        self.ids = ids
        """The mask as class ids, with these values as `IGNORE`; empty if it was not read whole."""
        values = [f"{_describe(value)} ({count} pixels)" for value, count in list(counts.items())[:5]]
        more = ", …" if len(counts) > 5 else ""
        super().__init__(f"holds {', '.join(values)}{more}, expected {known}")

    @property
    def unpainted(self) -> int:
        """Pixels that nobody painted: `unpainted` of a class table gives them a meaning."""
        return sum(self.counts.get(value, 0) for value in _NO_LABEL)

    @property
    def painted(self) -> dict[Raw, int]:
        """The counts of the other values."""
        return {value: count for value, count in self.counts.items() if value not in _NO_LABEL}


@dataclass(frozen=True)
class ClassTable:
    """Names and colours of the classes 0 … n−1, and which raw value of a mask means which of them.

    A raw value is an id, a colour or, in the export of an annotation tool, a label. Several raw values may mean one
    class (merged classes); a raw value may mean `IGNORE`. `unpainted` is the class of pixels without any label: raw 0
    or black where the table does not name them. It has no default, because guessing it wrong ruins a training silently:
    None means that it is not stated.

    >>> table = ClassTable(("tissue", "tool"), ((0, 0, 0), (0, 255, 0)), {0: 0, 1: 1, 2: 1})
    >>> table.encode(np.array([[0, 1, 2]])).tolist()
    [[0, 1, 1]]
    """

    names: tuple[str, ...]
    colors: tuple[Color, ...]
    values: Mapping[Raw, int]
    unpainted: int | None = None
    mirror: tuple[int, ...] | None = ()
    """Class that each class becomes in a mirror image; empty if all stay, None if frames must not be mirrored."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.names) < _UNKNOWN:
            raise UserError(f"A class table has {len(self.names)} classes, expected 1 to {_UNKNOWN - 1}.")
        if len(set(self.names)) < len(self.names):
            twice = sorted({name for name in self.names if self.names.count(name) > 1})
            raise UserError(f"The class names {', '.join(twice)} stand in the class table twice: names must differ.")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def meanings(self) -> dict[str, str]:
        """The class name of every raw value.

        >>> ClassTable(("tissue", "tool"), ((0, 0, 0), (0, 255, 0)), {1: 1, (9, 9, 9): IGNORE}, unpainted=0).meanings
        {'1': 'tool', '(9, 9, 9)': 'ignored', 'unpainted': 'tissue'}
        """
        meanings = {str(value): target for value, target in self.values.items()}
        if self.unpainted is not None:
            meanings["unpainted"] = self.unpainted
        return {value: "ignored" if target == IGNORE else self.names[target] for value, target in meanings.items()}

    def flip_order(self, flip: bool = True) -> tuple[int, ...] | None:
        """Order of the classes in a mirror image; None without `flip`.

        Raises:
            UserError: Frames must not be mirrored.
        """
        if flip and self.mirror is None:
            raise UserError("flip: the dataset forbids mirrored frames (`flip: false` in dataset.yaml): leave it out.")
        return (self.mirror or tuple(range(len(self)))) if flip else None

    @cached_property
    def mirror_ids(self) -> np.ndarray:
        """The id of every id in a mirror image, 256; that of ignore and of unused ids is their own."""
        ids = np.arange(256, dtype=np.uint8)
        ids[: len(self.mirror or ())] = self.mirror or ()
        return ids

    @property
    def by_color(self) -> bool:
        """True if the values of image files are colours, not ids."""
        return any(isinstance(value, tuple) for value in self.values)

    @property
    def is_numbered(self) -> bool:
        """True if the values are the numbers of the classes, as in the masks that Suture predicts."""
        values: Sequence[Raw] = self.colors if self.by_color else range(len(self))
        return all(self.values.get(value, self.unpainted) == number for number, value in enumerate(values))

    @cached_property
    def label_ids(self) -> dict[str, int]:
        """The ids that stand for an annotation tool's labels in `encode`."""
        labels = [value for value in self.values if isinstance(value, str)]
        return {label: _IDS + position for position, label in enumerate(labels)}

    @cached_property
    def _of_id(self) -> np.ndarray:
        # The last entry is reached by index -1, UNPAINTED; the one before stays unknown, for anything out of range.
        table = np.full(_IDS + len(self.label_ids) + 2, _UNKNOWN, np.uint8)
        for value, target in self.values.items():
            if not isinstance(value, tuple):
                table[self.label_ids[value] if isinstance(value, str) else value] = target
        if self.unpainted is not None:
            table[UNPAINTED] = self.unpainted
            if 0 not in self.values:
                table[0] = self.unpainted
        return table

    @cached_property
    def _of_color(self) -> np.ndarray:
        table = np.full(1 << 24, _UNKNOWN, np.uint8)
        for value, target in self.values.items():
            if isinstance(value, tuple):
                table[pack(np.array(value))] = target
        if self.unpainted is not None and (0, 0, 0) not in self.values:
            table[0] = self.unpainted
        return table

    def encode(self, raw: np.ndarray) -> np.ndarray:
        """Turn a raw mask (H W ids, or H W 3 colours) into class ids, or raise `UnknownValues`."""
        if raw.ndim == 3:
            packed = pack(raw)
            ids = self._of_color[packed]
        else:
            packed = raw
            ids = self._of_id[raw.clip(-2, len(self._of_id) - 2) if raw.dtype.itemsize > 2 else raw]
        if (unknown := ids == _UNKNOWN).any():
            unique, counts = np.unique(packed[unknown], return_counts=True)
            order = np.argsort(-counts)
            values = [unpack(value) if raw.ndim == 3 else value for value in unique.tolist()]
            ids[unknown] = IGNORE
            raise UnknownValues({values[i]: int(counts[i]) for i in order}, self._known(), ids)
        return ids

    def only_annotated(self, ids: np.ndarray, annotated: Sequence[str] | None) -> np.ndarray:
        """Ignore the pixels of classes that were not annotated; None stands for all classes."""
        if annotated is None:
            return ids
        kept = np.array([name in annotated for name in self.names] + [False] * (256 - len(self)))
        return np.where(kept[ids], ids, np.uint8(IGNORE))

    @cached_property
    def palette(self) -> np.ndarray:
        """The colours by class id, 256 × 3; ids without a class, and ignore, are black."""
        palette = np.zeros((256, 3), np.uint8)
        palette[: len(self)] = self.colors
        return palette

    def paint(self, ids: np.ndarray) -> np.ndarray:
        """Paint class ids as RGB; ignore is black."""
        return self.palette[ids]

    def _known(self) -> str:
        if self.by_color:
            return f"the {sum(isinstance(value, tuple) for value in self.values)} colours of the class table"
        values = [str(value) for value in self.values]
        return f"the values of the class table ({', '.join(values[:12])}{', …' if len(values) > 12 else ''})"


def pack(colors: np.ndarray) -> np.ndarray:
    """Pack colours, … × RGB, into one number each.

    >>> pack(np.array([[0, 0, 255], [1, 0, 2]])).tolist(), unpack(65538)
    ([255, 65538], (1, 0, 2))
    """
    return colors[..., :3].astype(np.int32) @ _RED_GREEN_BLUE


def unpack(value: int) -> Color:
    """Unpack a colour from a number."""
    return value >> 16, value >> 8 & 255, value & 255


def renamed(before: Sequence[str], after: Sequence[str]) -> str:
    """Describe how the classes of two tables differ; empty if they do not.

    >>> renamed(("liver", "fat"), ("liver", "needle", "clip"))
    'fat is gone, needle is new and clip is new'
    """
    changes = [f"{name} is gone" for name in before if name not in after]
    changes += [f"{name} is new" for name in after if name not in before]
    return listed(changes, _NAMED_CHANGES) or ("" if tuple(before) == tuple(after) else "their order is another")


def alike_but_for_capitals(names: Iterable[str]) -> list[list[str]]:
    """Group names that differ in capitals only, as several annotators type them.

    >>> alike_but_for_capitals(["Grasper", "liver", "grasper"])
    [['Grasper', 'grasper']]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.strip().casefold(), []).append(name)
    return [alike for alike in groups.values() if len(alike) > 1]


def default_colors(names: Sequence[str]) -> list[Color]:
    """A colour for each class: black for the background, colour-blind-safe for the others."""
    others = [name for name in names if name != "background"]
    color_of = dict(zip(others, distinct_colors(len(others), []), strict=True))
    return [color_of.get(name, (0, 0, 0)) for name in names]


def distinct_colors(count: int, used: Sequence[Color]) -> list[Color]:
    """Choose further colours: safe ones that are free, then those farthest from all others.

    >>> distinct_colors(2, [(230, 159, 0)])
    [(86, 180, 233), (0, 158, 115)]
    """
    taken = np.array([(0, 0, 0), *used])
    colors = [color for color in _SAFE_COLORS if (np.abs(taken - color).max(axis=1) > NEAR).all()][:count]
    levels = range(0, 256, 36)
    grid = np.array(list(itertools.product(levels, levels, levels)))
    distances = np.min([np.linalg.norm(grid - color, axis=1) for color in (*taken, *colors)], axis=0)
    while len(colors) < count:
        farthest = grid[distances.argmax()]
        colors.append((int(farthest[0]), int(farthest[1]), int(farthest[2])))
        distances = np.minimum(distances, np.linalg.norm(grid - farthest, axis=1))
    return colors


def _describe(value: Raw) -> str:
    return "pixels without any label" if value == UNPAINTED else f"the value {value}"
