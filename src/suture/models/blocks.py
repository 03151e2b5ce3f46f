"""torch.compile, block by block.

A network is a few kinds of blocks in a row. What compiling gains lies inside them, above all batch norm, activation and
sum as one kernel; block by block it takes a fraction of the time, since a block like one before is compiled already.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

_ROWS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_KINDS = 64
"""Shapes and settings in which blocks of one kind may come; torch would give up after eight."""


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The parts that stand in rows, and rows of plain layers.

    >>> row = lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
    >>> len(list(blocks(nn.ModuleDict({"encoder": nn.Sequential(row(), row()), "head": row()}))))
    3
    """
    for part in module.children():
        inside = list(part.children())
        if not inside:
            continue
        plain = isinstance(part, nn.Sequential) and not any(list(layer.children()) for layer in inside)
        if plain or (isinstance(module, _ROWS) and not isinstance(part, _ROWS)):
            yield part
        else:
            yield from blocks(part)


def can_compile() -> bool:
    """Whether this machine has what compiling for its GPU takes: Triton, and the C compiler that Triton calls."""
    return bool(find_spec("triton") and (os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang", "cc")))))


def compile_blocks(module: nn.Module, strict: bool = True, backend: str | Callable[..., Any] = "inductor") -> None:
    """Let every block be compiled when it is first called, for shapes that stay the same.

    Unless `strict`, blocks that cannot be compiled on this machine are called as they were written.
    """
    torch._dynamo.config.suppress_errors = not strict
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _KINDS)
    for block in blocks(module):
        block.compile(dynamic=False, backend=backend)


def forget_compiled(module: nn.Module) -> None:
    """Let every block be called as it was written again."""
    for block in blocks(module):
        block._compiled_call_impl = None
