"""Masks and painted frames as image files."""

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from suture.core.io import replacing, require_regular_file
from suture.data.classes import ClassTable


def write_mask(path: Path, mask: np.ndarray, classes: ClassTable) -> None:
    """Write a palette PNG: its values are class ids, and viewers show the colours of the classes."""
    # Not by Pillow, which holds Python's lock for a third of a millisecond per file.
    height, width = mask.shape
    rows = np.empty((height, width + 1), np.uint8)
    rows[:, 0], rows[:, 1:] = 0, mask  # each row begins with the number of its filter: none
    # Masks are runs: to search for nothing else is faster, and makes smaller files too.
    packer = zlib.compressobj(level=1, memLevel=6, strategy=zlib.Z_RLE)
    chunks = (
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 3, 0, 0, 0)),  # 8 bits, with a palette
        (b"PLTE", classes.palette.tobytes()),
        (b"IDAT", packer.compress(rows.data) + packer.flush()),
        (b"IEND", b""),
    )
    parts = [(struct.pack(">I", len(data)), name + data) for name, data in chunks]
    png = b"".join(length + body + struct.pack(">I", zlib.crc32(body)) for length, body in parts)
    with replacing(path) as temporary:
        temporary.write_bytes(b"\x89PNG\r\n\x1a\n" + png)


def read_written_mask(path: Path) -> np.ndarray | None:
    """Read a mask that `write_mask` wrote; None if there is none."""
    require_regular_file(path)
    try:
        with Image.open(path) as image:
            return np.asarray(image) if image.mode == "P" else None
    except (OSError, ValueError, SyntaxError):
        return None


def write_picture(path: Path, pixels: np.ndarray) -> None:
    """Write an RGB picture as JPEG."""
    # Not by imwrite, which does not report why it cannot write.
    _, data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 92])
    with replacing(path) as temporary:
        temporary.write_bytes(data.tobytes())
