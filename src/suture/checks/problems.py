"""The kinds of problems that `suture check` reports: severity, description and fix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from suture.core.text import number
from suture.data import messages

Severity = Literal["fatal", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("fatal", "warning", "note")
MAX_PLACES = 50
OPEN_QUESTION = "unpainted"
"""The only fatal problem that a draft asks about: the data are fine, and the user decides."""
UNLABELLED = frozenset(
    {"masks-for-frames", "no-dataset-file", "no-label", "no-mask-fits", "no-masks", "no-masks-in-train"}
)
"""Problems that leave nothing to learn from."""


@dataclass(frozen=True)
class Problem:
    """One kind of trouble in a dataset, and its places."""

    code: str
    severity: Severity
    count: int
    what: str
    places: tuple[str, ...]
    """Files relative to the dataset's root, or videos with ranges of frames; at most `MAX_PLACES`."""
    fix: str

    @property
    def first(self) -> str:
        """The first place, or an empty string."""
        return self.places[0] if self.places else ""


class Kind(NamedTuple):
    """One line of the table of problems."""

    severity: Severity
    noun: str
    """The things that are counted, in the singular; empty where nothing is."""
    what: str
    """The description, which follows the count."""
    fix: str


_TWO_FOLDERS = "put frames into a folder `videos` and masks into `masks`, or name both folders in dataset.yaml"
_WRITE = "`suture check FOLDER --write` drafts it (with --force if it is there)"
_EXCLUDE = "list them in the file that `exclude` in dataset.yaml names (video, first, last, reason)"
_NUMBERS = "correct them and save them with the values of dataset.yaml: number 0 is its first class"
_ONE_CASE = "put the videos into one case; exclude the frames if they show a title or a test picture"
_CLASSES = "check what classes, `unpainted`, `annotated` and `view` in dataset.yaml make of the pixels"

