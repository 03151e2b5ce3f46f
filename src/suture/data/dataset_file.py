"""`dataset.yaml`: the user's description of the classes, cases, splits and views of their data."""

import csv
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from inspect import isclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from suture.core.errors import UserError
from suture.core.io import MAX_INTEGER, SafeLoader, check_format, read_text, read_yaml
from suture.core.settings import Settings
from suture.core.text import NAMED, listed, reason, short
from suture.data.classes import IGNORE, ClassTable, Color, Raw, default_colors
from suture.data.dataset import FORMAT, Split, VideosBy
from suture.data.pattern import is_pattern, validate_pattern

FILE_NAME = "dataset.yaml"
EXCLUDE_FILE = "exclude.csv"
"""The usual name of a list of excluded frames, which `exclude` names."""
BACKGROUND = "background"
Place = tuple[str | int, ...]
"""A key of the file; or a key and what stands below it, by its name or its number."""
_GUESS = re.compile(r"[:\s]*#\s*guess")
OPEN_VIDEOS_BY = "# videos_by: name"
"""The line of a draft that asks whether the images of a folder are of several videos."""
T = TypeVar("T", bound=BaseModel)


def _color(value: Any) -> Color:
    if not isinstance(value, list | tuple) or len(value) != 3 or not all(_is_number(n, 255) for n in value):
        raise ValueError("a colour is three numbers from 0 to 255")
    return tuple(value)


def _values(value: Any) -> list[Raw]:
    """Validate one or several values, as a list."""
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    for item in values:
        if not isinstance(item, str | list | tuple) and not _is_number(item, 65535):
            raise ValueError("a value is an id from 0 to 65535, a colour [r, g, b], a label's name, or a list of these")
    return [_color(item) if isinstance(item, list | tuple) else item for item in values]


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _pattern(value: str) -> str:
    return validate_pattern(value) if is_pattern(value) else value


ColorField = Annotated[Color, BeforeValidator(_color)]


MaskPlace = Annotated[StrictStr, AfterValidator(_pattern)]


class ClassEntry(Settings):
    """One line of `classes`: the meaning of one or several raw values of the masks."""

    name: StrictStr
    value: Annotated[list[Any], BeforeValidator(_values)] = Field(default_factory=list)
    """Ids, colours, labels of the annotation tool; by default the name, as the tool's label."""
    color: ColorField | None = None
    """For people to look at."""
    merge: StrictStr | None = None
    """The class that these pixels count as."""
    ignore: StrictBool = False

    @property
    def is_in_images(self) -> bool:
        """True if it has an id or a colour, which masks in image files need."""
        return not all(isinstance(value, str) for value in self.value)


