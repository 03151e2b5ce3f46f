"""Advice on wrong data that `suture check` and the commands that meet the data share."""

from suture.core.text import number

NAME = "name each mask as its frame, or VIDEO__frame_000120.png for frame 120, or remove it"
DOUBTFUL = "name each mask VIDEO__frame_000120.png for frame 120, and keep one mask of each frame"
NUMBERS = "give the video as it was when its masks were numbered (same frame rate, first frame 0), or rename the masks"
MISSING = "put the video back, or correct or remove the name"
PROTOCOL = "name another protocol there, or remove the line for the default one"
BOXES = "export the annotations as polygons or masks: a box does not show which pixels are of its object"
SIZE = "export the masks at the frames' size; resize images by the nearest pixel, and scale the points of shapes"
ONE_SIZE = "resize or exclude those that differ, or make a video of the frames of each size"
UNPAINTED = "set `unpainted` in dataset.yaml to `background`, `ignore` or the name of a class"
UNKNOWN = "add them to the class table (with `ignore: true` to leave them out), or correct the masks"


def length(video: str, frames: int) -> str:
    """Describe the frames of a video and their numbers.

    >>> length("left", 330)
    'left has 330 frames, 0–329'
    """
    return f"{video} has {number(frames, 'frame')}, 0–{frames - 1}"


def other_size(video: str, index: int, size: tuple[int, int], first: tuple[int, int]) -> str:
    """Describe a frame whose size (width, height) differs from that of its video's first frame."""
    sizes = f"{size[0]}×{size[1]} pixels, expected {first[0]}×{first[1]} as the video's first frame"
    return f"Video {video}: frame {index} has {sizes}: {ONE_SIZE}."


def on_frame(mask: tuple[int, int], frame: tuple[int, int]) -> str:
    """Compare the sizes (width, height) of a mask and of its frame.

    >>> on_frame((56, 48), (64, 48))
    '56×48 on a frame of 64×48'
    """
    return f"{mask[0]}×{mask[1]} on a frame of {frame[0]}×{frame[1]}"
