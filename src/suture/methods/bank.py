"""Bank of class sums: those of every training frame at its last visit, in place of keys of other frames."""

from typing import Literal

import torch
from torch import Tensor, nn

from suture.losses.pixel_contrast import ClassSums, Contrasts, contrasts


class Bank(nn.Module):
    """Class sums of all frames, and the expectation of drawing N frames of other owners.

    The owner of a frame is its case or its video, as in `KeyPool`. Running totals per owner make the cost of a query
    independent of the number of frames.
    """

    sums: Tensor
    counts: Tensor
    owners: Tensor
    visited: Tensor
    positive_sums: Tensor
    positive_counts: Tensor
    negatives: Tensor
    frames: Tensor

    def __init__(self, owners: Tensor, classes: int, channels: int) -> None:
        super().__init__()
        rows, groups = len(owners) + 1, int(owners.max()) + 1  # the last row is for values to discard
        self.register_buffer("owners", torch.cat([owners, owners.new_zeros(1)]), persistent=False)
        self.register_buffer("sums", torch.zeros(rows, classes, channels))
        self.register_buffer("counts", torch.zeros(rows, classes))
        self.register_buffer("visited", torch.zeros(rows, dtype=torch.bool))
        # In fp64, so that thousands of additions and subtractions leave no error.
        self.register_buffer("positive_sums", torch.zeros(groups, classes, channels, dtype=torch.float64))
        self.register_buffer("positive_counts", torch.zeros(groups, classes, dtype=torch.float64))
        self.register_buffer("negatives", torch.zeros(groups, classes, channels, dtype=torch.float64))
        self.register_buffer("frames", torch.zeros(groups, dtype=torch.float64))

    @torch.no_grad()
    def put(self, numbers: Tensor, keys: ClassSums) -> None:
        """Replace the class sums of these frames; of repeated frames the last one counts."""
        repeated = (numbers[:, None] == numbers).triu(1).any(1)
        rows = numbers.masked_fill(repeated, len(self.visited) - 1)
        kept = (~repeated).double()
        self._add(rows, ClassSums(self.sums[rows], self.counts[rows]), -kept * self.visited[rows])
        self._add(rows, keys, kept)
        self.sums[rows], self.counts[rows] = keys.sums, keys.counts
        self.visited.index_fill_(0, rows, True)
        # A GPU may have written the sums of one frame and the counts of another into the last row.
        self.sums[-1].zero_()
        self.counts[-1].zero_()

    def _add(self, rows: Tensor, keys: ClassSums, weight: Tensor) -> None:
        each = contrasts(ClassSums(keys.sums[:, None], keys.counts[:, None]))
        owners = self.owners[rows]
        self.frames.index_add_(0, owners, weight)
        for total, value in zip((self.positive_sums, self.positive_counts, self.negatives), each, strict=True):
            total.index_add_(0, owners, value.double() * weight.reshape(-1, *[1] * (value.ndim - 1)))

    @torch.no_grad()
    def recall(self, numbers: Tensor) -> Contrasts:
        """Contrasts of each query with the frames (B × K) at their last visit, without those never visited."""
        return contrasts(ClassSums(self.sums[numbers], self.counts[numbers]), self.visited[numbers].float())

    @torch.no_grad()
    def expected(self, queries: Tensor, draws: int | Literal["all"]) -> Contrasts:
        """Expected contrasts with `draws` visited frames of other owners; `all` is the sum over all of them."""
        own = self.owners[queries]

        def of_others(total: Tensor) -> Tensor:
            return total.sum(0) - total[own]

        frames = of_others(self.frames).round()
        share = torch.ones_like(frames) if draws == "all" else draws / frames.clamp(min=1)
        share = share * (frames > 0)
        counts = of_others(self.positive_counts)  # exact, unlike the sums of a class that is gone
        return Contrasts(
            (of_others(self.positive_sums) * share[:, None, None]).where(counts[..., None] > 0, 0).float(),
            (counts * share[:, None]).float(),
            (of_others(self.negatives) * share[:, None, None]).float(),
        )
