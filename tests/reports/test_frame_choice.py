"""Choice of frames: the worst and best, far apart."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suture.reports.frame_choice import FrameKey, pick
from suture.reports.gallery import Gallery, Panel


def chosen_for(reason: str, scores: dict[FrameKey, list[float]]) -> list[FrameKey]:
    return [key for key, reasons in pick(scores).items() if reason in reasons]


def test_frames_of_one_group_are_no_neighbours() -> None:
    scores = {
        (video, 2 * i): [abs(i - worst) / 30 + shift]
        for video, worst, shift in (("a", 8, 0), ("b", 20, 0.2))
        for i in range(30)
    }
    worst, median, best = (chosen_for(reason, scores) for reason in ("worst", "median", "best"))
    assert worst == [("a", 16), ("a", 4), ("a", 28)]
    assert best[-1] == ("b", 0)
    for keys in (worst, median, best):
        assert len(keys) == 3
        assert all(one[0] != other[0] or abs(one[1] - other[1]) >= 12 for one, other in pairwise(sorted(keys)))


def test_frames_on_which_runs_differ_most() -> None:
    differ = {2: 0.4, 0: 0.3, 30: 0.2, 50: 0.1}
    scores = {("a", i): [i / 60 - differ.get(i, 0), i / 60 + differ.get(i, 0)] for i in range(60)}
    assert sorted(chosen_for("runs differ", scores)) == [("a", 2), ("a", 30), ("a", 50)]


def test_neighbours_are_chosen_where_all_frames_lie_close_together() -> None:
    scores = {("a", i): [i / 9, i / 9 + 0.1 * (i == 4)] for i in range(9)}
    assert chosen_for("worst", scores) == [("a", 0), ("a", 1), ("a", 2)]
    assert chosen_for("best", scores) == [("a", 6), ("a", 7), ("a", 8)]
    assert chosen_for("runs differ", scores) == [("a", 4)]


def test_evenly_chosen_frames_are_in_the_order_of_time() -> None:
    scores = {("a", i): [abs(i - 4) / 9] for i in range(10)}
    groups = Gallery({}, pick(scores, spread=4), []).groups
    assert groups["evenly"] == [("a", 0), ("a", 2), ("a", 5), ("a", 7)]
    assert groups["worst"][0] == ("a", 4)


def test_legend_has_the_classes_of_the_chosen_frames() -> None:
    masks = {("a", i): np.full((2, 2), ids, np.uint8) for i, ids in enumerate((3, 255, 1, 7))}
    chosen = {("a", i): ["evenly"] for i in range(3)}
    assert Gallery({}, chosen, [Panel("truth", "truth", {}), Panel("run", "prediction", masks)]).classes == [1, 3]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 200)), st.floats(0, 1).map(lambda x: [x]), min_size=9
    )
)
def test_groups_are_ordered_by_score(scores: dict[FrameKey, list[float]]) -> None:
    worst, median, best = (chosen_for(reason, scores) for reason in ("worst", "median", "best"))
    assert len(worst) == len(median) == len(best) == 3
    assert len({*worst, *median, *best}) == 9
    ranked = [scores[key][0] for key in (*worst, *median, *best)]
    assert ranked == sorted(ranked)
    assert ranked[0] == min(scores.values())[0]
    assert ranked[-1] == max(scores.values())[0]
