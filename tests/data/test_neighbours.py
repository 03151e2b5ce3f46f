"""Labelled neighbours: the nearest before and after, and never across a cut."""

from math import inf
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suture.data.sampling.neighbours import LabelledNeighbours


def around(labelled: list[int], shots: list[int], indices: list[int] | None = None) -> LabelledNeighbours:
    places = [("video", index) for index in indices or range(len(shots))]
    return LabelledNeighbours(SimpleNamespace(places=places, labelled=np.array(labelled, int)), shots)  # type: ignore[arg-type]


def test_nearest_before_and_after() -> None:
    neighbours = around([0, 5, 9], [0] * 10)
    assert neighbours.of(1, 2) == [(0, 1), (5, 4)]
    assert neighbours.of(4, 1) == [(5, 1)]
    assert neighbours.of(4, 0) == []


def test_never_across_a_cut() -> None:
    neighbours = around([0, 3, 6], [0, 0, 0, 1, 1, 2, 3])
    assert neighbours.of(2, 2) == [(0, 2), (2, inf)]
    assert neighbours.of(4, 1) == [(3, 1)]
    assert neighbours.of(5, 1) == [(5, inf)]


def test_distance_counts_the_frames_left_out() -> None:
    assert around([0], [0, 0], [3, 10]).of(1, 1) == [(0, 7)]


@given(
    shots=st.lists(st.integers(0, 3), min_size=1, max_size=20).map(sorted),
    data=st.data(),
    count=st.integers(0, 3),
)
def test_as_a_search_through_all_frames(shots: list[int], data: st.DataObject, count: int) -> None:
    numbers = range(len(shots))
    labelled = sorted(data.draw(st.sets(st.sampled_from(numbers))))
    query = data.draw(st.sampled_from(numbers))
    if query in labelled:
        labelled.remove(query)
    same = [n for n in labelled if shots[n] == shots[query]]
    before, after = [n for n in same if n < query], [n for n in same if n > query]
    expected = sorted(abs(n - query) for n in [*before[-1:], *after[:1]])
    found = around(labelled, shots).of(query, count)
    assert [distance for _, distance in found] == (expected + [inf] * count)[:count]
    assert all(abs(n - query) == distance for n, distance in found if distance < inf)
    assert all(n in same for n, distance in found if distance < inf)
