"""Keys come from where they should, as often as they should."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chisquare

from suture.data.sampling.frames import Epochs, generator
from suture.data.sampling.keys import KeyPlan, KeyPool, KeySettings

# Cases of very different lengths, two of them with two videos; shots of one frame and of many; frames in any order.
CASES = np.array([0] * 9 + [1] * 4 + [2] * 3 + [1] * 3 + [3] * 1)
VIDEOS = np.array([0] * 4 + [1] * 5 + [2] * 4 + [3] * 3 + [4] * 3 + [5] * 1)
SHOTS = np.array([0] * 4 + [1] * 5 + [2] * 1 + [3] * 3 + [4] * 3 + [5] * 3 + [6] * 1)
by_owner = pytest.mark.parametrize("owners", [CASES, VIDEOS], ids=["case", "video"])
"""What keeps frames apart: `keys.apart`."""


def other_frames(plan: KeyPlan) -> np.ndarray:
    """The frame numbers of the other-video keys, B × N_v."""
    return np.concatenate([plan.own.ravel(), plan.extra])[plan.others]


def batches(count: int, size: int, seed: int = 0) -> Iterator[tuple[np.random.Generator, list[int]]]:
    """Queries as the contrast stage draws them, with a generator for their keys."""
    order = Epochs(np.arange(len(CASES)), seed, "contrast")
    for step in range(count):
        yield generator(seed, "keys", step), [order[step * size + place] for place in range(size)]


@given(
    owners=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    data=st.data(),
    views=st.integers(0, 2),
    same_shot=st.integers(0, 2),
    other_videos=st.sampled_from([0, 1, 2, 4, 64]),
    mode=st.sampled_from(["paper", "shared", "bank"]),
    seed=st.integers(0, 1000),
)
def test_never_the_wrong_video_and_never_across_a_cut(
    owners: list[int], data: st.DataObject, views: int, same_shot: int, other_videos: int, mode: str, seed: int
) -> None:
    if mode == "bank" or views + same_shot == 0:
        views = max(views, 1)
    # A shot is of one owner: its number is made of the owner's and of a part within it.
    shots = [2 * owner + data.draw(st.integers(0, 1)) for owner in owners]
    queries = data.draw(st.lists(st.integers(0, len(owners) - 1), min_size=1, max_size=5))
    settings = KeySettings(views=views, same_shot=same_shot, other_videos=other_videos, mode=mode)
    plan = KeyPool(owners, shots).draw(np.random.default_rng(seed), queries, settings)

    of_shot, none = (plan.recalled, plan.own[:, views:]) if mode == "bank" else (plan.own[:, views:], plan.recalled)
    assert of_shot.shape == (len(queries), same_shot)
    assert not none.size
    several = len(set(owners)) > 1
    assert plan.others.shape == (len(queries), other_videos if several and mode != "bank" else 0)
    if several:
        encoded = plan.own.size + (0 if mode == "shared" else plan.extra.size)
        assert encoded == len(queries) * settings.encoded
    for b, query in enumerate(queries):
        assert (plan.own[b, :views] == query).all()
        assert all(shots[key] == shots[query] for key in of_shot[b])
        alone = shots.count(shots[query]) == 1
        assert all((key == query) == alone for key in of_shot[b])
        assert all(owners[key] != owners[query] for key in other_frames(plan)[b])
        # Every further key is met by the query it was drawn for, and by no other.
        met = set(plan.others[b][plan.others[b] >= plan.own.size] - plan.own.size)
        assert met == set(np.flatnonzero(plan.extra_of == b))
    assert (np.diff(plan.extra_of) >= 0).all()


def test_paper_encodes_all_other_video_keys_anew() -> None:
    for rng, queries in batches(5, 4):
        plan = KeyPool(CASES, SHOTS).draw(rng, queries, KeySettings(other_videos=4))
        assert len(plan.extra) == 16
        assert plan.others.ravel().tolist() == list(range(8, 24))
        assert plan.extra_of.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4


def test_shared_encodes_only_what_the_batch_lacks() -> None:
    pool, settings = KeyPool(CASES, SHOTS), KeySettings(other_videos=4, mode="shared")
    # Frames 0 and 1 are of case 0, 9 of case 1, 13 of case 2; every query has two keys of its own.
    plan = pool.draw(np.random.default_rng(0), [0, 1, 9, 13], settings)
    assert len(plan.extra) == 0
    assert all(len(set(row)) == 4 for row in plan.others)
    plan = pool.draw(np.random.default_rng(0), [0, 1, 2, 9], settings)
    assert plan.extra_of.tolist() == [0, 0, 1, 1, 2, 2]  # only two keys of the fourth are of another case
    assert (plan.others[:3, :2] < plan.own.size).all()
    assert (plan.others[3] < plan.own.size).all()
    plan = pool.draw(np.random.default_rng(0), [0, 1, 2, 3], settings)
    assert len(plan.extra) == 16


def test_bank_encodes_no_other_video_keys() -> None:
    plan = KeyPool(CASES, SHOTS).draw(np.random.default_rng(0), [0, 9], KeySettings(other_videos="all", mode="bank"))
    assert plan.extra.size == plan.others.size == 0


@pytest.mark.parametrize("mode", ["paper", "shared", "bank"])
def test_one_owner_has_no_other_videos(mode: str) -> None:
    pool = KeyPool([0] * 6, [0, 0, 0, 1, 1, 1])
    plan = pool.draw(np.random.default_rng(0), [0, 5], KeySettings(other_videos=4, mode=mode))
    assert plan.own.size + plan.recalled.size == 4
    assert plan.others.shape == (2, 0)
    assert plan.extra.size == 0


@by_owner
@pytest.mark.parametrize("mode", ["paper", "shared"])
@pytest.mark.parametrize("size", [2, 4])
def test_other_video_keys_are_uniform_over_the_frames_of_other_owners(owners: np.ndarray, mode: str, size: int) -> None:
    """Whosever the query: drawn alone or taken from the batch, every frame of other owners is as likely.

    Of videos, those of the query's case are as likely as any other.
    """
    pool, settings = KeyPool(owners, SHOTS), KeySettings(other_videos=3, mode=mode)
    # One key per batch: keys of one batch are not independent, and a chi-square test is of independent draws.
    counts = np.zeros((owners.max() + 1, len(owners)))
    for rng, queries in batches(16000 // size, size):
        plan = pool.draw(rng, queries, settings)
        b, place = rng.integers(size), rng.integers(3)
        counts[owners[queries[b]], other_frames(plan)[b, place]] += 1
    for owner, row in enumerate(counts):
        allowed = owner != owners
        assert row[~allowed].sum() == 0
        assert chisquare(row[allowed]).pvalue > 1e-3, f"owner {owner}: {row}"


def test_same_shot_keys_are_uniform_over_the_others_of_the_shot() -> None:
    pool, rng = KeyPool(CASES, SHOTS), np.random.default_rng(0)
    for query in (4, 6, 8):  # first, middle and last of a shot of five
        counts = np.bincount([pool.same_shot(rng, query) for _ in range(4000)], minlength=len(CASES))
        expected = (SHOTS[query] == SHOTS) & (np.arange(len(CASES)) != query)
        assert counts[~expected].sum() == 0
        assert chisquare(counts[expected]).pvalue > 1e-3


@pytest.mark.parametrize(
    "wrong",
    [
        {"other_videos": "all"},
        {"views": 0, "same_shot": 0},
        {"views": 0, "mode": "bank"},
        {"views": -1},
        {"mode": "x"},
        {"apart": "shot"},
    ],
)
def test_refuses_impossible_settings(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        KeySettings(**wrong)
