"""Labelled neighbours: the labelled frames around a frame, in its shot, whose labels can be carried to it."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from math import inf

from suture.data.sampling.frames import TrainingFrames


class LabelledNeighbours:
    """Finds the labelled frames next to a frame; never across a cut."""

    def __init__(self, frames: TrainingFrames, shots: Sequence[int]) -> None:
        self.places = frames.places
        self.shots = shots
        self._labelled = defaultdict[int, list[int]](list)
        for number in frames.labelled.tolist():  # in ascending order, as are the indices within a video
            self._labelled[shots[number]].append(number)

    def of(self, number: int, count: int) -> list[tuple[int, float]]:
        """Return the `count` nearest of the labelled frames directly before and after this one, the nearer one first.

        Each comes with its distance in frames. A missing one is replaced by the frame itself, infinitely far away.
        """
        labelled = self._labelled[self.shots[number]]
        after = bisect_left(labelled, number)
        around = [(n, self._distance(number, n)) for n in labelled[max(after - 1, 0) : after + 1]]
        around.sort(key=lambda neighbour: neighbour[1])
        return (around + [(number, inf)] * count)[:count]

    def _distance(self, number: int, other: int) -> float:
        return float(abs(self.places[number][1] - self.places[other][1]))