KINDS: dict[str, Kind] = {
    # Cases and splits
    "several-operations": Kind(
        "warning", "", "The images of a folder may be of several operations", "set `videos_by` to `name` or `folder`"
    ),
    "divided-case": Kind("fatal", "case", "in more than one split", "put all videos of a case into one split"),
    "divided-by-list": Kind(
        "warning", "case", "divided by the lists", "put it into one split, and remove the mark `# guess` there"
    ),
    "guessed-case": Kind("note", "video", "joined by a guess", "correct `cases`, and remove its marks `# guess`"),
    "misnamed-split": Kind("warning", "video", "in another split than the name or a list says", "correct `split`"),
    "missing-video": Kind("fatal", "name", "of no video or case that is there", messages.MISSING),
    "no-split": Kind("warning", "video", "and none in a split", "assign cases to train, val and test under `split`"),
    "protocol": Kind("fatal", "", "", messages.PROTOCOL),
    # Videos and frames
    "bad-video": Kind("fatal", "video", "that cannot be read", "copy or export the files again, or remove them"),
    "bad-frame": Kind("fatal", "frame", "that cannot be decoded", f"copy the files again, or {_EXCLUDE}"),
    "cut-video": Kind("warning", "video", "without the frames at the end", "copy the files again"),
    "few-bits": Kind("fatal", "video", "of 16-bit images that are read as black", "save the frames with 8 bits"),
    "size-change": Kind("fatal", "video", "whose frames change size", messages.ONE_SIZE),
    "view": Kind("fatal", "video", "with a `view` outside the frames", "state `view` in pixels of these frames"),
    "few-taken": Kind("warning", "video", "of which take_every leaves one frame or none", "lower take_every"),
    "one-frame": Kind("warning", "video", "of one frame", "put all frames of a video into one folder"),
    "all-excluded": Kind("warning", "video", "with every frame excluded", "check the list of excluded frames"),
    "black": Kind("warning", "frame", "that are black", _EXCLUDE),
    "frozen": Kind("warning", "frame", "that repeat the one before", _EXCLUDE),
    "interlaced": Kind("warning", "frame", "that are interlaced", "set `deinterlace: true` in dataset.yaml"),
    "duplicate-frame": Kind("fatal", "frame", "of one split again in another, pixel for pixel", _ONE_CASE),
    "similar-frame": Kind("warning", "frame", "of one split almost the same in another", _ONE_CASE),
    # Masks and their frames
    "masks-for-frames": Kind("fatal", "video", "of images that look like masks, not frames", _TWO_FOLDERS),
    "no-masks": Kind("note", "", "No frame has a mask", "`suture select` chooses frames to label first"),
    "no-label": Kind(
        "fatal", "", "Masks that dataset.yaml names, but no frame is labelled in them", "label frames and export again"
    ),
    "no-dataset-file": Kind(
        "fatal", "", "The folder holds masks, but dataset.yaml does not define their values", _WRITE
    ),
    "no-masks-in-train": Kind("fatal", "", "No frame of the split train has a mask", "move labelled videos into train"),
    "no-masks-in-test": Kind("note", "", "No frame of the split test has a mask", "move labelled cases into test"),
    "mask-without-frame": Kind("warning", "mask", "without a frame", messages.NAME),
    "no-mask-fits": Kind("fatal", "mask", "without a frame, and none with one", messages.NAME),
    "mask-past-end": Kind("fatal", "video", "with masks past the end: all may be on wrong frames", messages.NUMBERS),
    "doubtful-mask": Kind("fatal", "mask", "left out: the name fits several frames", messages.DOUBTFUL),
    "mask-on-excluded": Kind("note", "mask", "on excluded frames: left out", "shorten the list of excluded frames"),
    "mask-size": Kind("fatal", "mask", "of another size than the frame", messages.SIZE),
    "bad-mask": Kind("fatal", "mask", "that cannot be decoded", "export the masks again, or remove them"),
    # Shapes and labels of annotation tools
    "boxes-only": Kind("fatal", "annotation", "left out: without a shape", messages.BOXES),
    "boxes": Kind("warning", "annotation", "left out: without a shape", messages.BOXES),
    "covered-shape": Kind("warning", "shape", "wholly covered by later ones of other classes", "order the annotations"),
    # Values and classes
    "colours-for-ids": Kind("fatal", "mask", "in colours, though the class table has ids", "give colours as `value`"),
    "ids-for-colours": Kind("fatal", "mask", "of ids, though the class table has colours", "give ids as `value`"),
    "predicted-mask": Kind("fatal", "mask", "with class numbers, as `suture predict` writes them", _NUMBERS),
    "jpeg-mask": Kind("fatal", "mask", "with values changed by lossy compression (JPEG)", "export again as PNG"),
    "smoothed-mask": Kind("fatal", "mask", "with smooth edges", "export without anti-aliasing or smooth resizing"),
    "ids-from-one": Kind("fatal", "mask", "whose ids begin at 1, not 0 as in the table", "raise each `value` by one"),
    "unknown-value": Kind("fatal", "mask", "with values that the class table does not list", messages.UNKNOWN),
    OPEN_QUESTION: Kind("fatal", "mask", "with unpainted pixels whose meaning is not stated", messages.UNPAINTED),
    "all-ignored": Kind("fatal", "", "Every pixel of the labelled training frames is ignored", _CLASSES),
    "one-class": Kind("fatal", "", "The labelled training frames show no class but one", _CLASSES),
    "class-alike": Kind("warning", "class", "whose names differ in capitals only", "join them by `merge`"),
    "class-outside-view": Kind("warning", "class", "outside the view only", "widen `view`, or leave the class out"),
    "class-never": Kind("warning", "class", "without a single pixel", "correct its value, or leave the class out"),
    "class-not-in-train": Kind("warning", "class", "in test or val but not in train", "move a case into train"),
    "class-not-scored": Kind("note", "class", "in train but not scored", "move a case that shows it there"),
}


def make_problem(
    code: str, places: Sequence[str] = (), count: int | None = None, detail: str = "", severity: Severity | None = None
) -> Problem:
    """Fill a line of the table.

    Args:
        code: The kind of problem, a key of `KINDS`.
        places: All places; the first `MAX_PLACES` are kept.
        count: How many things are wrong, by default as many as there are places.
        detail: What the description ends with, behind a colon.
        severity: Another severity than that of the table.
    """
    kind = KINDS[code]
    count = len(places) if count is None else count
    plural = f"{kind.noun}{'es' if kind.noun.endswith('s') else 's'}"
    what = f"{number(count, kind.noun, plural)} {kind.what}" if kind.noun else kind.what
    what = ": ".join(part for part in (what, detail) if part)
    return Problem(code, severity or kind.severity, count, what, tuple(places[:MAX_PLACES]), kind.fix)
