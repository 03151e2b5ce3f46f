"""Labels carried from one frame to another along the correspondence of their features.

Every cell of the *query* frame's feature grid takes the labels of the most similar cells of the *key* frame, within a
window around its own place. It counts if the match back ends at the cell (cycle consistency), which fails for things
that moved out of sight or came into it.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from suture.losses.precision import full_precision


def descriptors(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Features (B D h w) as unit vectors around their common mean.

    After a ReLU, most of a feature is common to all cells and does not distinguish them.
    """
    query, key = query.float(), key.float()
    mean = (query.mean((2, 3), keepdim=True) + key.mean((2, 3), keepdim=True)) / 2
    return F.normalize(query - mean, dim=1, eps=1e-6), F.normalize(key - mean, dim=1, eps=1e-6)


def affinity(query: Tensor, key: Tensor, radius: int) -> Tensor:
    """Similarity of every query cell with every key cell at most `radius` rows and columns away, else −∞: B N N."""
    with full_precision(query):
        similarity = query.float().flatten(2).mT @ key.float().flatten(2)
    cells = torch.arange(similarity.shape[1], device=query.device)
    return similarity.masked_fill_(_distance(cells[:, None], cells, query.shape[3]) > radius, -torch.inf)


def carry(affinity: Tensor, values: Tensor, top: int, temperature: float) -> Tensor:
    """Softmax-weighted mean of the key frame's values (B C h w) at the `top` most similar cells: B C h w.

    Several key frames stand one below the other in the values, and one after the other in the affinity.

    >>> query = torch.eye(3).view(1, 3, 1, 3)
    >>> key = query.roll(1, 3)  # everything moved one cell to the right
    >>> carry(affinity(query, key, 2), torch.tensor([7.0, 8.0, 9.0]).view(1, 1, 1, 3), 1, 0.1).tolist()
    [[[[8.0, 9.0, 7.0]]]]
    """
    best, where = affinity.topk(min(top, affinity.shape[2]), 2)
    weights = (best / temperature).softmax(2)
    cells = where.flatten(1)[:, None].expand(-1, values.shape[1], -1)
    best_values = values.flatten(2).gather(2, cells).unflatten(2, where.shape[1:])
    return (best_values * weights[:, None]).sum(3).unflatten(2, (-1, values.shape[3]))


def cycle_consistent(affinity: Tensor, grid: Tensor, within: int) -> Tensor:
    """True for query cells whose best match's best match is at most `within` cells away: B h w.

    Args:
        grid: Any tensor … h w of the cells.
    """
    there, back = affinity.argmax(2), affinity.argmax(1)
    end = back.gather(1, there)
    distance = _distance(end, torch.arange(end.shape[1], device=end.device), grid.shape[-1])
    return (distance <= within).unflatten(1, grid.shape[-2:])


def _distance(one: Tensor, other: Tensor, width: int) -> Tensor:
    """Distance of cells, given by their numbers, in rows or columns, the larger of both."""
    (row, column), (to_row, to_column) = ((n // width, n % width) for n in (one.int(), other.int()))
    return torch.maximum((row - to_row).abs_(), (column - to_column).abs_())


def to_cells(labels: Tensor, classes: int, cell: int) -> Tensor:
    """Share of each class in the cells (of cell × cell pixels) of a label map: B H W to B C h w.

    Ignored pixels have no share, so the shares of a cell may sum to less than 1.
    """
    members = labels[:, None] == torch.arange(classes, device=labels.device)[:, None, None]
    return F.avg_pool2d(members.float(), cell, ceil_mode=True)


def from_cells(x: Tensor, cell: int, size: tuple[int, ...]) -> Tensor:
    """Interpolate the values of cells, B C h w, to pixels, B C H W."""
    covered = [side * cell for side in x.shape[-2:]]
    return F.interpolate(x, covered, mode="bilinear", align_corners=False)[..., : size[0], : size[1]]


def join(belief: Tensor, carried: Tensor) -> Tensor:
    """Combine probabilities p (B C H W) with carried labels a · q by Bayes' rule: p · (a q + (1 − a Σq) / C).

    A carried label is right with probability a, and carries no information otherwise.

    >>> belief, carried = (torch.tensor(x).view(1, 2, 1, 1) for x in ([0.6, 0.4], [0.8, 0.0]))
    >>> round(join(belief, carried)[0, 0].item(), 3)
    0.931
    """
    likelihood = carried + (1 - carried.sum(1, keepdim=True)) / carried.shape[1]
    joint = belief * likelihood
    return joint / joint.sum(1, keepdim=True).clamp(min=1e-12)
