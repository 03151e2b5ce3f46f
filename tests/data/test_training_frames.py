"""Training frames are numbered and labelled as they should be; every draw is a function of its key."""

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from suture.core.errors import UserError
from suture.data.classes import IGNORE, ClassTable
from suture.data.dataset import Dataset, Frame, Split, Video
from suture.data.images import MaskFile
from suture.data.labelling import Labelling
from suture.data.sampling.augment import Augment, draw_view, render_confidence, render_labels
from suture.data.sampling.frames import Epochs, TrainingFrames, add_unlabelled, carve_validation, generator, take_fold

TABLE = ClassTable(("a", "b"), ((0, 0, 0), (9, 9, 9)), {0: 0, 1: 1})


class Counted:
    """Pixels that say where they are from: the index of the frame in its video."""

    def frame(self, video: str, index: int) -> np.ndarray:
        return np.full((8, 10, 3), index, np.uint8)

    def labels(self, video: str, index: int) -> np.ndarray:
        return np.full((8, 10), 1, np.uint8)

    def inside(self, video: str) -> np.ndarray:
        return np.ones((8, 10), bool)


def video(name: str, length: int, split: Split | None = "train", excluded: tuple[int, ...] = ()) -> Video:
    """A video of the case that is its name up to a dot."""
    frames = [Frame(index, index) for index in range(length)]
    return Video(name, name.split(".")[0], frames, split, excluded=frozenset(excluded))


def dataset(*videos: Video) -> Dataset:
    return Dataset("d", Path("d"), TABLE, list(videos))


@pytest.fixture
def frames() -> TrainingFrames:
    """Two videos of case p, one of case q, of which frames are excluded, and one that is not for training."""
    videos = (video("p.1", 3), video("q", 5, excluded=(0, 2)), video("p.2", 2), video("r", 4, "test"))
    labelling = Labelling({"p.1": [0], "q": [0, 1], "r": [0]})
    return TrainingFrames(dataset(*videos), labelling, Counted())


def test_numbers_every_usable_training_frame(frames: TrainingFrames) -> None:
    places = [(video.id, index) for video, index in frames.places]
    assert places == [("p.1", 0), ("p.1", 1), ("p.1", 2), ("q", 1), ("q", 3), ("q", 4), ("p.2", 0), ("p.2", 1)]
    assert len(frames) == 8
    assert frames.cases.tolist() == [0, 0, 0, 1, 1, 1, 0, 0]
    assert [frames.image(n)[0, 0, 0] for n in range(8)] == [0, 1, 2, 1, 3, 4, 0, 1]


def test_a_view_without_a_circle_is_one_pixel() -> None:
    class HalfInside(Counted):
        def inside(self, video: str) -> np.ndarray:
            inside = super().inside(video)
            inside[:, 5:] = video == "whole"
            return inside

    videos = (video("whole", 2), video("half", 2))
    frames = TrainingFrames(dataset(*videos), Labelling({"half": [0]}), HalfInside())
    assert frames.in_view(1).tolist() == [[0]]
    assert frames.in_view(2).tolist() == [[0] * 5 + [IGNORE] * 5] * 8


@pytest.mark.parametrize(("mirror", "flipped", "labels"), [((), True, 1), ((1, 0), True, 0), (None, False, 1)])
def test_mirrored_samples_have_the_mirror_classes(mirror: tuple | None, flipped: bool, labels: int) -> None:
    one = replace(dataset(video("p", 2)), classes=replace(TABLE, mirror=mirror))
    frames = TrainingFrames(one, Labelling({"p": [0]}), Counted())
    draw = draw_view(np.random.default_rng(0), Augment(crop=(0.5, 0.5)))
    patches = frames.collate([0, 0, 1], [draw._replace(flip=True), draw._replace(flip=False), draw])
    assert patches.flip.tolist()[:2] == [flipped, False]
    assert [rendered.unique().tolist() for rendered in render_labels(patches, (8, 8))] == [[labels], [1], [IGNORE]]


def test_an_excluded_frame_is_not_labelled_either(frames: TrainingFrames) -> None:
    assert frames.labelled.tolist() == [0, 3]
    assert frames.unlabelled.tolist() == [1, 2, 4, 5, 6, 7]


def test_truth_stays_on_labelled_frames(frames: TrainingFrames) -> None:
    assert frames.labels(1) is None
    frames.pseudo = {number: np.zeros((4, 5), np.uint8) for number in range(8)}
    truth, pseudo = frames.labels(0), frames.labels(1)
    assert truth is not None
    assert pseudo is not None
    assert (truth == 1).all()
    assert (pseudo == 0).all()


def test_collates_frames_labels_and_confidence(frames: TrainingFrames) -> None:
    frames.pseudo = {1: np.zeros((4, 5), np.uint8)}
    frames.confidence = {1: np.full((4, 5), 51, np.uint8)}
    draws = [draw_view(generator(number), Augment()) for number in range(3)]
    patches = frames.collate([0, 1, 2], draws, confidence=True)
    assert [labels.unique().tolist() for labels in render_labels(patches, (6, 6))] == [[1], [0], [IGNORE]]
    confidence = render_confidence(patches, (6, 6))
    assert confidence is not None
    torch.testing.assert_close(confidence.mean((1, 2)), torch.tensor([1, 0.2, 1]))  # truth is sure
    assert frames.collate([0, 1], draws[:2]).confidence is None


