"""torch.compile, block by block.

Most of the speed gained by compiling comes from inside the blocks of a network, where batch norm, activation and sum
become one kernel. Block by block, compiling takes a fraction of the time, because equal blocks are compiled once.
"""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
MAX_VARIANTS = 64
"""Largest number of shapes and settings of blocks of one kind; torch's default is 8."""


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Parts inside containers, and containers of plain layers.

    >>> row = lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
    >>> len(list(blocks(nn.ModuleDict({"encoder": nn.Sequential(row(), row()), "head": row()}))))
    3
    """
    for part in module.children():
        inside = list(part.children())
        if not inside:
            continue
        plain = isinstance(part, nn.Sequential) and not any(list(layer.children()) for layer in inside)
        if plain or (isinstance(module, CONTAINERS) and not isinstance(part, CONTAINERS)):
            yield part
        else:
            yield from blocks(part)


def can_compile() -> bool:
    """Check for Triton and for the C compiler that it calls."""
    return bool(find_spec("triton") and (os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang", "cc")))))


Compiler = Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]


def compile_blocks(module: nn.Module, strict: bool = True, backend: str = "inductor") -> None:
    """Compile every block on its first call, for constant shapes.

    Args:
        strict: Raise errors of the compiler; otherwise such a block runs uncompiled, with a warning.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MAX_VARIANTS)
    # One compiler object for all blocks, so that they share compiled code.
    compiler = backend if strict else _or_uncompiled(torch._dynamo.lookup_backend(backend))
    for block in blocks(module):
        block.compile(dynamic=False, backend=compiler)


def _or_uncompiled(compiler: Compiler) -> Compiler:
    def compile_or_not(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        try:
            return compiler(graph, inputs)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            warnings.warn(
                f"The networks cannot be compiled on this machine ({reason}) and run uncompiled, which is slower. "
                "Set compute.compile=false to skip compiling.",
                stacklevel=2,
            )
            return graph.forward

    return compile_or_not


def forget_compiled(module: nn.Module) -> None:
    """Call every block uncompiled again."""
    for block in blocks(module):
        block._compiled_call_impl = None
