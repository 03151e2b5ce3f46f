"""Dynamic weights of DMT (Feng et al., 2022): trust of a model in the other model's pseudo labels."""

import torch
from torch import Tensor


@torch.no_grad()
def dynamic_weights(
    logits: Tensor, labels: Tensor, confidence: Tensor, agreed: float, disputed: float, ignore: int = 255
) -> Tensor:
    """Weight of every pixel's pseudo label, B H W, without gradient.

    With p the model's probability of the pseudo label: p^agreed where the model predicts the same class; 0 where it
    predicts another one with more confidence than the label has; otherwise p^disputed.

    Args:
        logits: B C H W.
        labels: B H W, any integer type.
        confidence: B H W, 0…1.

    >>> logits = torch.tensor([0.8, 0.2]).log().view(1, 2, 1, 1).expand(1, 2, 1, 3)
    >>> dynamic_weights(logits, torch.tensor([[[0, 1, 1]]]), torch.tensor([[[0.9, 0.7, 0.9]]]), 2, 3)
    tensor([[[0.6400, 0.0000, 0.0080]]])
    """
    probabilities = logits.float().softmax(1)
    sure, chosen = probabilities.max(1)
    label = labels.long().masked_fill(labels == ignore, 0)  # ignored pixels have no loss
    p = probabilities.gather(1, label[:, None])[:, 0]
    weights = torch.where(chosen == label, p**agreed, p**disputed)
    return weights.masked_fill((chosen != label) & (sure > confidence), 0)
