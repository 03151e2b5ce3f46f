"""Every unlabelled frame gets its pseudo label, once, whatever happens on the way."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from suture.data.classes import IGNORE
from suture.data.read_scenes import resize_image
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.methods.stage import Job
from suture.models.inference import probabilities

Build = Callable[..., Job]


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
def job(tiny_job: Build) -> Job:
    """Frames 0…4 of video a (2 excluded) and 5…9 of b and 10…14 of c/1; labelled are 0, 2, 5, 8, 10 and 13."""
    videos = {"a": 6, "b": 5, "c/1": 5}
    return tiny_job(videos, numbered=True, excluded={"a": [2]}, segmenter=Reader(), size=(16, 24))


UNLABELLED = [1, 3, 4, 6, 7, 9, 11, 12, 14]


def test_labels_every_unlabelled_frame_and_no_other(job: Job) -> None:
    stage = PseudoLabels("pseudo", PseudoSettings(batch=2))
    told: list[tuple[int, int]] = []
    stage.run(job, lambda done, total: told.append((done, total)))
    assert job.segmenter.seen == UNLABELLED
    assert told == [(3, 9), (6, 9), (9, 9)]
    stage.load(job)
    assert sorted(job.frames.pseudo) == sorted(job.frames.confidence) == UNLABELLED
    for number in UNLABELLED:
        labels, confidence = job.frames.pseudo[number], job.frames.confidence[number]
        assert labels.shape == confidence.shape == (16, 24)
        assert labels.dtype == confidence.dtype == np.uint8
        assert (labels == number % 3).all()
        sure = 1 / (1 + 2 * np.exp(-(1 + number / 10)))
        assert (confidence == round(sure * 255)).all()


def test_truth_stays_on_labelled_frames(job: Job) -> None:
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(job)
    stage.load(job)
    for number in job.frames.labelled:
        video, index = job.frames.places[number]
        assert job.frames.labels(number) is job.frames.pixels.labels(video.id, index)
        assert job.frames.confidence.get(number) is None


def test_pixels_outside_the_view_are_ignore(tiny_job: Build) -> None:
    job = tiny_job({"a": 3}, numbered=True, round_view=True, segmenter=Reader(), size=(30, 30), stored=(60, 60))
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(job)
    stage.load(job)
    rows, columns = np.ogrid[:30, :30]
    distance = np.hypot(rows + 0.5 - 15, columns + 0.5 - 15)
    for number in (1, 2):
        assert (job.frames.pseudo[number][distance > 16] == IGNORE).all()
        assert (job.frames.confidence[number][distance > 16] == 0).all()
        assert (job.frames.pseudo[number][distance < 14] == number).all()
        assert ((job.frames.pseudo[number] == IGNORE) == (job.frames.confidence[number] == 0)).all()


@pytest.mark.parametrize("settings", [{}, {"flip": True}, {"flip": True, "scales": (1.0, 1.5)}])
def test_says_what_the_ensemble_says(tiny_job: Build, settings: dict) -> None:
    job = tiny_job({"a": 4}, every=2)
    stage = PseudoLabels("pseudo", PseudoSettings(**settings))
    stage.run(job)
    stage.load(job)
    images = np.stack([resize_image(job.frames.image(number), job.size) for number in (1, 3)])
    found = probabilities(job.segmenter.eval(), torch.from_numpy(images).permute(0, 3, 1, 2) / 255, **settings)
    sure, ids = found.max(1)
    assert np.array_equal(np.stack([job.frames.pseudo[number] for number in (1, 3)]), ids.numpy())
    confidence = np.stack([job.frames.confidence[number] for number in (1, 3)])
    np.testing.assert_allclose(confidence / 255, sure.numpy(), atol=0.51 / 255)


def test_finished_videos_are_not_labelled_again(job: Job) -> None:
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(job)
    job.segmenter.seen.clear()
    stage.run(job)
    assert job.segmenter.seen == []


@pytest.mark.parametrize("lost", ["labels", "confidence"])
def test_a_video_of_which_one_file_is_missing_is_labelled_again(job: Job, lost: str) -> None:
    """A kill may come between the two files."""
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(job)
    (job.folder / "pseudo" / f"b.{lost}.npy").unlink()
    job.segmenter.seen.clear()
    stage.run(job)
    assert job.segmenter.seen == [6, 7, 9]
    stage.load(job)
    assert sorted(job.frames.pseudo) == UNLABELLED


def test_goes_on_after_a_kill_with_the_video_it_was_at(job: Job) -> None:
    stage = PseudoLabels("pseudo", PseudoSettings(batch=1))

    def kill(numbers: list[int]) -> None:
        if 7 in numbers:  # the second of three in video b
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        job.segmenter.before = kill
        stage.run(job)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert files(job.folder) == ["a.confidence.npy", "a.labels.npy"]
    stage.run(job)
    assert job.segmenter.seen == [6, 7, 9, 11, 12, 14]
    stage.load(job)
    assert all((job.frames.pseudo[number] == number % 3).all() for number in UNLABELLED)


def test_an_error_leaves_nothing_behind(job: Job) -> None:
    def fail(numbers: list[int]) -> None:
        if 9 in numbers:
            raise RuntimeError("no")

    job.segmenter.before = fail
    with pytest.raises(RuntimeError):
        PseudoLabels("pseudo", PseudoSettings(batch=1)).run(job)
    assert sorted(path.name for path in (job.folder / "pseudo").iterdir()) == ["a.confidence.npy", "a.labels.npy"]


def test_a_full_disk_is_an_error_and_no_crash(job: Job) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))
    try:
        with pytest.raises(OSError):
            PseudoLabels("pseudo", PseudoSettings(batch=1)).run(job)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(job.folder) == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_processes_share_the_videos_even_if_one_is_late(tiny_job: Build, order: tuple[int, int]) -> None:
    """The second one begins when the first has done its part: together they have labelled all of them, once."""
    seen: list[int] = []
    for rank in order:
        job = tiny_job({"a": 6, "b": 5, "c": 5}, numbered=True, segmenter=Reader(), rank=rank, world=2)
        stage = PseudoLabels("pseudo", PseudoSettings())
        stage.run(job)
        seen += job.segmenter.seen
    assert sorted(seen) == job.frames.unlabelled.tolist()
    stage.load(job)
    assert sorted(job.frames.pseudo) == job.frames.unlabelled.tolist()


def test_nothing_to_do_where_all_is_labelled(tiny_job: Build) -> None:
    job = tiny_job({"a": 2}, every=1, segmenter=Reader())
    stage = PseudoLabels("pseudo", PseudoSettings())
    stage.run(job)
    stage.load(job)
    assert job.frames.pseudo == {}


@pytest.mark.parametrize("wrong", [{"scales": ()}, {"scales": (0.0,)}, {"batch": 0}, {"tta": True}])
def test_refuses_impossible_settings(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        PseudoSettings(**wrong)
