"""The view is found in drawn, synthetic and real frames, and nothing is found where there is no border."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suture.data.find_view import find_view
from suture.data.images import read_image
from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import SyntheticSettings, plan_videos
from suture.data.view import View


def tissue(width: int, height: int, seed: int, falloff: float = 0.5, level: float = 170) -> np.ndarray:
    """A smooth red texture, lit in the middle: at the half diagonal a share `falloff` of the light is gone."""
    generator = np.random.default_rng(seed)
    coarse = generator.uniform(0.35, 1.2, (9, 9)).astype(np.float32)
    texture = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    light = 1 - falloff * np.clip((x**2 + y**2) / 2, 0, 1)
    return np.clip((level * texture * light)[..., None] * (1.0, 0.55, 0.45), 0, 255).astype(np.uint8)


def record(scene: np.ndarray, view: View, seed: int, noise: float = 3, black: int = 0, quality: int = 85) -> np.ndarray:
    """A frame as a recorder would store it: black outside the view, noise, JPEG."""
    height, width = scene.shape[:2]
    frame = np.where(view.mask(width, height)[..., None], scene, black).astype(np.float32)
    frame += np.random.default_rng(seed).normal(0, noise, frame.shape)
    _, data = cv2.imencode(".jpg", np.clip(frame, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR))


def iou(a: View | None, b: View, width: int, height: int) -> float:
    one = (a or View(0, 0, width, height)).mask(width, height)
    other = b.mask(width, height)
    return float((one & other).sum() / (one | other).sum())


CASES = {
    "pillarbox": View(60, 0, 200, 240),
    "letterbox": View(0, 30, 320, 180),
    "window": View(40, 20, 250, 200),
    "one side": View(0, 0, 280, 240),
    "circle": View(52, 12, 216, 216, (160.0, 120.0, 108.0)),
    "circle, off centre": View(20, 8, 224, 224, (132.0, 120.0, 112.0)),
    "circle, cut above and below": View(10, 0, 300, 240, (160.0, 120.0, 150.0)),
    "circle, corners only": View(0, 0, 320, 240, (160.0, 120.0, 180.0)),
    "circle, one side cut": View(0, 10, 250, 220, (140.0, 120.0, 110.0)),
    "circle in a window": View(40, 30, 240, 180, (160.0, 120.0, 115.0)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("black", [0, 16])
def test_finds_the_border(name: str, black: int) -> None:
    view = CASES[name]
    frames = [record(tissue(320, 240, seed), view, seed, black=black) for seed in range(5)]
    found = find_view(frames)
    assert found is not None
    assert iou(found, view, 320, 240) >= 0.97
    assert (found.circle is None) == (view.circle is None)


@given(
    width=st.integers(120, 900),
    aspect=st.floats(0.5, 1.0),
    radius=st.floats(0.35, 0.55),
    shift=st.tuples(st.floats(-0.08, 0.08), st.floats(-0.05, 0.05)),
    count=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_finds_any_circle(
    width: int, aspect: float, radius: float, shift: tuple[float, float], count: int, seed: int
) -> None:
    height = round(width * aspect)
    circle = (width * (0.5 + shift[0]), height * (0.5 + shift[1]), radius * width)
    view = View(0, 0, width, height, circle)
    frames = [record(tissue(width, height, seed + i, falloff=0.3), view, seed + i) for i in range(count)]
    assert iou(find_view(frames), view, width, height) >= 0.97


@given(
    left=st.integers(0, 60), top=st.integers(0, 60), right=st.integers(0, 60), bottom=st.integers(0, 60),
    seed=st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_finds_any_rectangle(left: int, top: int, right: int, bottom: int, seed: int) -> None:
    view = View(left, top, 320 - left - right, 240 - top - bottom)
    frames = [record(tissue(320, 240, seed + i, falloff=0.3), view, seed + i) for i in range(3)]
    found = find_view(frames)
    assert iou(found, view, 320, 240) >= 0.97
    assert found is None or found.circle is None


@pytest.mark.parametrize("falloff", [0.0, 0.5, 0.8, 0.95, 1.0, 1.2, 1.5, 2.0])
@pytest.mark.parametrize("count", [1, 5])
def test_a_vignette_is_no_border(falloff: float, count: int) -> None:
    whole = View(0, 0, 320, 240)
    assert find_view([record(tissue(320, 240, i, falloff=falloff), whole, i) for i in range(count)]) is None


def test_shadows_and_black_objects_at_the_edge_are_no_borders() -> None:
    shade = np.clip(np.linspace(-0.2, 1.5, 320), 0, 1)[None, :, None]
    scenes = [tissue(320, 240, seed, falloff=0.2) for seed in range(5)]
    assert find_view([(scene * shade).astype(np.uint8) for scene in scenes]) is None
    for scene in scenes:
        scene[150:, 200:] = 2
    assert find_view([record(scene, View(0, 0, 320, 240), seed) for seed, scene in enumerate(scenes)]) is None


def test_a_dark_hollow_at_the_rim_does_not_dent_the_circle() -> None:
    view = CASES["circle"]
    scenes = [tissue(320, 240, seed) for seed in range(5)]
    for scene in scenes:
        cv2.ellipse(scene, (230, 120), (60, 45), 0, 0, 360, (4, 3, 3), -1)
    found = find_view([record(scene, view, seed) for seed, scene in enumerate(scenes)])
    assert found is not None
    assert found.circle is not None
    assert iou(found, view, 320, 240) >= 0.97


def test_text_in_the_border_is_left_out() -> None:
    view = CASES["circle"]
    frames = [record(tissue(320, 240, seed), view, seed) for seed in range(5)]
    for frame in frames:
        cv2.putText(frame, "12:45", (4, 232), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1)
        cv2.putText(frame, "A. B.", (262, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 2)
    found = find_view(frames)
    assert iou(found, view, 320, 240) >= 0.97


@given(
    width=st.floats(0.2, 1.0),
    overlap=st.floats(-0.03, 0.15),
    level=st.integers(50, 255),
    below=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_a_menu_beside_a_round_view_is_left_out(
    width: float, overlap: float, level: int, below: bool, seed: int
) -> None:
    view = View(0, 0, 320, 240, (160.0, 120.0, 106.0))
    frames = [record(tissue(320, 240, seed + i), view, seed + i) for i in range(5)]
    depth, left = round(14 + 240 * overlap), round(160 - 160 * width)
    rows = slice(240 - depth, 240) if below else slice(0, depth)
    covered = np.zeros((240, 320), bool)
    covered[rows, left : 320 - left] = True
    for number, frame in enumerate(frames):
        frame[covered] = level
        cv2.putText(frame, f"F{number} 12:45", (left + 8, rows.stop - 3), cv2.FONT_HERSHEY_SIMPLEX, 0.3, (0, 0, 0))
    found = find_view(frames)
    assert found is not None
    assert found.circle is not None
    true, inside = view.mask(320, 240) & ~covered, found.mask(320, 240) & ~covered
    assert (true & inside).sum() / (true | inside).sum() >= 0.97


def test_something_round_that_moves_in_a_scene_at_rest_is_no_view() -> None:
    frames = []
    for seed in range(5):
        scene = tissue(320, 240, 0, falloff=1.0, level=120)
        cv2.circle(scene, (160 + seed % 3, 120 - seed % 2), 80, (120 + 20 * seed, 90, 90), -1)
        frames.append(record(scene, View(0, 0, 320, 240), seed))
    assert find_view(frames) is None


@pytest.mark.parametrize("frames", [[], [np.zeros((240, 320, 3), np.uint8)], [np.full((8, 8, 3), 200, np.uint8)]])
def test_without_a_scene_there_is_no_view(frames: list[np.ndarray]) -> None:
    assert find_view(frames) is None


def test_generated_video() -> None:
    kinds = set()
    for video in plan_videos(SyntheticSettings(seed=3, cases=6, frames=12, shots=2, fps=1, width=128, height=128)):
        excluded = {frame for first, last in video.excluded for frame in range(first, last + 1)}
        frames = [frame for index, (frame, _) in enumerate(render_video(video)) if index not in excluded]
        true = video.view or View(0, 0, 128, 128)
        assert iou(find_view(frames), true, 128, 128) >= 0.97
        kinds.add((true.circle is not None, video.bar > 0))
    assert kinds == {(True, False), (False, False), (False, True)}


def test_real_frames_without_a_border(shared: Path) -> None:
    for sequence in sorted((shared / "data/vocalfolds/img").glob("*/*")):
        files = sorted(sequence.iterdir())
        assert find_view([read_image(files[i * (len(files) - 1) // 8]) for i in range(9)]) is None, sequence.name
