import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import confusion_matrix, f1_score, jaccard_score, recall_score

from suture.evaluation.metrics import (
    Scorer,
    agreement,
    boundary_counts,
    class_accuracy,
    confusion,
    dice,
    falsely_present,
    iou,
    json_ready,
    pixel_accuracy,
    present,
    surface_dice,
)

CLASSES = 4
IGNORE = 255


def masks(*ids: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.uint8, (6, 7), elements=st.sampled_from(ids))


predictions = masks(*range(CLASSES))
truths = masks(*range(CLASSES), IGNORE)


def test_by_hand() -> None:
    truth = np.array([[0, 0, 0, 1], [1, 1, 2, 255]], np.uint8)
    prediction = np.array([[0, 0, 1, 1], [1, 0, 255, 2]], np.uint8)
    matrix = confusion(prediction, truth, 4)
    assert matrix.tolist() == [
        [2, 1, 0, 0, 0],
        [1, 2, 0, 0, 0],
        [0, 0, 0, 0, 1],  # a true pixel without a prediction
        [0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0],  # predicted where the truth is ignore: takes no part
    ]
    np.testing.assert_allclose(iou(matrix), [2 / 4, 2 / 4, 0, np.nan])
    np.testing.assert_allclose(dice(matrix), [4 / 6, 4 / 6, 0, np.nan])
    np.testing.assert_allclose(class_accuracy(matrix), [2 / 3, 2 / 3, 0, np.nan])
    assert pixel_accuracy(matrix) == pytest.approx(4 / 7)
    assert present(matrix).tolist() == [True, True, True, False]


@given(predictions, truths)
@settings(deadline=None)
def test_against_scikit_learn(prediction: np.ndarray, truth: np.ndarray) -> None:
    matrix = confusion(prediction, truth, CLASSES)
    valid = truth != IGNORE
    assert matrix[-1].sum() == (~valid).sum()
    if not valid.any():
        assert np.isnan(iou(matrix)).all()
        return
    pair, labels = (truth[valid], prediction[valid]), list(range(CLASSES))
    assert (matrix[:-1, :-1] == confusion_matrix(*pair, labels=labels)).all()

    def expected(metric: object) -> np.ndarray:
        return metric(*pair, labels=labels, average=None, zero_division=np.nan)  # type: ignore[operator]

    np.testing.assert_allclose(dice(matrix), expected(f1_score))
    np.testing.assert_allclose(class_accuracy(matrix), expected(recall_score))
    there = ~np.isnan(iou(matrix))
    jaccard = jaccard_score(*pair, labels=labels, average=None, zero_division=0)
    np.testing.assert_allclose(iou(matrix)[there], jaccard[there])
    assert (there == np.isin(labels, pair)).all()
    assert pixel_accuracy(matrix) == pytest.approx((pair[0] == pair[1]).mean())


def test_unknown_ids_are_an_error() -> None:
    good = np.zeros((2, 2), np.uint8)
    with pytest.raises(ValueError, match=r"ids \[7\], expected 0 to 2 and 255"):
        confusion(good + 7, good, 3)
    with pytest.raises(ValueError, match=r"ids \[7\]"):
        confusion(good, good + 7, 3)
    with pytest.raises(ValueError, match="shape"):
        confusion(good, good[:1], 3)


def test_falsely_present() -> None:
    truth = np.zeros((100, 100), np.uint8)
    truth[0] = 3
    truth[1] = IGNORE
    prediction = np.zeros((100, 100), np.uint8)
    prediction[5, :10] = 1  # exactly 0.1 %
    prediction[6, :11] = 2
    prediction[1] = 1  # nobody knows what is there
    expected = [np.nan, 0, 1, np.nan]
    np.testing.assert_equal(falsely_present(confusion(prediction, truth, 4)), expected)
    stacked = falsely_present(np.stack([confusion(prediction, truth, 4), confusion(truth, truth, 4)]))
    np.testing.assert_equal(stacked, [expected, [np.nan, 0, 0, np.nan]])


