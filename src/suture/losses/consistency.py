"""Consistency loss of UA-MT (Yu et al., MICCAI 2019), where the teacher is certain."""

import torch
from torch import Tensor


def entropy(probabilities: Tensor) -> Tensor:
    """Entropy of every pixel in nats: B C H W to B H W.

    >>> entropy(torch.tensor([0.5, 0.5]).view(1, 2, 1, 1)).item()  # ln 2
    0.6931471824645996
    """
    return torch.special.entr(probabilities.float()).sum(1)


def certain_consistency(student: Tensor, teacher: Tensor, certain: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the certain pixels' squared differences (mean over classes), and the number of these pixels.

    Args:
        student: Probabilities, B C H W.
        teacher: Probabilities, B C H W.
        certain: B H W bool.

    >>> student, teacher = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.4]])
    >>> loss, pixels = certain_consistency(student[..., None, None], teacher[..., None, None], torch.ones(1, 1, 1) > 0)
    >>> round(loss.item(), 4), pixels.item()
    (0.16, 1)
    """
    difference = (student.float() - teacher.float()).square().mean(1)
    return difference.where(certain, 0.0).sum(), certain.sum()
