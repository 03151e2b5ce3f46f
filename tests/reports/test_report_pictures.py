"""Which frames are shown: the worst and best, but not the same picture three times."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suture.reports.overlays import Gallery, Panel, pick

Place = tuple[str, int]


def chosen_for(reason: str, scores: dict[Place, list[float]]) -> list[Place]:
    return [place for place, reasons in pick(scores).items() if reason in reasons]


def test_frames_of_one_kind_are_no_neighbours() -> None:
    """The worst frames follow each other in a video, as its score changes slowly."""
    scores = {
        (video, 2 * i): [abs(i - worst) / 30 + shift]
        for video, worst, shift in (("a", 8, 0), ("b", 20, 0.2))
        for i in range(30)
    }
    worst, median, best = (chosen_for(reason, scores) for reason in ("worst", "median", "best"))
    assert worst == [("a", 16), ("a", 4), ("a", 28)]
    assert best[-1] == ("b", 0)
    for places in (worst, median, best):
        assert len(places) == 3
        assert all(one[0] != other[0] or abs(one[1] - other[1]) >= 12 for one, other in pairwise(sorted(places)))


def test_where_runs_differ_beside_the_worst_the_next_frame_is_taken() -> None:
    """Unless it is one of the worst itself: that is shown once, for both reasons."""
    differ = {2: 0.4, 0: 0.3, 30: 0.2, 50: 0.1}
    scores = {("a", i): [i / 60 - differ.get(i, 0), i / 60 + differ.get(i, 0)] for i in range(60)}
    assert pick(scores)["a", 0] == ["worst", "runs differ"]
    assert sorted(chosen_for("runs differ", scores)) == [("a", 0), ("a", 30), ("a", 50)]
    del scores["a", 50]
    assert ("a", 2) in chosen_for("runs differ", scores), "where there is no other"


def test_where_all_lie_close_together_they_are_chosen_all_the_same() -> None:
    scores = {("a", i): [i / 9, i / 9 + 0.1 * (i == 4)] for i in range(9)}
    assert chosen_for("worst", scores) == [("a", 0), ("a", 1), ("a", 2)]
    assert chosen_for("best", scores) == [("a", 6), ("a", 7), ("a", 8)]
    assert chosen_for("runs differ", scores) == [("a", 4)]


def test_frames_chosen_evenly_follow_each_other() -> None:
    """Whatever else they were chosen for."""
    scores = {("a", i): [abs(i - 4) / 9] for i in range(10)}
    gallery = Gallery({}, pick(scores, spread=4), [])
    assert gallery.group("evenly") == [("a", 0), ("a", 2), ("a", 5), ("a", 7)]
    assert gallery.group("worst")[0] == ("a", 4)


def test_the_legend_has_the_classes_that_are_seen() -> None:
    masks = {("a", i): np.full((2, 2), ids, np.uint8) for i, ids in enumerate((3, 255, 1, 7))}
    chosen = {("a", i): ["evenly"] for i in range(3)}
    assert Gallery({}, chosen, [Panel("truth", "truth", {}), Panel("run", "prediction", masks)]).classes == [1, 3]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 200)), st.floats(0, 1).map(lambda x: [x]), min_size=9
    )
)
def test_the_worst_are_worse_than_the_median_and_these_than_the_best(scores: dict[Place, list[float]]) -> None:
    worst, median, best = (chosen_for(reason, scores) for reason in ("worst", "median", "best"))
    assert len(worst) == len(median) == len(best) == 3
    assert len({*worst, *median, *best}) == 9
    ranked = [scores[place][0] for place in (*worst, *median, *best)]
    assert ranked[0] == min(scores.values())[0]
    assert ranked[-1] == max(scores.values())[0]
    assert max(ranked[:3]) <= min(ranked[3:6])
    assert max(ranked[3:6]) <= min(ranked[6:])
    assert ranked == sorted(ranked)
