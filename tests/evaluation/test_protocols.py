import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import jaccard_score

from suture.core.errors import UserError
from suture.data.datasets import protocol_named
from suture.data.scoring_rules import Protocol
from suture.evaluation.metrics import Scorer
from suture.evaluation.protocols import case_interval, score, scorer_of

DEFAULT = protocol_named("default")


def frame(*ids: int) -> np.ndarray:
    return np.array([ids], np.uint8)


def filled(protocol: Protocol, names: tuple[str, ...], *frames: tuple[str, int, np.ndarray, np.ndarray]) -> Scorer:
    scorer = scorer_of(protocol, names)
    for video, index, prediction, truth in frames:
        scorer.add(video, index, prediction, truth)
    return scorer


TWO_FRAMES = (
    ("v1", 0, frame(0, 0, 1, 1), frame(0, 0, 0, 1)),  # IoU 2/3, 1/2
    ("v2", 0, frame(0, 0, 0, 2), frame(0, 0, 0, 0)),  # IoU 3/4; class 2 is not in the truth
)


def test_both_means_by_hand() -> None:
    names = ("a", "b", "c")
    result = score(DEFAULT, filled(DEFAULT, names, *TWO_FRAMES))
    overall = result["overall"]
    assert overall["frames"] == 2
    assert overall["miou"] == pytest.approx((5 / 7 + 1 / 2 + 0) / 3)
    assert overall["miou_frames"] == pytest.approx(((2 / 3 + 1 / 2) / 2 + 3 / 4) / 2)
    assert overall["dice"] == pytest.approx((10 / 12 + 2 / 3 + 0) / 3)
    assert overall["pa"] == pytest.approx(6 / 8)
    assert overall["pac"] == pytest.approx((5 / 7 + 1) / 2)  # "c" has no true pixel, so no accuracy
    assert result["videos"]["v2"]["miou"] == pytest.approx((3 / 4 + 0) / 2)
    assert result["classes"]["c"]["iou"] == 0
    assert result["classes"]["c"]["accuracy"] is None
    assert result["classes"]["c"]["false_presence"] == 0.5
    assert result["classes"]["b"]["false_presence"] == 0  # one frame is without it, and it is not predicted there
    assert result["classes"]["b"]["frames"] == 1
    assert result["primary"] == {"score": "miou", "value": overall["miou"], "interval": None}


def test_endovis18_averages_frames_not_sequences() -> None:
    protocol = protocol_named("endovis18")
    names = ("background-tissue", "tool")
    good, bad = (frame(0, 1), frame(0, 1)), (frame(1, 1), frame(0, 1))
    scorer = filled(protocol, names, ("seq_1", 0, *good), ("seq_1", 1, *good), ("seq_2", 0, *bad))
    result = score(protocol, scorer)
    assert result["videos"]["seq_1"]["miou_frames"] == 1
    assert result["videos"]["seq_2"]["miou_frames"] == pytest.approx((0 + 1 / 2) / 2)
    assert result["primary"]["value"] == pytest.approx((1 + 1 + 1 / 4) / 3)
    assert result["per_sequence"]

    without = dataclasses.replace(protocol, include_background=False)
    result = score(without, filled(without, names, ("seq_2", 0, *bad)))
    assert result["primary"]["value"] == pytest.approx(1 / 2)  # what is predicted on background is still wrong