class DatasetFile(Settings):
    """The content of the file.

    >>> DatasetFile(masks="masks", classes=[{"name": "tissue", "value": 1}], unpainted="ignore").videos
    '.'
    """

    format: StrictInt = FORMAT
    name: StrictStr | None = None
    videos: StrictStr = "."
    videos_by: VideosBy = "folder"
    frames: Annotated[StrictStr, AfterValidator(validate_pattern)] | None = None
    """A pattern of all frames, instead of the folders below `videos`."""
    masks: MaskPlace | list[MaskPlace] | dict[StrictStr, StrictStr] | None = None
    """Folders of masks, annotation tools' exports, or patterns: one or several; or a place for each video."""
    classes: list[ClassEntry] = Field(default_factory=list)
    unpainted: StrictStr | None = None
    """`background`, `ignore` or a class; None if it is not stated."""
    cases: dict[StrictStr, list[StrictStr]] = Field(default_factory=dict)
    split: dict[Split, list[StrictStr]] | None = None
    view: Any = "auto"
    take_every: Annotated[StrictInt, Field(ge=1)] = 1
    """Every n-th frame of each video takes part, and all that have a mask."""
    deinterlace: StrictBool = False
    """Frames hold two fields of different moments: one is kept, the other interpolated."""
    exclude: StrictStr | None = None
    annotated: dict[StrictStr, list[StrictStr]] = Field(default_factory=dict)
    """The classes that were annotated in a video, where not all were."""
    protocol: StrictStr = "default"
    flip: StrictBool = True
    """Frames may be mirrored, in training and in prediction."""
    mirror: dict[StrictStr, StrictStr] = Field(default_factory=dict)
    """Classes that swap in a mirror image, such as `right_fold: left_fold`."""

    @staticmethod
    def read(path: Path) -> "DatasetFile":
        """Read a `dataset.yaml`; another format, an unknown key or a wrong value is a `UserError`."""
        content = read_yaml(path)
        check_format(path, content.get("format", 1), FORMAT)
        return parse(DatasetFile, content, path)

    @staticmethod
    def of(root: Path) -> "DatasetFile":
        """Read the file in a dataset's folder; where there is none, return the defaults."""
        path = root / FILE_NAME
        return DatasetFile.read(path) if path.is_file() else DatasetFile()

    @property
    def mask_places(self) -> list[str]:
        """The folders, exports and patterns of masks."""
        if isinstance(self.masks, str):
            return [self.masks]
        return list(self.masks.values() if isinstance(self.masks, dict) else self.masks or ())

    def target_of(self, name: str) -> str:
        """The class that the pixels of an entry count as."""
        return next((entry.merge for entry in self.classes if entry.name == name and entry.merge), name)

    @property
    def class_names(self) -> list[str]:
        """The classes, as the model numbers them."""
        names = list(dict.fromkeys(entry.merge or entry.name for entry in self.classes if not entry.ignore))
        if not names or (self.unpainted == BACKGROUND and BACKGROUND not in names):
            names.insert(0, BACKGROUND)
        return names

    @property
    def targets(self) -> dict[str, int]:
        """The number of the class that each name counts as, also merged and ignored ones."""
        number = {name: position for position, name in enumerate(self.class_names)}
        return number | {
            entry.name: IGNORE if entry.ignore else number[entry.merge or entry.name] for entry in self.classes
        }

    def class_table(self, path: Path, labels: Iterable[str], images: Sequence[str]) -> ClassTable:
        """Make the class table that the file describes.

        Args:
            path: The file, for messages.
            labels: The labels of annotation tools' exports. A label with the name of a class stands for that class.
            images: The masks that are image files; if there are any, every class needs an id or a colour.
        """
        self._check_classes(path, images)
        names, targets = self.class_names, self.targets
        values: dict[Raw, int] = {}
        origin: dict[Raw, str] = {}
        colors = {entry.name: entry.color for entry in self.classes if entry.color}
        for entry, entry_values in zip(self.classes, self._values(path), strict=True):
            for value in entry_values or [entry.name]:
                if value in values:
                    raise UserError(f"{path}: the value {value} is given to {origin[value]} and to {entry.name}.")
                values[value] = targets[entry.name]
                origin[value] = entry.name
            if entry.merge and entry.color:
                colors.setdefault(entry.merge, entry.color)
        values |= {label: targets[label] for label in labels if label in targets} | values

        painted = [colors.get(name) or color for name, color in zip(names, default_colors(names), strict=True)]
        return ClassTable(tuple(names), tuple(painted), values, self._unpainted(path, names), self._mirror(path, names))

    def _unpainted(self, path: Path, names: list[str]) -> int | None:
        if self.unpainted is None:
            return None
        if self.unpainted == "ignore" or any(entry.ignore for entry in self.classes if entry.name == self.unpainted):
            return IGNORE
        target = self.target_of(self.unpainted)
        if target not in names:
            near = nearest(self.unpainted, names)
            raise UserError(f"{path}: unpainted is {self.unpainted!r}, expected background, ignore or a class{near}.")
        return names.index(target)

    def _mirror(self, path: Path, names: list[str]) -> tuple[int, ...] | None:
        swaps = self.mirror | {other: name for name, other in self.mirror.items()}
        for name, other in swaps.items():
            if name not in names:
                raise UserError(f"{path}: mirror names {name!r}, which is no class{nearest(name, names)}.")
            if swaps[other] != name:
                raise UserError(f"{path}: mirror swaps {other!r} with two classes: keep one.")
        if not self.flip:
            return None
        return tuple(names.index(swaps.get(name, name)) for name in names) if swaps else ()

    def _check_classes(self, path: Path, images: Sequence[str]) -> None:
        entries = {entry.name: entry for entry in self.classes}
        for entry in self.classes:
            where = f"{path}: the class {entry.name}"
            if entry is not entries[entry.name]:
                raise UserError(f"{where} is listed twice: give one line a list of values.")
            if entry.merge and entry.ignore:
                raise UserError(f"{where} has both merge and ignore: keep one.")
            target = entries.get(entry.merge or "")
            if target is not None and (target.merge or target.ignore):
                raise UserError(f"{where} is merged into {target.name}, which is itself merged or ignored.")

        if lacking := [entry.name for entry in self.classes if images and not entry.is_in_images]:
            raise UserError(
                f"{path}: no value for {listed(lacking, NAMED)} in masks that are images (first: {images[0]}): write "
                "`value: 1` or, beside a label, `value: [1, LABEL]` under classes, or remove what is no mask."
            )

    def _values(self, path: Path) -> list[list[Raw]]:
        """The values of each entry; three numbers are a colour unless other numbers are ids."""
        numbers = [[value for value in entry.value if isinstance(value, int)] for entry in self.classes]
        some_ids = any(
            ids and (len(ids) != 3 or len(entry.value) != 3 or max(ids) > 255)
            for entry, ids in zip(self.classes, numbers, strict=True)
        )
        values: list[list[Raw]] = []
        for entry, ids in zip(self.classes, numbers, strict=True):
            values.append([_color(ids)] if len(ids) == 3 and not some_ids else entry.value)
        kinds = {type(value) for entry_values in values for value in entry_values}
        if {int, tuple} <= kinds:
            raise UserError(f"{path}: some classes have ids as value and some have colours: give all the same kind.")
        return values


