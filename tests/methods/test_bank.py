"""The bank always holds what its last visits say, however often and in whatever order frames come by."""

import itertools
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from suture.losses.pixel_contrast import ClassSums, Contrasts, class_sums, contrasts
from suture.methods.bank import Bank

CLASSES, CHANNELS = 3, 4


def random_sums(count: int, generator: torch.Generator) -> ClassSums:
    """Class sums of frames of a few pixels, in which classes are often absent and pixels ignored."""
    features = F.normalize(torch.randn(count, CHANNELS, 2, 2, generator=generator), dim=1)
    labels = torch.tensor([0, 1, 2, 255])[torch.randint(4, (count, 2, 2), generator=generator)]
    return class_sums(features, labels, CLASSES)


def slow_sum(frames: list[ClassSums]) -> Contrasts:
    """What a query meets in these frames, one after the other."""
    empty = Contrasts(torch.zeros(1, CLASSES, CHANNELS), torch.zeros(1, CLASSES), torch.zeros(1, CLASSES, CHANNELS))
    return sum((contrasts(ClassSums(f.sums[None, None], f.counts[None, None])) for f in frames), empty)


def assert_same(found: Contrasts, expected: Contrasts, factor: float = 1.0) -> None:
    for name in ("positive_sums", "positive_counts", "negatives"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name) * factor, atol=1e-5, rtol=1e-5)


class Visits:
    """Random visits, remembered the slow way beside the bank."""

    def __init__(self, owners: list[int], puts: list[list[int]], seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.owners = owners
        self.bank = Bank(torch.tensor(owners), CLASSES, CHANNELS)
        self.last: dict[int, ClassSums] = {}
        for numbers in puts:
            keys = random_sums(len(numbers), generator)
            self.bank.put(torch.tensor(numbers, dtype=torch.long), keys)
            self.last.update({n: ClassSums(*(x[i] for x in keys)) for i, n in enumerate(numbers)})

    def others(self, query: int) -> list[ClassSums]:
        return [sums for number, sums in self.last.items() if self.owners[number] != self.owners[query]]


visits = st.builds(
    Visits,
    owners=st.just([0, 0, 1, 1, 1, 2]),
    puts=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=5), max_size=8),
    seed=st.integers(0, 2**31),
)


@given(visits=visits, query=st.integers(0, 5), draws=st.sampled_from([1, 4, 64, "all"]))
@settings(max_examples=100)
def test_equals_a_recomputation_from_the_last_visits(visits: Visits, query: int, draws: int | Literal["all"]) -> None:
    others = visits.others(query)
    factor = 1.0 if draws == "all" else draws / max(1, len(others))
    assert_same(visits.bank.expected(torch.tensor([query]), draws), slow_sum(others), factor)


@given(visits=visits, draws=st.integers(1, 3))
@settings(max_examples=20)
def test_is_the_mean_over_all_draws(visits: Visits, draws: int) -> None:
    others = visits.others(query=0)
    found = visits.bank.expected(torch.tensor([0]), draws)
    if not others:
        assert not found.positive_counts.any()
        return
    possible = [slow_sum(list(drawn)) for drawn in itertools.product(others, repeat=draws)]
    assert_same(found, sum(possible[1:], possible[0]), 1 / len(possible))


def test_answers_a_batch_of_queries_at_once() -> None:
    visits = Visits([0, 1, 1, 2], [[0, 1], [2, 3], [1, 1]], seed=1)
    together = visits.bank.expected(torch.tensor([3, 0, 1]), 4)
    for place, query in enumerate((3, 0, 1)):
        alone = visits.bank.expected(torch.tensor([query]), 4)
        assert torch.equal(together.negatives[place], alone.negatives[0])
        assert torch.equal(together.positive_sums[place], alone.positive_sums[0])


def test_a_thousand_steps_leave_no_trace() -> None:
    generator = torch.Generator().manual_seed(0)
    puts = torch.randint(6, (1000, 4), generator=generator).tolist()
    visits = Visits([0, 0, 1, 1, 1, 2], puts, seed=0)
    assert_same(visits.bank.expected(torch.tensor([0]), "all"), slow_sum(visits.others(0)))


def test_a_class_that_is_gone_leaves_nothing_behind() -> None:
    # Rounding errors, divided by a count of nearly nothing, would be the largest positive of all.
    generator = torch.Generator().manual_seed(0)
    bank = Bank(torch.tensor([0, 1, 1, 2]), CLASSES, CHANNELS)
    for step in range(100):
        features = F.normalize(torch.randn(4, CHANNELS, 3, 3, generator=generator), dim=1)
        labels = torch.full((4, 3, 3), 2 if step % 2 == 0 else 1)
        bank.put(torch.arange(4), class_sums(features, labels, CLASSES))
    met = bank.expected(torch.tensor([0]), 4)
    assert met.positive_counts.tolist() == [[0, 36, 0]]
    assert (met.positive_sums[0, [0, 2]] == 0).all()


@pytest.mark.parametrize("draws", [4, "all"])
def test_has_nothing_of_other_owners_where_there_is_one_owner(draws: int | Literal["all"]) -> None:
    visits = Visits([0, 0, 0], [[0, 1, 2]], seed=0)
    met = visits.bank.expected(torch.tensor([1]), draws)
    values: tuple[Tensor, ...] = (met.positive_sums, met.positive_counts, met.negatives)
    assert all((value == 0).all() for value in values)


def test_recalls_single_frames_as_they_were_at_their_last_visit() -> None:
    visits = Visits([0, 0, 1, 1], [[0, 1], [1, 2]], seed=1)
    met = visits.bank.recall(torch.tensor([[1, 2], [3, 0]]))  # frame 3 was never visited
    for b, frames in enumerate([[1, 2], [0]]):
        expected = slow_sum([visits.last[frame] for frame in frames])
        assert torch.allclose(met.positive_sums[b], expected.positive_sums[0])
        assert torch.allclose(met.negatives[b], expected.negatives[0], atol=1e-6)


def test_what_is_forgotten_leaves_nothing_to_count_with() -> None:
    visits = Visits([0, 1, 1], [[0, 0, 1, 1, 0]], seed=0)
    assert not visits.bank.sums[-1].any()
    assert not visits.bank.counts[-1].any()
