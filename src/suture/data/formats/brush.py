"""Label Studio's coding of brushed masks: runs of bytes, packed into bits (`rle-pack` of thi.ng/umbrella)."""

from collections.abc import Sequence

import numpy as np

CHANNELS = 4
"""Red, green, blue and alpha of a pixel follow each other; the alpha channel is the mask."""
_SIZES = (3, 4, 8, 16)
"""Bits of a run's length, of which two bits choose."""
_MIN_ALPHA = 128


def encode_brush(mask: np.ndarray) -> list[int]:
    """Encode a boolean mask (H, W)."""
    pixels = mask.ravel()
    starts = np.flatnonzero(np.diff(pixels, prepend=~pixels[:1]))
    lengths = np.diff(starts, append=pixels.size) * CHANNELS
    bits = [f"{pixels.size * CHANNELS:032b}{7:05b}", *(f"{size - 1:04b}" for size in _SIZES)]
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        value = f"{255 * int(pixels[start]):08b}"
        for part in (*[1 << 16] * ((length - 1) >> 16), (length - 1) % (1 << 16) + 1):
            choice = next(number for number, size in enumerate(_SIZES) if part <= 1 << size)
            bits.append(f"1{choice:02b}{part - 1:0{_SIZES[choice]}b}{value}")
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    return list(int(text, 2).to_bytes(len(text) // 8))


def decode_brush(code: Sequence[int], height: int, width: int) -> np.ndarray:
    """Decode to a boolean mask (H, W); raises `ValueError` if the code does not fill it."""
    data = bytes(code)
    bits = f"{int.from_bytes(data):0{8 * len(data)}b}"
    place = 0

    def read(size: int) -> int:
        nonlocal place
        place += size
        return int(bits[place - size : place], 2)

    total = read(32)
    if total != height * width * CHANNELS:
        raise ValueError("a mask of another image")
    word, sizes = read(5) + 1, [read(4) + 1 for _ in range(4)]
    values: list[int] = []
    lengths: list[int] = []
    filled = 0
    while filled < total and place < len(bits):
        is_run, length = read(1), read(sizes[read(2)]) + 1
        values += [read(word) for _ in range(1 if is_run else length)]
        lengths += [length] if is_run else [1] * length
        filled += length
    if filled != total:
        raise ValueError("runs that do not fill the image")
    return np.repeat(np.array(values) >= _MIN_ALPHA, lengths).reshape(height, width, CHANNELS)[..., -1]
