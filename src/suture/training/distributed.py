"""Processes: the rank of this process, its device, and work that processes share."""

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from suture.core.errors import UserError
from suture.training.config import ComputeSettings

T = TypeVar("T")
MAX_WAIT = timedelta(hours=12)
"""Longest wait for other processes, such as for the first one to build the frame store."""


@dataclass(frozen=True)
class Processes:
    """This process among those that torchrun or SLURM started, or alone."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    device: torch.device

    @staticmethod
    def start(compute: ComputeSettings) -> "Processes":
        """Read rank and device from the environment, and connect to the other processes."""
        _take_over_slurm()
        rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        local_rank, local_world = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", world))
        device = _device(compute, local_rank)
        if world > 1 and not dist.is_initialized():
            if device.type == "cuda":
                torch.cuda.set_device(device)
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=MAX_WAIT)
            atexit.register(dist.destroy_process_group)
        return Processes(rank, world, local_rank, local_world, device)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all processes."""
        if self.world > 1:
            dist.barrier()

    def share(self, work: Callable[[], T]) -> T:
        """Run work on the first process and return its result to all; if it fails, all processes end.

        >>> processes.share(run.require_free_folder)  # doctest: +SKIP
        """
        result, failure = None, None
        if self.first:
            try:
                result = work()
            except Exception as error:
                failure = error
        has_failed, result = self.gather((failure is not None, result))[0]
        if has_failed:
            raise failure or SystemExit(2)  # the first process prints the reason
        return cast(T, result)

    def first_then_all(self, work: Callable[[], T]) -> T:
        """Run work on the first process, and then, with what it left on disk, on all others."""
        results: list[T] = []
        self.share(lambda: results.append(work()))
        return results[0] if results else work()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def largest(self, number: int) -> int:
        """Return the largest number of all processes, without waiting for a GPU."""
        if self.world == 1:
            return number
        largest = torch.tensor(number)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=_on_cpu())
        return int(largest)

    def precision(self, compute: ComputeSettings) -> str:
        """Floating-point precision of the training; resolves `auto`."""
        if compute.precision != "auto":
            return compute.precision
        return "bf16" if self.device.type == "cuda" and torch.cuda.is_bf16_supported() else "32"

    def autocast(self, compute: ComputeSettings) -> torch.dtype | None:
        """Type of mixed precision; None in full precision."""
        return {"32": None, "bf16": torch.bfloat16, "16": torch.float16}[self.precision(compute)]


@cache
def _on_cpu() -> Any:
    """Process group that communicates through the CPU."""
    return None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo", timeout=MAX_WAIT)


def _take_over_slurm() -> None:
    """Translate the variables of srun into those of torchrun."""
    step = os.environ
    if "RANK" in step or int(step.get("SLURM_STEP_NUM_TASKS", 1)) == 1:
        return
    from lightning.fabric.plugins.environments import SLURMEnvironment  # takes seconds to import

    world, nodes = int(step["SLURM_STEP_NUM_TASKS"]), int(step.get("SLURM_STEP_NUM_NODES", 1))
    if world % nodes:
        raise UserError(
            f"srun started {world} processes on {nodes} nodes: ask for as many on each (--ntasks-per-node)."
        )
    step |= {
        "MASTER_ADDR": step.get("MASTER_ADDR")
        or SLURMEnvironment.resolve_root_node_address(step["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": step.get("MASTER_PORT") or str(15000 + int(step["SLURM_JOB_ID"]) % 10000),
        "RANK": step["SLURM_PROCID"],
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": step["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(world // nodes),
        "GROUP_RANK": step["SLURM_NODEID"],
    }


def _device(compute: ComputeSettings, local_rank: int) -> torch.device:
    wanted = compute.accelerator
    if wanted in ("auto", "gpu") and torch.cuda.is_available():
        if local_rank >= (count := torch.cuda.device_count()):
            raise UserError(
                f"This node has started process {local_rank + 1}, but it sees {count} GPUs: start one process per GPU, "
                "and let every process see all GPUs of its node."
            )
        return torch.device("cuda", local_rank)
    if wanted == "gpu":
        raise UserError("compute.accelerator is gpu, but torch sees no GPU here: use auto or cpu.")
    if wanted == "mps" or (wanted == "auto" and torch.backends.mps.is_available()):
        return torch.device("mps")
    return torch.device("cpu")
