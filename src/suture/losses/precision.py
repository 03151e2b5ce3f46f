"""Full precision for losses."""

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> torch.autocast:
    """Disable autocast: bf16 has 8 bits, too few for a sum over thousands of pixels."""
    return torch.autocast(tensor.device.type, enabled=False)