def test_refuses_to_train_without_labels() -> None:
    with pytest.raises(UserError, match="no training frame is labelled"):
        TrainingFrames(dataset(video("p", 3)), Labelling({}), Counted())


# Draws


def test_a_generator_is_a_function_of_its_key() -> None:
    keys: list[tuple[int | str, ...]] = [(0,), (0, 0), (0, 0, 0), (1, "a"), ("a", 1), (1, "a", 0), (1, "b"), (2**40, 1)]
    firsts = [generator(*key).random() for key in keys]
    assert firsts == [generator(*key).random() for key in keys]
    assert len(set(firsts)) == len(keys)


@pytest.mark.parametrize("count", [1, 5, 8])
def test_every_epoch_has_each_frame_once_in_another_order(count: int) -> None:
    order = Epochs(np.arange(count) * 10, 0, "train")
    epochs = [[order[epoch * count + place] for place in range(count)] for epoch in range(6)]
    assert all(Counter(epoch) == Counter(range(0, count * 10, 10)) for epoch in epochs)
    if count > 1:
        assert len({tuple(epoch) for epoch in epochs}) > 1


def test_the_order_does_not_depend_on_how_it_is_asked_for() -> None:
    numbers = list(range(23))
    forwards = [order[n] for order in [Epochs(range(5), 7, "x")] for n in numbers]
    alone = [Epochs(range(5), 7, "x")[n] for n in numbers]
    backwards = [order[n] for order in [Epochs(range(5), 7, "x")] for n in reversed(numbers)]
    assert forwards == alone == backwards[::-1]
    assert forwards != [Epochs(range(5), 8, "x")[n] for n in numbers]
    assert forwards != [Epochs(range(5), 7, "y")[n] for n in numbers]


# Validation


def splits(dataset: Dataset) -> list[Split | None]:
    return [video.split for video in dataset.videos]


def test_carves_cases_and_videos_out_of_training() -> None:
    whole = dataset(video("p.1", 1), video("p.2", 1), video("q", 1), video("r", 1), video("s", 1, "test"))
    assert splits(carve_validation(whole, [])) == ["train"] * 4 + ["test"]
    assert splits(carve_validation(whole, ["p"])) == ["val", "val", "train", "train", "test"]
    assert splits(carve_validation(whole, ["p.1", "p.2", "r"])) == ["val", "val", "train", "val", "test"]
    assert splits(whole) == ["train"] * 4 + ["test"]


def test_never_divides_a_case() -> None:
    whole = dataset(video("p.1", 1), video("p.2", 1), video("q", 1))
    with pytest.raises(UserError, match=r"case p lies in two splits"):
        carve_validation(whole, ["p.1"])


@pytest.mark.parametrize("names", [["nobody"], ["s"], ["p", "q"]])
def test_refuses_what_cannot_be_carved(names: list[str]) -> None:
    with pytest.raises(UserError, match=r"data\.validation"):
        carve_validation(dataset(video("p", 1), video("q", 1), video("s", 1, "test")), names)


def test_every_case_is_tested_in_one_fold() -> None:
    whole = dataset(video("p.1", 1), video("p.2", 1), video("q", 1), video("r", 1, "test"))
    assert take_fold(whole, None) is whole
    assert splits(take_fold(whole, (1, 2))) == ["test", "test", "train", "test"]
    assert splits(take_fold(whole, (2, 2))) == ["train", "train", "test", "train"]
    for fold in ((0, 2), (3, 2), (1, 1), (1, 4)):
        with pytest.raises(UserError, match=r"data\.fold"):
            take_fold(whole, fold)


def test_no_two_places_of_a_run_share_their_draws() -> None:
    """Over the steps of several stages, no stream is used twice."""
    keys = itertools.product([0, 1], ["pretrain", "contrast"], range(40), [*range(4), "keys 0", "keys 2"])
    firsts = [generator(*key).integers(2**62) for key in keys]
    assert len(set(firsts)) == len(firsts)


def test_videos_without_labels_join_the_training_videos() -> None:
    data = dataset(video("a", 2), video("new", 2, None), video("v", 2, "val"), video("t", 2, "test"))
    labelled = Video("from elsewhere", "x", [Frame(0, 0, mask=MaskFile(Path("of other classes.png")))])
    joined, seen = add_unlabelled(data, [labelled], ["test"])
    assert not joined["from elsewhere"].with_mask
    assert {one.id: one.split for one in joined} == {
        "a": "train",
        "new": "train",
        "v": "val",
        "t": "train",
        "from elsewhere": "train",
    }
    assert seen == {"t"}
    with pytest.raises(UserError, match="rename"):
        add_unlabelled(data, [video("a", 2)], [])
