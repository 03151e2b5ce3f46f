"""The predictor gives the masks that evaluation gives, whatever the model was saved as."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from predict_files import picture, write_images

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Frame, Video
from suture.data.view import View
from suture.evaluation.scoring import predict_masks
from suture.models.model import Model
from suture.models.sliding_window import slide_window, window_starts
from suture.prediction.predictor import Predictor
from suture.prediction.smoother import Smoother

ROUND = View(4, 2, 40, 36, (24.0, 20.0, 17.0))


@pytest.mark.parametrize("view", [None, View(3, 5, 20, 30), ROUND])
@pytest.mark.parametrize("size", [(48, 40), (32, 32), (20, 50)])
def test_masks_are_those_of_the_evaluation(
    model: Path, cpu: Predictor, tmp_path: Path, size: tuple[int, int], view: View | None
) -> None:
    images = sorted(write_images(tmp_path / "frames", 3, size).iterdir())
    view = view and view.within(*size)
    video = Video("v", "v", [Frame(i, i, image=path) for i, path in enumerate(images)], view_setting=view)
    expected = np.stack([mask for _, mask in predict_masks(Model.load(model).segmenter, video, range(3), (32, 32))])
    found = cpu(np.stack([video.read(i) for i in range(3)]), view)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found[found != IGNORE])) > 1
    assert (cpu(video.read(1), view) == found[1]).mean() > 0.999


def test_a_weights_file_with_its_description_is_a_model(model: Path, cpu: Predictor) -> None:
    other = Predictor(model / "model.safetensors", "cpu")
    np.testing.assert_array_equal(other(picture(2)), cpu(picture(2)))


def test_probabilities_confidence_and_entropy(cpu: Predictor) -> None:
    frame = picture(0)
    found = cpu.probabilities(frame)
    assert found.shape == (3, 40, 48)
    np.testing.assert_allclose(found.sum(0), 1, atol=1e-5)
    assert (found.argmax(0) == cpu(frame)).mean() > 0.999
    (prediction,) = cpu.predict(frame)
    assert 1 / 3 < prediction.confidence <= 1
    assert 0 <= prediction.entropy <= 1
    assert prediction.confidence == pytest.approx(float(found.max(0).mean()), abs=0.05)
    assert cpu.probabilities(frame[None]).shape == (1, 3, 40, 48)


def test_certainty_is_that_inside_the_view(cpu: Predictor) -> None:
    """What stands in the corners that a round view leaves out moves the picture's features, but is not counted."""
    found = torch.full((1, 3, 32, 32), 1 / 3)
    found[:, :, :16] = torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1)
    inside = torch.zeros(32, 32)
    inside[:16] = 1
    assert cpu._certainty(found, inside)[0].tolist() == pytest.approx([1, 0], abs=1e-6)
    assert cpu._certainty(found, 1 - inside)[0].tolist() == pytest.approx([1 / 3, 1], abs=1e-6)


def test_flip_and_scales_average(model: Path) -> None:
    frame = picture(4)
    mirrored = Predictor(model, "cpu", flip=True).probabilities(frame)
    plain = Predictor(model, "cpu")
    expected = (plain.probabilities(frame) + plain.probabilities(frame[:, ::-1].copy())[..., ::-1]) / 2
    np.testing.assert_allclose(mirrored, expected, atol=1e-4)
    assert Predictor(model, "cpu", scales=(0.5, 1, 1.5))(frame).shape == (40, 48)


def test_a_window_as_large_as_the_frame_changes_nothing(model: Path, cpu: Predictor) -> None:
    frame = picture(1, 32, 32)
    windowed = Predictor(model, "cpu", window=True)
    np.testing.assert_allclose(windowed.probabilities(frame), cpu.probabilities(frame), atol=1e-5)
    assert windowed(picture(1, 100, 20)).shape == (20, 100)
    assert windowed(picture(1, 1, 1)).shape == (1, 1)


def test_windows_cover_every_pixel_with_what_is_there() -> None:
    """Where the network only repeats its input, the average over the windows is the input again."""
    images = torch.rand(2, 3, 75, 130)
    calls = []

    def repeat(windows: torch.Tensor) -> torch.Tensor:
        calls.append(windows.shape)
        return windows

    torch.testing.assert_close(slide_window(repeat, images, (32, 40)), images)
    assert {shape[2:] for shape in calls} == {(32, 40)}


@pytest.mark.parametrize(("side", "window"), [(1, 1), (10, 10), (11, 10), (1000, 32), (33, 32)])
def test_windows_overlap(side: int, window: int) -> None:
    found = window_starts(side, window)
    assert found[0] == 0
    assert found[-1] == side - window
    assert all(0 < after - before <= max(1, round(0.75 * window)) for before, after in pairwise(found))


def test_smoothing_carries_over_where_nothing_moves_and_only_there() -> None:
    smoother = Smoother(0.5)
    image = torch.full((1, 3, 1, 2), 0.5)
    moved = image.clone()
    moved[..., 1] = 1.0
    sure = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 1, 2)
    assert (smoother(image, sure) == sure).all()
    found = smoother(moved, sure.flip(1))
    torch.testing.assert_close(found[0, :, 0, 0], torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(found[0, :, 0, 1], torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(smoother(moved, sure.flip(1)).sum(1), torch.ones(1, 1, 2))
    smoother(torch.rand(1, 3, 4, 4), torch.rand(1, 2, 4, 4))  # another size begins anew
    for strength in (-1, 0, 1):
        with pytest.raises(UserError, match="between 0 and 1"):
            Smoother(strength)


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((4, 5), np.uint8),
        np.zeros((4, 5, 4), np.uint8),
        np.zeros((4, 5, 3), np.uint16),
        np.zeros((0, 5, 3), np.uint8),
        "frame.png",
        Path("frame.png"),
        None,
    ],
)
def test_frames_other_than_rgb_arrays_are_refused(cpu: Predictor, frame: Any) -> None:
    for frames in (frame, [frame], [picture(0), frame]):
        with pytest.raises(UserError, match=r"expected NumPy arrays of one size: RGB, uint8"):
            cpu.prepare(frames)


def test_what_is_no_model(tmp_path: Path, model: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "alone.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    (tmp_path / "broken.onnx").write_text("no")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("")
    for name, sentence in {
        "absent": "does not exist",
        "notes.txt": "is no model: expected a run folder",
        "alone.safetensors": "alone.json is missing",
        "broken.onnx": "is no ONNX file of `suture export`",
        "run": "model.json is missing",
        ".": "model.json is missing",
    }.items():
        with pytest.raises(UserError, match=sentence):
            Predictor(tmp_path / name)
    with pytest.raises(UserError, match="expected auto, cpu"):
        Predictor(model, "toaster")
    for scales in ((), (0,), (1, 100), (float("nan"),)):
        with pytest.raises(UserError, match="scales are"):
            Predictor(model, "cpu", scales=scales)
