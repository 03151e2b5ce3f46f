"""Every unlabelled frame gets its pseudo label, once, whatever happens on the way."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from stage_tester import Build
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.methods.stage import StageContext
from suture.models.inference import predict_probabilities


class Reader(nn.Module):
    """Stands for a segmenter: says class `number % 3` all over a numbered frame; may do something before each batch."""

    def __init__(self, before: Callable[[list[int]], None] = lambda numbers: None) -> None:
        super().__init__()
        self.before = before
        self.seen: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        assert not self.training
        numbers = (images.mean((1, 2, 3)) * 25.5).round().long()
        self.before(numbers.tolist())
        self.seen += numbers.tolist()
        chosen = torch.nn.functional.one_hot(numbers % 3, 3).float() * (1 + numbers[:, None] / 10)
        return chosen[:, :, None, None].expand(-1, -1, *images.shape[-2:])


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "pseudo").glob("*") if not path.name.startswith("."))


@pytest.fixture
def context(tiny_context: Build) -> StageContext:
    """Frames 0…4 of video a (2 excluded) and 5…9 of b and 10…14 of c/1; labelled are 0, 2, 5, 8, 10 and 13."""
    videos = {"a": 6, "b": 5, "c/1": 5}
    return tiny_context(videos, numbered=True, excluded={"a": [2]}, segmenter=Reader(), size=(16, 24))


UNLABELLED = [1, 3, 4, 6, 7, 9, 11, 12, 14]


def test_labels_every_unlabelled_frame_and_no_other(context: StageContext) -> None:
    stage = PseudoLabels("pseudo", PseudoSettings(batch=2))
    told: list[tuple[int, int]] = []
    stage.run(context, lambda done, total: told.append((done, total)))
    assert context.segmenter.seen == UNLABELLED
    assert told == [(3, 9), (6, 9), (9, 9)]
    stage.load(context)
    assert sorted(context.frames.pseudo) == sorted(context.frames.confidence) == UNLABELLED
    for number in UNLABELLED:
        labels, confidence = context.frames.pseudo[number], context.frames.confidence[number]
        assert labels.shape == confidence.shape == (16, 24)
        assert labels.dtype == confidence.dtype == np.uint8
        assert (labels == number % 3).all()
        sure = 1 / (1 + 2 * np.exp(-(1 + number / 10)))
        assert (confidence == round(sure * 255)).all()


def test_pixels_outside_the_view_are_ignore(tiny_context: Build) -> None:
    context = tiny_context({"a": 3}, numbered=True, round_view=True, segmenter=Reader(), size=(30, 30), stored=(60, 60))
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(context)
    stage.load(context)
    rows, columns = np.ogrid[:30, :30]
    distance = np.hypot(rows + 0.5 - 15, columns + 0.5 - 15)
    for number in (1, 2):
        assert (context.frames.pseudo[number][distance > 16] == IGNORE).all()
        assert (context.frames.confidence[number][distance > 16] == 0).all()
        assert (context.frames.pseudo[number][distance < 14] == number).all()
        assert ((context.frames.pseudo[number] == IGNORE) == (context.frames.confidence[number] == 0)).all()


@pytest.mark.parametrize("settings", [{}, {"flip": True}, {"flip": True, "scales": (1.0, 1.5)}])
def test_says_what_the_ensemble_says(tiny_context: Build, settings: dict) -> None:
    context = tiny_context({"a": 4}, every=2)
    stage = PseudoLabels("pseudo", PseudoSettings(**settings))
    stage.run(context)
    stage.load(context)
    frames = torch.from_numpy(np.stack([context.frames.image(number) for number in (1, 3)]))
    flip = context.frames.classes.flip_order(settings.get("flip", False))
    found = predict_probabilities(context.segmenter.eval(), frames, context.size, **settings | {"flip": flip})
    sure, ids = found.max(1)
    assert np.array_equal(np.stack([context.frames.pseudo[number] for number in (1, 3)]), ids.numpy())
    confidence = np.stack([context.frames.confidence[number] for number in (1, 3)])
    np.testing.assert_allclose(confidence / 255, sure.numpy(), atol=0.51 / 255)


def test_finished_videos_are_not_labelled_again(context: StageContext) -> None:
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(context)
    context.segmenter.seen.clear()
    stage.run(context)
    assert context.segmenter.seen == []


@pytest.mark.parametrize("lost", ["labels", "confidence"])
def test_a_video_of_which_one_file_is_missing_is_labelled_again(context: StageContext, lost: str) -> None:
    """A kill may come between the two files."""
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(context)
    (context.folder / "pseudo" / f"b.{lost}.npy").unlink()
    context.segmenter.seen.clear()
    stage.run(context)
    assert context.segmenter.seen == [6, 7, 9]
    stage.load(context)
    assert sorted(context.frames.pseudo) == UNLABELLED


def test_goes_on_after_a_kill_with_the_video_it_was_at(context: StageContext) -> None:
    stage = PseudoLabels("pseudo", PseudoSettings(batch=1))

    def kill(numbers: list[int]) -> None:
        if 7 in numbers:  # the second of three in video b
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        context.segmenter.before = kill
        stage.run(context)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert files(context.folder) == ["a.confidence.npy", "a.labels.npy"]
    stage.run(context)
    assert context.segmenter.seen == [6, 7, 9, 11, 12, 14]
    stage.load(context)
    assert all((context.frames.pseudo[number] == number % 3).all() for number in UNLABELLED)


@pytest.mark.parametrize("damage", [lambda _: b"", lambda whole: whole[:200], lambda whole: whole[:100] + whole[400:]])
def test_damaged_labels_are_named(context: StageContext, damage: Callable[[bytes], bytes]) -> None:
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(context)
    file = sorted(stage.folder(context.folder).glob("*.labels.npy"))[0]
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError, match=r"labels\.npy is .*remove it"):
        stage.load(context)


def test_a_full_disk_is_an_error_and_no_crash(context: StageContext) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))
    try:
        with pytest.raises(OSError):
            PseudoLabels("pseudo", PseudoSettings(batch=1)).run(context)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(context.folder) == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_processes_share_the_videos_even_if_one_is_late(tiny_context: Build, order: tuple[int, int]) -> None:
    """The second one begins when the first has done its part: together they have labelled all of them, once."""
    seen: list[int] = []
    for rank in order:
        context = tiny_context({"a": 6, "b": 5, "c": 5}, numbered=True, segmenter=Reader(), rank=rank, world=2)
        stage = PseudoLabels("pseudo", PseudoSettings())
        stage.run(context)
        seen += context.segmenter.seen
    assert sorted(seen) == context.frames.unlabelled.tolist()
    stage.load(context)
    assert sorted(context.frames.pseudo) == context.frames.unlabelled.tolist()


def test_nothing_to_do_where_all_is_labelled(tiny_context: Build) -> None:
    context = tiny_context({"a": 2}, every=1, segmenter=Reader())
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(context)
    stage.load(context)
    assert context.frames.pseudo == {}