def parse(model: type[T], content: Any, path: Path) -> T:
    """Validate a file's content; the first mistake becomes a `UserError` that names the key."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        # A misspelt key is also a missing one: the spelling is what helps.
        mistakes = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
        raise UserError(f"{path}: {_explain(mistakes[0], model)}.") from error


def find_guesses(text: str) -> set[Place]:
    """Find the keys of a file that are still marked as a guess.

    A key with lines below it is a guess as long as one of these is.

    >>> sorted(find_guesses("name: 'a # b'  # guess\\nsplit:  # kept\\n  train: ['#1']  # guess: by name"))
    [('name',), ('split', 'train')]
    >>> find_guesses("name:\\tx  # guess")  # as `read_yaml` takes a tab
    {('name',)}
    >>> find_guesses("cases:  # guess: by names\\n  a: [a1, a2]")
    set()
    """
    lines = text.splitlines()
    places: set[Place] = set()

    def add_guess(place: Place, end: yaml.Mark) -> None:
        if end.line < len(lines) and _GUESS.match(lines[end.line][end.column :]):
            places.add(place)

    for key, value in yaml.compose(text, SafeLoader).value:
        if isinstance(value, yaml.CollectionNode) and not value.flow_style:
            before = len(places)
            for position, entry in enumerate(value.value):
                name, node = entry if isinstance(entry, tuple) else (None, entry)
                add_guess((key.value, name.value if name else position), node.end_mark)
            if len(places) > before:
                add_guess((key.value,), key.end_mark)
        else:
            add_guess((key.value,), value.end_mark)
    return places


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest known names that start or end with a name, or are similar to it.

    >>> nearest("video_1", ["video_1_left", "video_1_right", "video_10_left"]), nearest("tisue", ["tissue", "vessel"])
    (' (did you mean video_1_left or video_1_right?)', ' (did you mean tissue?)')
    >>> nearest("PatA", ["stills_PatA", "stills_PatB", "stillsPatA"])
    ' (did you mean stills_PatA?)'
    """
    known = list(known)
    ends = re.compile(rf"{re.escape(name)}(?![^\W_]).*|.*(?<![^\W_]){re.escape(name)}", re.DOTALL)
    longer = [other for other in known if ends.fullmatch(other)]
    close = longer[:3] or get_close_matches(name, known, n=1)
    return f" (did you mean {' or '.join(close)}?)" if name and close else ""


class Exclusion(NamedTuple):
    """A line of the list of excluded frames: both indices belong to it."""

    line: int
    video: str
    first: int
    last: int


def read_exclusions(path: Path) -> list[Exclusion]:
    """Read a CSV file with the columns video, first, last and reason."""
    lines = read_text(path, "a CSV file").splitlines()
    try:
        # Spreadsheets put semicolons between cells in countries with decimal commas.
        rows = list(csv.reader(lines, delimiter=";" if lines and lines[0].startswith("video;") else ","))
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV file ({error}): expected the columns video, first, last.") from error
    if not rows or [name.strip() for name in rows[0][:3]] != ["video", "first", "last"]:
        raise UserError(f"{path} has the columns {', '.join(*rows[:1])[:80]}, expected video, first, last, reason.")
    exclusions = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            video, first, last = row[0].strip(), int(row[1]), int(row[2])
            if not 0 <= first <= last < MAX_INTEGER:
                raise ValueError
        except (IndexError, ValueError) as error:
            if row:
                raise UserError(
                    f"{path}, line {line}: found {short(','.join(row))}, expected video,first,last."
                ) from error
        else:
            exclusions.append(Exclusion(line, video, first, last))
    return exclusions


def _explain(error: ErrorDetails, model: type[BaseModel]) -> str:
    where = ".".join(str(part) for part in error["loc"] if part not in ("str", "[key]")) or "the whole"
    if error["type"] == "extra_forbidden":
        known = _keys_at(model, error["loc"])
        key = str(error["loc"][-1])
        return f"there is no key {where!r}{nearest(key, known)}; the keys are {', '.join(known)}"
    if error["type"] == "missing":
        return f"the key {where!r} is missing"
    why = reason(error)
    if error["type"] == "value_error" and not error["loc"]:
        return why  # it names the key itself, and all of a file is too much to repeat
    hint = "; names that look like numbers need quotes" if error["type"] == "string_type" else ""
    return f"{where} is {short(error['input'])}: {why[0].lower()}{why[1:]}{hint}"


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    for part in ("root", *location[:-1]):  # a file that is a list has it below `root`
        field = model.model_fields.get(str(part))
        inner = [kind for kind in get_args(field.annotation) if isclass(kind)] if field else []
        model = next((kind for kind in inner if issubclass(kind, BaseModel)), model)
    return list(model.model_fields)