def slow_boundary(mask: np.ndarray, truth: np.ndarray, c: int, reach: int) -> list[tuple[int, int]]:
    height, width = mask.shape
    found = []
    for y, x in np.argwhere(mask == c):
        around = [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
        ends = any(mask[i, j] != c for i, j in around if 0 <= i < height and 0 <= j < width)
        close = truth[max(0, y - reach) : y + reach + 1, max(0, x - reach) : x + reach + 1]
        if ends and IGNORE not in close:
            found.append((y, x))
    return found


@given(masks(0, 1, 2), masks(0, 1, 2), st.booleans(), st.sampled_from([0, 1, 1.5, 2, 3]))
@settings(deadline=None, max_examples=60)
def test_boundaries_equal_the_slow_version(
    prediction: np.ndarray, truth: np.ndarray, undecided: bool, tolerance: float
) -> None:
    if undecided:
        truth = truth.copy()
        truth[:2, :3] = IGNORE
    counts = boundary_counts(prediction, truth, 3, tolerance)
    reach = max(1, int(np.ceil(tolerance)))
    for c in range(3):
        predicted, true = (slow_boundary(mask, truth, c, reach) for mask in (prediction, truth))
        near = [
            sum(any(np.hypot(y - i, x - j) <= tolerance for i, j in others) for y, x in points)
            for points, others in ((predicted, true), (true, predicted))
        ]
        assert counts[c].tolist() == [near[0], len(predicted), near[1], len(true)]


def test_boundaries_are_not_judged_beside_what_is_undecided() -> None:
    truth = np.zeros((30, 30), np.uint8)
    truth[:, 10:14] = IGNORE
    truth[:, 14:] = 1
    prediction = np.zeros((30, 30), np.uint8)
    prediction[:, 9:] = 1  # where the boundary lies in the undecided strip is unknown, and 9 is close to it
    np.testing.assert_equal(surface_dice(boundary_counts(prediction, truth, 2, 3)), [np.nan, np.nan])
    prediction[:, 4:] = 1  # far off
    np.testing.assert_equal(surface_dice(boundary_counts(prediction, truth, 2, 3)), [0, 0])


def test_boundary_scores_by_hand() -> None:
    truth = np.zeros((20, 20), np.uint8)
    truth[:, 10:] = 1
    shifted = np.roll(truth, 3, axis=1)
    shifted[:, :3] = 0
    for tolerance, expected in ((2, 0.0), (3, 1.0)):
        counts = boundary_counts(shifted, truth, 3, tolerance)
        np.testing.assert_equal(surface_dice(counts), [expected, expected, np.nan])
    counts = np.array([[1, 4, 3, 3], [0, 5, 0, 0]])  # precision 1/4, recall 1; and a class only predicted
    np.testing.assert_allclose(surface_dice(counts), [4 / 7, 0])


def test_agreement() -> None:
    first = np.array([[0, 0, 1, 1, 255]], np.uint8)
    second = np.array([[0, 1, 1, 1, 1]], np.uint8)
    assert agreement(first, second, 3) == agreement(second, first, 3) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert agreement(first, first, 3) == 1


def frame(*ids: int) -> np.ndarray:
    return np.array([ids], np.uint8)


def test_scorer_looks_at_the_view_only() -> None:
    view = np.array([[True, True, True, False]])
    scorer = Scorer(("a", "b"))
    scorer.add("v", 0, prediction=frame(0, 1, 1, 0), truth=frame(0, 1, 0, 1), view=view)
    assert scorer.matrix().tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_scorer_ignores_the_pixels_of_a_class_left_out() -> None:
    scorer = Scorer(("a", "b", "c"), left_out=["b"])
    scorer.add("v", 0, prediction=frame(0, 0, 1, 2), truth=frame(0, 1, 2, 2))
    np.testing.assert_equal(iou(scorer.matrix()), [1, 0, 0.5])  # "b" predicted on "c" is an error of "c"


def test_scorer_knows_consecutive_frames() -> None:
    scorer = Scorer(("a", "b"))
    truth = frame(0, 0, 1, 255)
    scorer.add("v", 0, frame(0, 0, 1, 0), truth)
    scorer.add("v", 1, frame(0, 1, 1, 1), truth)
    scorer.add("v", 3, frame(0, 1, 1, 1), truth)
    scorer.add("w", 4, frame(0, 1, 1, 1), truth)
    consistency = [frame.consistency for frame in scorer.frames.values()]
    assert consistency == [None, (0.5, 1.0), None, None]


def test_scorers_of_two_processes_count_a_frame_once() -> None:
    truth = frame(0, 1)
    whole, first, second = (Scorer(("a", "b")) for _ in range(3))
    for scorer, indices in ((whole, (0, 1, 2)), (first, (0, 1)), (second, (1, 2))):
        for index in indices:
            scorer.add("v", index, frame(0, index % 2), truth)
    assert ((first + second).matrix() == whole.matrix()).all()
    assert sorted((first + second).frames) == sorted(whole.frames)


def test_json_ready() -> None:
    value = {"a": np.float64("nan"), 1: (np.int64(2), float("inf")), "c": np.array([0.5, np.nan]), "d": None}
    assert json.dumps(json_ready(value), allow_nan=False) == '{"a": null, "1": [2, null], "c": [0.5, null], "d": null}'
