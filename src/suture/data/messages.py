"""What is told of wrong data in two places: by `suture check`, which collects it, and by whoever meets it at work."""

from collections.abc import Sequence

from suture.core.text import NAMED, listed, number

NAME = (
    "name each mask as its frame (VIDEO__frame_000120.png for frame 120, or the frame's own name in a folder VIDEO), "
    "or remove it"
)
ENDS = "keep the masks of one kind, with one ending behind the frames' names"
DOUBTFUL = (
    "say in the mask's name which video it is of (VIDEO__frame_000120.png for frame 120, or the frame's own name in a "
    "folder VIDEO), and keep one mask of each frame"
)
NUMBERS = (
    "give the video as it was when its masks were numbered (same frame rate, counted from 0), or name each mask by the "
    "frame that it shows, and remove what is of none"
)
MISSING = "put the video back, or mend or remove the name"
PROTOCOL = "name another protocol there, or remove the line for the default one"
NO_LABEL = "label frames and export again; images, and exports of CVAT, COCO and LabelMe, are read"
BOXES = "export the annotations as polygons or masks: a box does not say which pixels are of its object"
COVERED = "what stands later in the file lies on top: put the annotations in order, the lowest first"
SIZE = (
    "export the masks at the frames' size; if you resize them yourself, take the nearest pixel of an image, and scale "
    "the points of shapes with the width and height that their file states"
)
ONE_SIZE = (
    "resize or exclude those that differ, or put the frames of each size into a folder of their own, as a video of the "
    "same case"
)
UNPAINTED = "say `unpainted: background`, `ignore` or the name of a class in dataset.yaml; it is not guessed"
DRIFTED = (
    "colours that are almost a class's come from anti-aliasing or lossy compression: export the masks again as PNG and "
    "without either"
)
UNKNOWN = "add them to the class table, or mend the masks"
BY_ID = (
    "the two may be numbered differently: write each label beside the value of its class in dataset.yaml, as "
    "`value: [1, grasper]`"
)
VIEW = (
    "look at `view` in dataset.yaml (`suture check PATH --pictures FOLDER` draws it): widen it, or leave the class out"
)
IGNORED = (
    "look whether the masks are painted, and what classes, `unpainted`, `annotated` and `view` say of their pixels"
)
ONE_CLASS = (
    "a training needs two classes or more: name the others in the class table, look whether one is there by mistake as "
    "`ignore: true`, and what `unpainted`, `annotated` and `view` say of their pixels"
)


def length(video: str, frames: int) -> str:
    """How many frames a video has, and how they are counted.

    >>> length("left", 330)
    'left has 330 frames, 0–329'
    """
    return f"{video} has {number(frames, 'frame')}, 0–{frames - 1}"


def by_id(labels: Sequence[str]) -> str:
    """That labels have a class by an id alone.

    >>> by_id(["grasper (id 1) as liver"])
    "1 label taken for a class because the id in COCO is that class's value in mask images: grasper (id 1) as liver"
    """
    where = "taken for a class because the id in COCO is that class's value in mask images"
    return f"{number(len(labels), 'label')} {where}: {listed(labels, NAMED)}"


def other_size(video: str, index: int, found: tuple[int, int], first: tuple[int, int]) -> str:
    """What is wrong with a frame whose size (width, height) is not that of its video's first frame."""
    sizes = f"{found[0]}×{found[1]} pixels, expected {first[0]}×{first[1]} as the video's first frame"
    return f"Video {video}: frame {index} has {sizes}: {ONE_SIZE}."


def on_frame(mask: tuple[int, int], frame: tuple[int, int]) -> str:
    """The sizes (width, height) of a mask and of the frame that it should lie on.

    >>> on_frame((56, 48), (64, 48))
    '56×48 on a frame of 64×48'
    """
    return f"{mask[0]}×{mask[1]} on a frame of {frame[0]}×{frame[1]}"
