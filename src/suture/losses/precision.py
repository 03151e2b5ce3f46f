"""Losses are computed in full precision, whatever the networks before them are computed in."""

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> torch.autocast:
    """Keep autocast away: a sum over thousands of pixels must not be rounded to the 8 bits of bf16."""
    return torch.autocast(tensor.device.type, enabled=False)
