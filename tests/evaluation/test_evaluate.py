"""Evaluation of a segmenter on real files: which frames, at which resolution, inside which view."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import yaml
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset, protocol_named
from suture.data.labelling import Labelling
from suture.evaluation.scoring import frames_to_score, predict_masks, protocol_of, score_frames, scores

WIDTH, HEIGHT = 96, 64
VIEW = [16, 8, 64, 48]
RULES = protocol_named("default")
SIZE = (24, 32)  # half of the view: the edges of even-sized things fall between two pixels


class RedIsTool(nn.Module):
    """Calls red pixels class 1 and the others class 0, far from both alternatives."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(50.0))
        self.sizes: list[tuple[int, ...]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.sizes.append(tuple(images.shape))
        red = (images[:, :1] - images[:, 1:2]) * self.scale
        return torch.cat([-red, red], 1)


def picture(tool: tuple[int, int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """A green frame with a red rectangle (x, y, width, height), as OpenCV writes it, and its mask."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    image[..., 1] = 255
    mask = np.ones((HEIGHT, WIDTH), np.uint8)
    x, y, width, height = tool
    image[y : y + height, x : x + width] = (0, 0, 255)
    mask[y : y + height, x : x + width] = 2
    return image, mask


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Videos a and b for training, c for the test; four frames each, the last of c excluded; b's view is round."""
    for video in "abc":
        (tmp_path / "videos" / video).mkdir(parents=True)
        (tmp_path / "masks" / video).mkdir(parents=True)
        for index in range(4):
            image, mask = picture((24 + 4 * index, 16, 16, 20))
            cv2.imwrite(str(tmp_path / "videos" / video / f"frame_{index:06d}.png"), image)
            cv2.imwrite(str(tmp_path / "masks" / video / f"frame_{index:06d}.png"), mask)
    facts = {
        "format": 1,
        "videos": "videos",
        "masks": "masks",
        "classes": [{"name": "background", "value": 1}, {"name": "tool", "value": 2}],
        "split": {"train": ["a", "b"], "test": ["c"]},
        "view": {"a": VIEW, "b": {"rect": VIEW, "circle": [48, 32, 24]}, "c": VIEW},
        "exclude": "exclude.csv",
    }
    (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(facts))
    (tmp_path / "exclude.csv").write_text("video,first,last,reason\nc,3,3,no signal\n")
    return load_dataset(tmp_path)


def test_completion_is_the_rest_of_labelled_videos(dataset: Dataset) -> None:
    labelling = Labelling({"a": [0, 2]})
    sets = frames_to_score(dataset, labelling, ("val", "test"), completion=True)
    assert sets == {"test": {"c": [0, 1, 2]}, "completion": {"a": [1, 3]}}
    everything = Labelling({"a": range(4), "b": range(4)})
    assert frames_to_score(dataset, everything, ("test",), completion=True) == {"test": {"c": [0, 1, 2]}}
    assert frames_to_score(dataset, labelling, (), completion=False) == {}


def test_predictions_are_at_native_resolution_and_ignore_outside_the_view(dataset: Dataset) -> None:
    segmenter = RedIsTool()
    found = dict(predict_masks(segmenter, dataset["c"], [0, 2, 1], SIZE, batch=2))
    assert list(found) == [0, 2, 1]
    assert segmenter.sizes == [(2, 3, *SIZE), (1, 3, *SIZE)]
    x, y, width, height = VIEW
    for index, mask in found.items():
        _, truth = picture((24 + 4 * index, 16, 16, 20))
        expected = np.full((HEIGHT, WIDTH), IGNORE, np.uint8)
        expected[y : y + height, x : x + width] = truth[y : y + height, x : x + width] - 1
        assert mask.dtype == np.uint8
        assert np.array_equal(mask, expected)


def test_a_round_view_is_round_in_predictions_and_scores(dataset: Dataset) -> None:
    video = dataset["b"]
    inside = video.view.mask(WIDTH, HEIGHT)
    assert 0 < inside.sum() < VIEW[2] * VIEW[3]
    ((_, mask),) = predict_masks(RedIsTool(), video, [1], SIZE)
    assert np.array_equal(mask != IGNORE, inside)
    scorer = score_frames(dataset, RULES, RedIsTool(), {"b": [1]}, SIZE)
    assert scorer.matrix().sum() == inside.sum(), "every pixel inside counts, none outside"


def test_flip_and_scales_keep_the_place_of_things(dataset: Dataset) -> None:
    ((_, plain),) = predict_masks(RedIsTool(), dataset["c"], [0], SIZE)
    ((_, averaged),) = predict_masks(RedIsTool(), dataset["c"], [0], SIZE, flip=(0, 1), scales=(1.0, 2.0))
    assert np.mean(plain != averaged) < 0.005


def test_a_perfect_segmenter_scores_1_and_shares_add_up(dataset: Dataset) -> None:
    frames = {"a": [1, 3], "b": [0, 1], "c": [0, 1, 2]}
    done: list[int] = []
    whole = score_frames(dataset, RULES, RedIsTool(), frames, SIZE, progress=done.append)
    assert sum(done) == 7
    result = scores(dataset, RULES, whole)
    assert result["overall"]["miou"] == 1
    assert result["overall"]["frames"] == 7
    assert result["videos"].keys() == {"a", "b", "c"}
    parts = [score_frames(dataset, RULES, RedIsTool(), frames, SIZE, rank=rank, world=2) for rank in range(2)]
    assert {video for video, _ in parts[0].frames} == {"a", "c"}
    assert scores(dataset, RULES, parts[0] + parts[1]) == result
    assert scores(dataset, RULES, parts[1] + parts[0]) == result


def test_background_can_be_left_out_of_the_means(dataset: Dataset) -> None:
    class AllTool(RedIsTool):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) * 0 + torch.tensor([0.0, 1.0])[:, None, None] * self.scale

    with_background, without = (
        scores(dataset, rules, score_frames(dataset, rules, AllTool(), {"c": [0]}, SIZE))
        for rules in (protocol_of(dataset, True), protocol_of(dataset, False))
    )
    share = 16 * 20 / (VIEW[2] * VIEW[3])
    assert with_background["overall"]["miou"] == pytest.approx(share / 2)
    assert without["overall"]["miou"] == pytest.approx(share)


def test_what_no_training_video_shows_can_be_left_out(dataset: Dataset) -> None:
    class AllBackground(RedIsTool):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) * 0 + torch.tensor([1.0, 0.0])[:, None, None] * self.scale

    for unlearnt, found, notes in (
        ((), 1 - 16 * 20 / (VIEW[2] * VIEW[3]), []),
        (("tool",), 1, ["tool left out of validation: no training video shows it"]),
    ):
        rules = protocol_of(dataset, True, unlearnt)
        result = scores(dataset, rules, score_frames(dataset, rules, AllBackground(), {"c": [0]}, SIZE))
        assert result["classes"]["background"]["iou"] == pytest.approx(found)
        assert result["overall"]["miou_frames"] == pytest.approx(found / (2 - len(unlearnt)))
        assert (result["left_out"], result["notes"]) == (list(unlearnt), notes)


def test_a_view_that_sticks_out_of_the_frame(dataset: Dataset) -> None:
    root = dataset.root
    facts = yaml.safe_load((root / "dataset.yaml").read_text())
    facts["view"]["c"] = [16, 8, 200, 200]
    (root / "dataset.yaml").write_text(yaml.safe_dump(facts))
    again = load_dataset(root)
    scorer = score_frames(again, RULES, RedIsTool(), {"c": [0]}, SIZE)
    assert scorer.matrix().sum() == (WIDTH - 16) * (HEIGHT - 8)


def test_a_mask_of_another_size_is_named(dataset: Dataset) -> None:
    cv2.imwrite(str(dataset.root / "masks/c/frame_000001.png"), np.ones((32, 48), np.uint8))
    with pytest.raises(UserError, match=r"c/frame_000001\.png is 48×32 on a frame of 96×64: export the masks"):
        score_frames(dataset, RULES, RedIsTool(), {"c": [0, 1]}, SIZE)
