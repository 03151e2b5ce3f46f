"""Batch norms folded into the weights of the convolutions before them, for faster inference."""

from collections import Counter
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from timm.layers import BatchNormAct2d, Conv2dSame
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from suture.models.convolutions import AtrousConv, DepthwiseConv

CONVOLUTIONS = (nn.Conv2d, Conv2dSame, AtrousConv, DepthwiseConv)
"""Types that use their weights unchanged; others may standardise them, which would undo a scale."""
NORMS = (nn.BatchNorm2d, BatchNormAct2d)


def fold_batch_norms(network: nn.Module, images: Tensor) -> None:
    """Fold every batch norm that alone reads the output of a convolution; values change by rounding only.

    Args:
        network: In eval mode; changed in place.
        images: Input for the pass that finds these pairs.

    >>> row = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    >>> fold_batch_norms(row, torch.zeros(1, 3, 9, 9))
    >>> [type(part).__name__ for part in row]
    ['Conv2d', 'Identity', 'ReLU']
    """
    for convolution, norm in _neighbours(deepcopy(network), images):
        parts: list[Any] = [network.get_submodule(name) for name in (convolution, norm)]
        network.set_submodule(convolution, fuse_conv_bn_eval(*parts))
        network.set_submodule(norm, getattr(parts[1], "act", nn.Identity()))  # timm's holds its activation


def _neighbours(network: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Names of convolutions and the batch norms that alone read their outputs."""
    calls: Counter[str] = Counter()
    results: dict[int, tuple[str, Tensor]] = {}
    pairs: list[tuple[str, str, int]] = []
    uses = _Uses()

    def note(name: str, _: nn.Module, __: Any, result: Tensor) -> None:
        calls[name] += 1
        results[id(result)] = name, result  # kept alive, so that its id stays unique
        uses.count[id(result)] = 0

    def pair(name: str, _: nn.Module, given: tuple[Tensor]) -> None:
        calls[name] += 1
        if id(given[0]) in results:
            pairs.append((results[id(given[0])][0], name, id(given[0])))

    for name, part in network.named_modules():
        if type(part) in CONVOLUTIONS:
            part.register_forward_hook(partial(note, name))
        elif type(part) in NORMS and part.running_mean is not None:
            part.register_forward_pre_hook(partial(pair, name))
    # On the meta device nothing is computed.
    with torch.no_grad(), uses:
        network.to("meta")(images.to("meta"))
    return [(first, then) for first, then, result in pairs if calls[first] == calls[then] == uses.count[result] == 1]


class _Uses(TorchDispatchMode):
    """Count the operations that read each tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[int] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace != "prim":  # these only query properties, such as the device
            self.count.update({id(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)})
        return function(*args, **kwargs or {})