def test_cadis_scores_one_matrix() -> None:
    protocol = protocol_named("cadis")
    names = ("pupil", "tape", "hand")  # no frame has a hand: NaN, left out
    scorer = filled(protocol, names, ("2", 0, frame(0, 0), frame(0, 1)), ("12", 0, frame(1, 1), frame(1, 1)))
    result = score(protocol, scorer)
    assert result["primary"]["value"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert result["overall"]["pac"] == pytest.approx((1 + 2 / 3) / 2)
    assert result["overall"]["pa"] == pytest.approx(3 / 4)
    assert result["classes"]["hand"]["iou"] is None


def test_vocalfolds_patients_leave_pathology_out() -> None:
    protocol = protocol_named("vocalfolds-patients")
    names = ("vocal folds", "pathology")
    scorer = filled(protocol, names, ("seq1", 0, frame(0, 0, 0, 1), frame(0, 0, 1, 0)))
    result = score(protocol, scorer)
    assert result["overall"]["miou"] == pytest.approx(2 / 3)  # the pixel of pathology takes no part
    assert result["overall"]["miou_frames"] == pytest.approx(2 / 3)
    assert list(result["classes"]) == ["vocal folds"]
    with pytest.raises(ValueError, match="not made by"):
        score(DEFAULT, scorer)


def test_mistakes_are_said() -> None:
    with pytest.raises(
        UserError, match=r"in dataset.yaml is 'cadis2', expected one of .* \(did you mean cadis\?\): name"
    ):
        protocol_named("cadis2")
    with pytest.raises(UserError, match="is vocalfolds-patients, which leaves out pathology, but the classes are a, b"):
        scorer_of(protocol_named("vocalfolds-patients"), ("a", "b"))
    with pytest.raises(UserError, match=r"evaluation.include_background is false, but no class is called background"):
        scorer_of(Protocol("mine", include_background=False), ("a", "b"))


def test_cases_gather_their_videos() -> None:
    scorer = filled(DEFAULT, ("a", "b", "c"), *TWO_FRAMES)
    result = score(DEFAULT, scorer, cases={"v1": "patient", "v2": "patient"})
    assert list(result["cases"]) == ["patient"]
    assert result["cases"]["patient"] == result["overall"]


def test_no_frames_no_scores() -> None:
    result = score(DEFAULT, scorer_of(DEFAULT, ("a", "b")))
    assert result["overall"]["frames"] == 0
    assert result["primary"]["value"] is None
    assert result["classes"]["a"]["frames"] == 0


@given(st.lists(st.tuples(*[arrays(np.uint8, (4, 5), elements=st.integers(0, 3))] * 2), min_size=1, max_size=4))
@settings(deadline=None, max_examples=40)
def test_scores_are_json_and_equal_scikit_learn(pairs: list[tuple[np.ndarray, np.ndarray]]) -> None:
    frames = [("v", i, *pair) for i, pair in enumerate(pairs)]
    result = score(DEFAULT, filled(DEFAULT, ("a", "b", "c", "d"), *frames))
    json.dumps(result, allow_nan=False)
    prediction, truth = (np.stack(masks).ravel() for masks in zip(*pairs, strict=True))
    # with no list of labels, scikit-learn's macro mean is over the classes in either
    assert result["overall"]["miou"] == pytest.approx(jaccard_score(truth, prediction, average="macro"))
    of_frames = [
        jaccard_score(truth.ravel(), prediction.ravel(), labels=np.unique(truth), average="macro")
        for prediction, truth in pairs
    ]
    assert result["overall"]["miou_frames"] == pytest.approx(np.mean(of_frames))
    assert result["overall"]["consistency"] is None or 0 <= result["overall"]["consistency"] <= 1


@pytest.mark.parametrize("primary", ["miou", "miou_frames"])
def test_intervals_resample_cases(primary: str) -> None:
    protocol = Protocol("mine", primary=primary)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    frames = []
    for case in range(6):
        truth = rng.integers(0, 2, (8, 8), dtype=np.uint8)
        noise = (rng.random((8, 8)) < 0.05 * case).astype(np.uint8)
        frames += [(f"v{case}", i, truth ^ noise, truth) for i in range(2)]
    result = score(protocol, filled(protocol, ("a", "b"), *frames))
    low, high = result["primary"]["interval"]
    assert low < result["primary"]["value"] < high
    values = [case[primary] for case in result["cases"].values()]
    assert min(values) <= low
    assert high <= max(values)
    few = filled(protocol, ("a", "b"), *[f for f in frames if f[0] < "v4"])
    assert score(protocol, few)["primary"]["interval"] is None


def test_case_interval() -> None:
    assert case_interval([0.1, 0.2, 0.3, 0.4]) is None
    assert case_interval([0.5] * 5) == (0.5, 0.5)
    values = list(np.random.default_rng(0).normal(size=400))
    low, high = case_interval(values) or (np.nan, np.nan)
    assert high - low == pytest.approx(2 * 1.96 / np.sqrt(400) * np.std(values), rel=0.1)
    assert case_interval(values) == (low, high)  # the same draws every time
    assert case_interval([np.nan] * 5) is None


def test_boundaries_have_no_score_where_nobody_asks_for_them() -> None:
    truth = np.zeros((8, 8), np.uint8)
    truth[:, 4:] = 1
    with_them, without = Protocol("x"), Protocol("x", boundary_tolerance=None)
    found = []
    for protocol in (with_them, without):
        scorer = scorer_of(protocol, ("tissue", "tool"))
        scorer.add("v", 0, truth, truth)
        found.append(score(protocol, scorer, {"v": "v"})["overall"])
    assert (found[0]["nsd"], found[1]["nsd"]) == (1, None)
    assert found[0]["miou"] == found[1]["miou"] == 1


def test_outlines_have_no_score_where_no_true_one_is_known() -> None:
    truth = np.zeros((40, 40), np.uint8)
    truth[:, 20:] = 1
    truth[:, 19:21] = 255  # as `unpainted: ignore` leaves between shapes
    prediction = np.zeros((40, 40), np.uint8)
    prediction[:, 30:] = 1
    scores = score(DEFAULT, filled(DEFAULT, ("tissue", "tool"), ("v", 0, prediction, truth)))
    assert scores["overall"]["nsd"] is None  # not 0, for any prediction
    assert scores["classes"]["tool"]["nsd"] is None
