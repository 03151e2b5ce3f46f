"""torch.compile, block by block.

A network is a few kinds of blocks in a row. What compiling gains lies inside them, above all batch norm, activation and
sum as one kernel; block by block it takes a fraction of the time, since a block like one before is compiled already.
"""

import os
import shutil
import warnings
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


Compiler = Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]


def compile_blocks(module: nn.Module, strict: bool = True, backend: str = "inductor") -> None:
    """Let every block be compiled when it is first called, for shapes that stay the same.

    Unless `strict`, a block that cannot be compiled on this machine is computed as it was written.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _KINDS)
    # One compiler for all: a block takes over what was compiled for one like it by the same.
    compiler = backend if strict else _or_as_written(torch._dynamo.lookup_backend(backend))
    for block in blocks(module):
        block.compile(dynamic=False, backend=compiler)


def _or_as_written(compiler: Compiler) -> Compiler:
    def compile_or_not(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        try:
            return compiler(graph, inputs)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            warnings.warn(
                f"The networks cannot be compiled on this machine ({reason}): they are computed as written, which is "
                "slower; compute.compile=false does so from the start.",
                stacklevel=2,
            )
            return graph.forward

    return compile_or_not


def forget_compiled(module: nn.Module) -> None:
    """Let every block be called as it was written again."""
    for block in blocks(module):
        block._compiled_call_impl = None
