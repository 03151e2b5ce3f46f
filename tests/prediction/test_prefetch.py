"""Threads that work ahead: order, errors and early ends."""

import threading
import time
from collections.abc import Iterator

import pytest

from suture.prediction.prefetch import map_ordered, prefetch


def numbers(count: int, closed: list[bool] | None = None, fails_at: int = -1) -> Iterator[int]:
    try:
        for number in range(count):
            if number == fails_at:
                raise ValueError("broken")
            yield number
    finally:
        if closed is not None:
            closed.append(True)


@pytest.mark.parametrize("together", [1, 3, 200])
def test_all_items_in_order(together: int) -> None:
    assert list(prefetch(numbers(100), 3)) == list(range(100))

    def slow(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number

    assert list(map_ordered(slow, prefetch(numbers(40), 2), 4, together)) == list(range(40))
    assert list(prefetch([], 1)) == []


def test_an_error_is_raised_after_the_items_before_it() -> None:
    found: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        found.extend(prefetch(numbers(10, fails_at=4), 2))
    assert found == [0, 1, 2, 3]

    def fail(number: int) -> int:
        if number == 2:
            raise ValueError("broken too")
        return number

    with pytest.raises(ValueError, match="broken too"):
        list(map_ordered(fail, range(10), 2))


def test_leaving_early_ends_the_threads() -> None:
    before = threading.active_count()
    closed: list[bool] = []
    chain = prefetch(prefetch(numbers(10**9, closed), 2), 2)
    assert [next(chain) for _ in range(3)] == [0, 1, 2]
    chain.close()
    assert closed == [True]
    results = map_ordered(lambda number: number, range(10**9), 3)
    assert next(results) == 0
    results.close()
    assert threading.active_count() == before


def test_only_so_many_items_are_made_ahead() -> None:
    made = []

    def counted() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    chain = prefetch(counted(), 3)
    next(chain)
    time.sleep(0.3)
    assert len(made) <= 6
    chain.close()
