import numpy as np
import pytest

from suture.annotate.choose_frames import FrameFeatures, choose_frames
from suture.data.labelling import Labelling


def facts(features: list[float], uncertainty: list[float] | None = None, visible: list[int] = ()) -> FrameFeatures:  # type: ignore[assignment]
    places = [("a", index) for index in range(len(features))]
    shown = np.array(visible or [0] * len(features))[:, None] == np.arange(2)
    return FrameFeatures(places, np.array(features)[:, None], np.array(uncertainty or [1.0] * len(features)), shown)


def chosen(facts: FrameFeatures, budget: int, labelled: tuple[int, ...] = (), shot: int = 1) -> list[int]:
    """Indices of the chosen frames; each shot has `shot` frames."""
    shot_of = {place: ("a", place[1] // shot) for place in facts.places}
    return [index for _, index in choose_frames(facts, Labelling({"a": labelled}), shot_of, budget)]


def test_the_farthest_frames_come_first() -> None:
    assert chosen(facts([0, 1, 2, 10]), 2, labelled=(0,)) == [3, 2]


def test_without_labels_the_first_frame_is_typical() -> None:
    assert chosen(facts([0, 1, 2, 10]), 2) == [2, 3]


def test_uncertain_frames_come_first_among_equals() -> None:
    assert chosen(facts([0, 5, 5.1], [0.1, 0.9, 0.1]), 1, labelled=(0,)) == [1]


def test_frames_with_a_class_that_no_label_shows_come_first() -> None:
    assert chosen(facts([0, 5, 5.1, 5], visible=[0, 0, 0, 1]), 1, labelled=(0,)) == [3]


def test_no_shot_gives_more_than_twice_its_share_unless_all_are_spent() -> None:
    values = facts([0, 100, 200, 300, 400, 5, 6, 7, 8, 9], [1] * 5 + [0.01] * 5)
    assert sum(index < 5 for index in chosen(values, 2, labelled=(0,), shot=5)) == 2
    assert sum(index < 5 for index in chosen(values, 3, shot=5)) == 3
    assert sorted(chosen(values, 20, shot=5)) == list(range(10))


@pytest.mark.parametrize("budget", [1, 5])
def test_labelled_frames_are_never_chosen(budget: int) -> None:
    assert not {0, 3} & set(chosen(facts([0, 1, 2, 10, 4]), budget, labelled=(0, 3)))
