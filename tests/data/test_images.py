import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from suture.core.errors import UserError
from suture.data.images import MaskFile, image_size, read_image


def write(path: Path, pixels: np.ndarray, mode: str | None = None) -> Path:
    Image.fromarray(pixels, mode).save(path)
    return path


def test_a_frame_is_rgb_whatever_the_file_is(tmp_path: Path) -> None:
    color = np.zeros((4, 6, 3), np.uint8)
    color[..., 0] = 200
    assert (read_image(str(write(tmp_path / "rgb.png", color))) == color).all()
    assert (read_image(write(tmp_path / "grey.png", color[..., 0])) == 200).all()
    alpha = np.concatenate([color, np.full((4, 6, 1), 7, np.uint8)], axis=2)
    assert (read_image(write(tmp_path / "rgba.png", alpha)) == color).all()
    assert image_size(tmp_path / "rgba.png") == (6, 4)


@pytest.mark.parametrize("kept", [0, 4, 20, 0.3, 0.9])
def test_a_truncated_file_is_named(tmp_path: Path, kept: float) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    content = write(tmp_path / "whole.png", pixels).read_bytes()
    (tmp_path / "cut.png").write_bytes(content[: int(kept * len(content)) if kept < 1 else int(kept)])
    for read in (read_image, lambda path: MaskFile(path).read(False), lambda path: MaskFile(path).read(True)):
        with pytest.raises(UserError, match=r"cut\.png") as error:
            read(tmp_path / "cut.png")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_truncated_jpeg_is_no_frame_with_a_grey_end(tmp_path: Path, kept: float) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (80, 120, 3), np.uint8)
    content = write(tmp_path / "whole.jpg", pixels).read_bytes()
    assert read_image(tmp_path / "whole.jpg").shape == (80, 120, 3)
    (tmp_path / "cut.jpg").write_bytes(content[: int(kept * len(content))])
    with pytest.raises(UserError, match=r"cut\.jpg does not decode: the file is damaged or cut off"):
        read_image(tmp_path / "cut.jpg")


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}])
def test_a_jpeg_ends_where_its_pixels_end(tmp_path: Path, options: dict[str, Any]) -> None:
    """Not where its thumbnail does, which lies in the header and is a JPEG itself, nor at what a recorder appended."""
    pixels = np.random.default_rng(0).integers(0, 255, (80, 120, 3), np.uint8)
    thumbnail = write(tmp_path / "small.jpg", pixels[::8, ::8]).read_bytes()
    Image.fromarray(pixels).save(tmp_path / "plain.jpg", **options)
    plain = (tmp_path / "plain.jpg").read_bytes()
    header = b"\xff\xe1" + struct.pack(">H", 8 + len(thumbnail)) + b"Exif\0\0" + thumbnail
    content = plain[:2] + header + plain[2:]
    path = tmp_path / "frame.jpg"
    for appended in (b"", b"\0", b"what a camera adds", bytes(10_000), b"\xff" * 10_000, plain, plain[:5000]):
        path.write_bytes(content + appended)
        assert (read_image(path) == read_image(tmp_path / "plain.jpg")).all()
    for kept in (*range(2, len(content), 101), 2 + len(header), *range(len(content) - 4, len(content))):
        path.write_bytes(content[:kept])
        with pytest.raises(UserError, match=r"frame\.jpg"):
            read_image(path)


@pytest.mark.parametrize("size", [60_000, 14_000])
def test_a_header_that_promises_too_much(tmp_path: Path, size: int) -> None:
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", size, 60_000, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ]
    content = b"\x89PNG\r\n\x1a\n"
    for kind, body in chunks:
        content += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    path = tmp_path / "huge.png"
    path.write_bytes(content)
    for read in (image_size, read_image, lambda path: MaskFile(path).read(False)):
        with pytest.raises(UserError, match=r"huge\.png is not an image"):
            read(path)


def test_a_missing_file_a_pipe_and_a_folder_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match=r"gone\.png does not exist"):
        read_image(tmp_path / "gone.png")
    for name in ("pipe.png", "folder.png"):
        with pytest.raises(UserError, match=f"{name} is not a regular file"):
            read_image(tmp_path / name)


@pytest.mark.parametrize("ids", [[0, 1, 7], [0, 1, 255]])
def test_ids_survive_every_kind_of_png(tmp_path: Path, ids: list[int]) -> None:
    pixels = np.array([ids, ids], np.uint8)
    files = [
        write(tmp_path / "grey.png", pixels),
        write(tmp_path / "wide.png", pixels.astype(np.uint16)),
        write(tmp_path / "three.png", np.stack([pixels] * 3, axis=-1)),
    ]
    palette = Image.fromarray(pixels, "P")
    palette.putpalette([255, 0, 0] * 256)
    palette.save(tmp_path / "palette.png")
    for path in (*files, tmp_path / "palette.png"):
        assert MaskFile(path).read(by_color=False).tolist() == pixels.tolist()


def test_one_bit_masks_are_ids(tmp_path: Path) -> None:
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "bits.png")
    raw = MaskFile(tmp_path / "bits.png").read(by_color=False)
    assert raw.tolist() == [[1, 0]]
    assert raw.dtype == np.uint8


def test_colors_where_ids_are_meant(tmp_path: Path) -> None:
    path = write(tmp_path / "color.png", np.full((2, 2, 3), (1, 2, 3), np.uint8))
    with pytest.raises(UserError, match="is a colour image, but the class table is given by ids"):
        MaskFile(path).read(by_color=False)
    assert MaskFile(path).read(by_color=True)[0, 0].tolist() == [1, 2, 3]
