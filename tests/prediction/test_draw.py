"""What a GPU draws and counts is what OpenCV does; here its way is gone on a CPU."""

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from predict_files import as_on_a_gpu, picture
from rich.console import Console

from suture.data.classes import IGNORE, ClassTable
from suture.data.overlay import PLAIN_STYLE, Overlay, OverlayStyle
from suture.data.view import View
from suture.models.inference import resize_matrices
from suture.prediction.fast.gpu_overlay import GpuOverlay, class_counts
from suture.prediction.frame_table import class_areas, count_pixels
from suture.prediction.predict import predict
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import PendingBatch, Predictor
from suture.prediction.smoother import Smoother
from suture.prediction.video_writer import rgb_to_planes

CLASSES = ClassTable(("background", "liver", "tool"), ((0, 0, 0), (230, 159, 0), (1, 255, 86)), {0: 0, 1: 1, 2: 2})
VIEWS = (None, View(7, 5, 60, 50), View(4, 2, 90, 80, (45.0, 40.0, 30.0)))


def assert_alike(planes: np.ndarray, expected: np.ndarray) -> None:
    """Equal but for the last bit of a blend, which processors may round in their own ways."""
    np.testing.assert_allclose(planes.astype(int), expected.astype(int), rtol=0, atol=1)


def go(predictor: Predictor, path: Path, out: Path, batch: int | None = None, **settings: Any) -> None:
    predict(predictor, [path], out, PredictionSettings(**settings), batch=batch, console=Console(file=io.StringIO()))


@given(st.integers(0, 2**32 - 1), st.integers(1, 220), st.integers(1, 130))
def test_planes_are_those_of_opencv(seed: int, width: int, height: int) -> None:
    generator = np.random.default_rng(seed)
    frame = generator.integers(0, 256, (height, width, 3), np.uint8)
    coarse = generator.choice(np.array([0, 1, 2, IGNORE], np.uint8), (1 + height // 9, 1 + width // 9))
    mask = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_NEAREST)
    overlay = Overlay(CLASSES, width, height, OverlayStyle(opacity=0.7, outline=seed % 3))
    drawn = GpuOverlay(overlay, torch.device("cpu"))(torch.from_numpy(frame)[None], torch.from_numpy(mask)[None])
    assert_alike(drawn[0].numpy(), rgb_to_planes(overlay(frame, mask)))


@pytest.mark.parametrize("sides", [(1700, 1300), (1301, 901)])
def test_thick_outlines_are_those_of_opencv(sides: tuple[int, int]) -> None:
    frame = picture(0, *sides)
    mask = (frame[..., 0] // 90).astype(np.uint8)
    overlay = Overlay(CLASSES, *sides)
    assert overlay.outline > 1
    drawn = GpuOverlay(overlay, torch.device("cpu"))(torch.from_numpy(frame)[None], torch.from_numpy(mask)[None])
    assert_alike(drawn[0].numpy(), rgb_to_planes(overlay(frame, mask)))


@given(st.integers(0, 2**32 - 1))
def test_counts_are_exact(seed: int) -> None:
    generator = np.random.default_rng(seed)
    masks = generator.choice(np.array([0, 1, 2, IGNORE], np.uint8), (2, 13, 17))
    for mask, counts in zip(masks, class_counts(torch.from_numpy(masks), 3).numpy(), strict=True):
        assert counts.tolist() == [(mask == number).sum() for number in range(3)]
        assert counts.tolist() == count_pixels(mask)[:3].tolist()
        assert class_areas(counts, CLASSES) == class_areas(count_pixels(mask), CLASSES)
    assert class_areas(np.zeros(3, int), CLASSES)["area tool"] is None


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("smooth", [False, True])
def test_the_way_over_a_gpu_gives_the_same_masks_and_draws_them(
    cpu: Predictor, gpu: Predictor, view: View | None, smooth: bool
) -> None:
    frames = np.stack([picture(index, 111, 91) for index in range(3)])

    def begun(predictor: Predictor) -> PendingBatch:
        return predictor.begin(predictor.prepare(frames, view), Smoother(0.5) if smooth else None, PLAIN_STYLE)

    expected, found = list(begun(cpu)), begun(gpu)
    for place, (mask, confidence, entropy) in enumerate(found):
        np.testing.assert_array_equal(mask == IGNORE, expected[place].mask == IGNORE)
        assert (mask == expected[place].mask).mean() > 0.999
        assert (confidence, entropy) == pytest.approx(expected[place][1:], abs=2e-3)
        np.testing.assert_array_equal([*found.measured][place][1], count_pixels(mask)[:3])
        assert found.planes is not None
        planes = rgb_to_planes(Overlay(cpu.classes, 111, 91)(frames[place], mask))
        assert_alike(found.planes[place].numpy(), planes)
    assert begun(cpu).planes is None
    assert gpu.begin(gpu.prepare(frames, view)).planes is None


def test_what_a_recording_reads_is_kept(model: Path) -> None:
    """A graph reads the memory of the matrices long after others have taken their place in the cache."""
    predictor: Any = as_on_a_gpu(model, "cpu:0")  # it and `cpu`, like `cuda` and `cuda:0`, are one, but not equal
    predictor.predict(picture(0, 111, 91))
    read = resize_matrices((91, 111), (32, 32), torch.device("cpu"))
    assert all(one is other for one, other in zip(read, predictor._cache["resize", (91, 111)], strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs and streams need a GPU")
@pytest.mark.parametrize("view", VIEWS)
def test_a_gpu_draws_the_same(model: Path, view: View | None) -> None:
    predictor = Predictor(model, "cuda")
    for start in range(0, 40, 4):  # replayed again and again, each batch of other frames
        frames = np.stack([picture(start + index, 111, 91) for index in range(4)])
        pending = predictor.begin(predictor.prepare(frames, view), None, PLAIN_STYLE)
        expected = Predictor(model, "cpu")(frames, view) if start == 0 else None
        for place, (mask, *_) in enumerate(pending):
            assert expected is None or (mask == expected[place]).mean() > 0.98
            planes = rgb_to_planes(Overlay(predictor.classes, 111, 91)(frames[place], mask))
            assert pending.planes is not None
            assert_alike(pending.planes[place].numpy(), planes)
            np.testing.assert_array_equal([*pending.measured][place][1], count_pixels(mask)[:3])
