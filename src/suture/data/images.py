"""Image files: frames through OpenCV, masks through Pillow, which gives the indices of a palette PNG."""

import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError

from suture.core.errors import UserError
from suture.core.io import require_regular_file

MAX_PIXELS = 256 * 1024 * 1024
"""Pixel limit: larger images are damaged or hostile."""
MAX_LOW_DEPTH_VALUE = 2**13
"""A 16-bit image whose values lie below this holds a camera's 10 or 12 bits, unscaled."""
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"})
_JPEG_END = b"\xff\xd9"
_JPEG_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""Begin of a JPEG segment; pixels hold 0xff only before a zero, another 0xff or the number of a restart."""
_ID_MODES = ("P", "L", "1", "I", "I;16", "I;16B")


def image_size(path: Path) -> tuple[int, int]:
    """Read width and height from the header, without decoding."""
    with open_image(path, str(path)) as image:
        return image.size


def palette_of(path: Path) -> bytes | None:
    """Read the colours of a palette image; None of others."""
    with open_image(path, str(path)) as image:
        return bytes(image.getpalette() or ()) if image.mode == "P" else None


def read_image(path: str | Path) -> np.ndarray:
    """Read an image file as RGB, uint8, H W 3: grey is repeated, alpha dropped, 16 bits reduced to 8."""
    path = Path(path)
    image_size(path)  # raises for absurd sizes before anything is allocated
    # Masks ignore an orientation tag, so the pixels are taken as they are stored.
    pixels = cv2.imread(os.fspath(path), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None or _is_cut_jpeg(path):
        raise UserError(f"{path} does not decode: the file is damaged or cut off; replace it or exclude the frame.")
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def deinterlace(pixels: np.ndarray) -> np.ndarray:
    """Keep the even lines of a frame, and interpolate the odd ones, which are of another moment.

    >>> deinterlace(np.array([[[0]], [[9]], [[4]], [[9]]], np.uint8)).ravel().tolist()
    [0, 2, 4, 4]
    """
    result = pixels.copy()
    above, below = np.ascontiguousarray(pixels[:-2:2]), np.ascontiguousarray(pixels[2::2])
    result[1:-1:2] = cv2.addWeighted(above, 0.5, below, 0.5, 0).reshape(above.shape)
    if len(pixels) % 2 == 0:
        result[-1] = pixels[-2]
    return result


def max_16_bit_value(path: Path) -> int | None:
    """Read the largest value of a 16-bit image file; None for others."""
    pixels = cv2.imread(os.fspath(path), cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR)
    return int(pixels.max()) if pixels is not None and pixels.dtype == np.uint16 else None


def low_depth_divisor(largest: int) -> int | None:
    """Divisor that turns unscaled 10 or 12 bits into 8, given the largest value; None for full 16 bits.

    >>> low_depth_divisor(4095), low_depth_divisor(200), low_depth_divisor(60000)
    (16, None, None)
    """
    return 2 ** (largest.bit_length() - 8) if 255 < largest < MAX_LOW_DEPTH_VALUE else None


def _is_cut_jpeg(path: Path) -> bool:
    """Test whether a JPEG lacks its end: decoders fill the rest with grey without an error."""
    content = path.read_bytes()
    if not content.startswith(b"\xff\xd8") or content.endswith(_JPEG_END):
        return False
    # Some recorders write more after the end, and a thumbnail in the header has its own end marker. So
    # the end is searched segment by segment. Each states its length, except for the pixels, which hold no marker.
    place = 2
    while marker := _JPEG_MARKER.search(content, place):
        if marker[0] == _JPEG_END:
            return False
        place = marker.end() + int.from_bytes(content[marker.end() : marker.end() + 2], "big")
    return True


@dataclass(frozen=True, slots=True)
class MaskFile:
    """A mask in an image file: palette PNG, grey PNG of ids, or RGB."""

    path: Path
    annotated: tuple[str, ...] | None = None
    ids: bool = False
    """Holds ids although the class table has colours, in a dataset with both kinds of masks."""

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self, by_color: bool) -> np.ndarray:
        """Read the raw values: H W 3 colours if `by_color`, else H W ids."""
        with open_image(self.path, self.name) as image:
            return raw_mask(image, by_color and not self.ids, self.name)

    def examine(self, by_color: bool) -> tuple[np.ndarray, int]:
        return self.read(by_color), 0

    def content(self) -> bytes:
        require_regular_file(self.path)
        return self.path.read_bytes()


def raw_mask(image: Image.Image, by_color: bool, name: str) -> np.ndarray:
    """Return the raw values of an opened mask image; `name` is for messages."""
    try:
        if not by_color and image.mode in _ID_MODES:
            pixels = np.asarray(image)
            return pixels.astype(np.uint8) if image.mode == "1" else pixels
        pixels = np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise UserError(f"{name} does not decode ({error}): it is damaged or cut off; export it again.") from error
    if by_color:
        return pixels
    if (pixels != pixels[..., :1]).any():
        raise UserError(
            f"{name} is a colour image, but the class table is given by ids: "
            "give each class its colour as value, or save the masks as one channel of ids."
        )
    return pixels[..., 0]


def open_image(path: Path | BinaryIO, name: str) -> Image.Image:
    """Open an image without decoding it; `name` is for messages."""
    try:
        if isinstance(path, Path):
            require_regular_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(path)
        if image.width * image.height > MAX_PIXELS:
            image.close()
            raise Image.DecompressionBombError(f"{image.width}×{image.height} pixels")
    except FileNotFoundError as error:
        raise UserError(f"{name} does not exist: expected an image.") from error
    except (Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        why = "unknown format" if isinstance(error, UnidentifiedImageError) else error
        raise UserError(f"{name} is not an image that can be read ({why}): replace it.") from error
    return image
