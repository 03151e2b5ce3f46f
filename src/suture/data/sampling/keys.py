"""Keys: the frames that a query frame is contrasted with.

The paper's four levels are the query frame itself and three kinds of keys: other *views* of it, frames of its *shot*,
frames of other *videos*. Draws are plans for the whole global batch and pure functions of their generator, so every
rank can make the same plan and encode its own part of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from suture.core.settings import Settings


class KeySettings(Settings):
    """Number of keys of each level, and the source of those from other frames.

    `paper`: each query draws its own keys. `shared`: the keys of other videos are those of the other queries in the
    batch. `bank`: class sums, kept of every training frame from its last visit, stand for all frames but the query's.
    """

    views: int = Field(1, ge=0)
    """N_c: other samples of the same frame."""
    same_shot: int = Field(1, ge=0)
    """N_a: frames of the same shot."""
    other_videos: NonNegativeInt | Literal["all"] = 4
    """`all`, with the bank only, is the sum over every frame of other videos."""
    apart: Literal["case", "video"] = "case"
    """Other videos are those of other cases, or also others of the same case."""
    mode: Literal["paper", "shared", "bank"] = "paper"
    """Source of other-video keys: drawn for each query, shared in the batch, or the bank."""

    @model_validator(mode="after")
    def _is_possible(self) -> "KeySettings":
        if self.other_videos == "all" and self.mode != "bank":
            raise ValueError("other_videos: all needs mode: bank")
        if self.views + self.same_shot == 0:
            raise ValueError("views and same_shot are both 0: a query needs at least one key of its own")
        if self.mode == "bank" and not self.views:
            raise ValueError("mode: bank needs views of at least 1: the bank remembers them of each frame")
        return self

    @property
    def encoded(self) -> int:
        """Number of frames encoded as keys per query; `shared` adds some where a batch has too few other videos.

        >>> [KeySettings(mode=mode).encoded for mode in ("paper", "shared", "bank")]
        [6, 2, 1]
        """
        if self.mode == "bank":
            return self.views
        further = self.other_videos if self.mode == "paper" else 0
        return self.views + self.same_shot + int(further)


@dataclass(frozen=True)
class KeyPlan:
    """The frames to encode as keys, and the keys of each query."""

    own: np.ndarray
    """B × (views + same_shot), in bank mode B × views: frame numbers of each query's own keys."""
    recalled: np.ndarray
    """B × same_shot in bank mode, else B × 0: frames of the query's shot, recalled from the bank."""
    extra: np.ndarray
    """E: frame numbers of further other-video keys to encode, in the order of the queries they were drawn for."""
    extra_of: np.ndarray
    """E: the query each extra key was drawn for."""
    others: np.ndarray
    """B × N_v: other-video keys, as positions in own.ravel() followed by extra; empty in bank mode."""

    def share(self, rows: slice) -> "KeyPlan":
        """Plan of one process: the queries at `rows` with their own and extra keys.

        `others` are positions in the own keys of all processes, followed by the extra keys of this one.
        """
        mine = (self.extra_of >= rows.start) & (self.extra_of < rows.stop)
        skipped = int((self.extra_of < rows.start).sum())
        others = self.others[rows] - (self.others[rows] >= self.own.size) * skipped
        extra_of = self.extra_of[mine] - rows.start
        return KeyPlan(self.own[rows].copy(), self.recalled[rows].copy(), self.extra[mine], extra_of, others)


class KeyPool:
    """Draws keys from frames numbered 0…n−1, each with an owner and a shot.

    The owner is the frame's case or video: frames of one owner are no other-video keys of each other.

    >>> pool = KeyPool(owners=[0, 0, 1, 1], shots=[0, 0, 1, 1])
    >>> plan = pool.draw(np.random.default_rng(0), [0, 2], KeySettings(other_videos=1))
    >>> plan.own.tolist()  # the frame itself, and the other frame of its shot
    [[0, 1], [2, 3]]
    """

    def __init__(self, owners: Sequence[int] | np.ndarray, shots: Sequence[int] | np.ndarray) -> None:
        self.owners = np.asarray(owners)
        self.shots = np.asarray(shots)
        by_owner = np.argsort(self.owners, kind="stable")
        self._by_owner = by_owner
        self._owner_begins = np.searchsorted(self.owners[by_owner], np.arange(self.owners.max() + 2))
        by_shot = np.argsort(self.shots, kind="stable")
        self._by_shot = by_shot
        self._shot_begins = np.searchsorted(self.shots[by_shot], np.arange(self.shots.max() + 2))

    @cached_property
    def several_owners(self) -> bool:
        """True if there is another video to draw from."""
        return bool((self.owners != self.owners[0]).any())

    def same_shot(self, rng: np.random.Generator, query: int) -> int:
        """Draw a frame of the query's shot, uniformly over the others; the frame itself if it is alone."""
        begin, end = self._shot_begins[self.shots[query]], self._shot_begins[self.shots[query] + 1]
        if end - begin == 1:
            return query
        chosen = self._by_shot[begin + rng.integers(end - begin - 1)]
        return int(self._by_shot[end - 1] if chosen == query else chosen)

    def other_video(self, rng: np.random.Generator, query: int) -> int:
        """Draw a frame of another owner, uniformly over all of them."""
        begin, end = self._owner_begins[self.owners[query]], self._owner_begins[self.owners[query] + 1]
        place = rng.integers(len(self.owners) - (end - begin))
        return int(self._by_owner[place if place < begin else place + (end - begin)])

    def draw(self, rng: np.random.Generator, queries: Sequence[int], settings: KeySettings) -> KeyPlan:
        """Plan the keys of a batch of queries."""
        views = np.repeat(np.array(queries, np.int64)[:, None], settings.views, axis=1)
        shot = np.array([[self.same_shot(rng, q) for _ in range(settings.same_shot)] for q in queries], np.int64)
        shot = shot.reshape(len(queries), -1)
        own, recalled = (views, shot) if settings.mode == "bank" else (np.hstack([views, shot]), shot[:, :0])
        drawn = isinstance(settings.other_videos, int) and settings.mode != "bank" and self.several_owners
        wanted = int(settings.other_videos) if drawn else 0
        others = np.zeros((len(queries), wanted), np.int64)
        extra: list[int] = []
        extra_of: list[int] = []
        owners = self.owners[own.ravel()]
        for b, query in enumerate(queries):
            # Queries are drawn uniformly and a shot's frames uniformly within it, so a key of another owner's query is
            # uniform over that owner's frames: any choice among them has the same marginals as drawing anew.
            usable = owners != self.owners[query] if settings.mode == "shared" else np.zeros(len(owners), bool)
            chosen = rng.permutation(np.flatnonzero(usable))[:wanted]
            others[b, : len(chosen)] = chosen
            for place in range(len(chosen), wanted):
                others[b, place] = own.size + len(extra)
                extra.append(self.other_video(rng, query))
                extra_of.append(b)
        return KeyPlan(own, recalled, np.array(extra, np.int64), np.array(extra_of, np.int64), others)
