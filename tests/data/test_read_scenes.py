"""Frames become scenes in order, and ids find back to their frame; outside the view they are the ignore id."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Frame, Video
from suture.data.read_scenes import paste_in_frame, read_scene, read_scenes, resize_image
from suture.data.view import View


@pytest.fixture
def video(tmp_path: Path) -> Video:
    """Seven frames of 40 × 30, each of one grey, 20 × its index; the view leaves a white border out."""
    frames = []
    for index in range(7):
        image = np.full((30, 40, 3), 255, np.uint8)
        image[4:24, 6:36] = 20 * index
        file = tmp_path / f"{index}.png"
        cv2.imwrite(str(file), image)
        frames.append(Frame(index, index, image=file))
    return Video("v", "v", frames, view_setting=View(6, 4, 30, 20))


@pytest.mark.parametrize("size", [(20, 30), (10, 16), (33, 47)])
def test_a_scene_is_the_view_alone(video: Video, size: tuple[int, int]) -> None:
    scene = read_scene(video, 3, size)
    assert scene.shape == (*size, 3)
    assert scene.dtype == np.uint8
    assert (scene == 60).all()


@pytest.mark.parametrize("batch", [1, 3, 7, 20])
def test_scenes_come_in_the_order_asked_for(video: Video, batch: int) -> None:
    indices = [5, 0, 6, 2]
    parts = list(read_scenes(video, indices, (8, 8), batch))
    assert [index for part, _ in parts for index in part] == indices
    assert all(len(part) == len(images) <= batch for part, images in parts)
    assert [int(image[0, 0, 0]) for _, images in parts for image in images] == [20 * index for index in indices]
    assert list(read_scenes(video, [], (8, 8), batch)) == []


def test_a_broken_frame_ends_the_reading(video: Video, tmp_path: Path) -> None:
    (tmp_path / "4.png").write_bytes(b"no picture")
    scenes = read_scenes(video, range(7), (8, 8), 2)
    assert next(scenes)[0] == [0, 1]
    with pytest.raises(UserError, match=r"4\.png"):
        list(scenes)


def test_shrinking_averages() -> None:
    stripes = np.zeros((12, 12, 3), np.uint8)
    stripes[:, ::2] = 200
    assert (resize_image(stripes, (6, 6)) == 100).all()
    assert resize_image(stripes, (12, 12)) is stripes
    assert resize_image(stripes, (24, 30)).shape == (24, 30, 3)


@pytest.mark.parametrize("circle", [None, (20.0, 14.0, 10.0)])
def test_ids_outside_the_view_are_ignore(video: Video, circle: tuple[float, float, float] | None) -> None:
    view = View(6, 4, 30, 20, circle)
    video.view_setting = view
    ids = np.random.default_rng(0).integers(0, 3, (20, 30)).astype(np.uint8)
    frame = paste_in_frame(ids, video)
    inside = view.mask(40, 30)
    assert frame.shape == (30, 40)
    assert frame.dtype == np.uint8
    assert (frame[~inside] == IGNORE).all()
    assert np.array_equal(view.crop(frame)[view.crop(inside)], ids[view.crop(inside)])
    assert inside.sum() == 600 if circle is None else inside.sum() < 320
