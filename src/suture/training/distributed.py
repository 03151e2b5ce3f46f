"""One process or many: who this one is among them, and which device it computes on."""

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy

from suture.core.errors import UserError
from suture.training.callbacks import PlainCheckpoints
from suture.training.config import ComputeSettings
from suture.training.provenance import runs_at_a_time

T = TypeVar("T")
PATIENCE = timedelta(hours=12)
"""How long a process waits for the others before it gives up."""


def memory_limits(root: Path = Path("/")) -> list[int]:
    """The bytes that Linux's control groups, as containers and batch systems have them, allow this process.

    Without a limit, version 2 says `max` and version 1 a number larger than any memory.
    """
    said = root / "proc/self/cgroup"
    limits = []
    for line in said.read_text().splitlines() if said.exists() else []:
        _, kinds, group = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if kinds else "")
        name = "memory.limit_in_bytes" if kinds else "memory.max"
        # A container may see its own group as the top one, though by the name that it has outside.
        for folder in (place := Path(group.lstrip("/")), *place.parents):
            with suppress(OSError, ValueError):
                limits.append(int((top / folder / name).read_text()))
    return limits


@dataclass(frozen=True)
class Processes:
    """This process among those that torchrun or SLURM started; alone where nobody did."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    device: torch.device

    @staticmethod
    def start(compute: ComputeSettings) -> "Processes":
        """Find out who this process is, and meet the others."""
        _take_over_slurm()
        rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        local_rank, local_world = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", world))
        device = _device(compute, local_rank)
        if world > 1 and not dist.is_initialized():
            if device.type == "cuda":
                torch.cuda.set_device(device)
            # The others wait while the first one builds the frame store, which takes its time.
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
            atexit.register(dist.destroy_process_group)
        return Processes(rank, world, local_rank, local_world, device)

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def memory(self) -> int:
        """Bytes of memory where this process computes, in use or not."""
        if self.device.type == "cuda":
            return int(torch.cuda.get_device_properties(self.device).total_memory)
        return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *memory_limits()])

    @property
    def sharing(self) -> int:
        """How many processes share that memory: the runs of a comparison, and without a GPU each all its processes."""
        return (runs_at_a_time() or 1) * (1 if self.device.type == "cuda" else self.local_world)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()

    def first_only(self, work: Callable[[], T]) -> T:
        """Let the first process do the work, and give what it found to all; where it fails, the others end with it."""
        found: T | None = None
        failure: Exception | None = None
        if self.first:
            try:
                found = work()
            except Exception as error:
                failure = error
        failed, given = self.agreed((failure is not None, found))
        if failed:
            raise failure or SystemExit(2)  # the first one says what is wrong
        return cast(T, given)

    def first_then_all(self, work: Callable[[], T]) -> T:
        """Let the first process do the work (which leaves something on disk), then the others."""
        results: list[T] = []
        self.first_only(lambda: results.append(work()))
        return results[0] if results else work()

    def gather(self, value: Any) -> list[Any]:
        """The value of every process."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def largest(self, number: int) -> int:
        """Of all processes' numbers; no GPU is waited for."""
        if self.world == 1:
            return number
        found = torch.tensor(number)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=_on_cpu())
        return int(found)

    def agreed(self, value: T) -> T:
        """The first process's value: another node may see the run folder a moment later."""
        return self.gather(value)[0]

    def trainer_options(self, compute: ComputeSettings) -> dict[str, Any]:
        """Lightning's Trainer options for these devices and this precision."""
        cuda = self.device.type == "cuda"
        precision = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}[self.precision(compute)]
        options: dict[str, Any] = {
            "accelerator": {"cuda": "gpu"}.get(self.device.type, self.device.type),
            "devices": self.local_world,
            "precision": precision,
            "benchmark": cuda,
            # Who we are is settled already: Lightning shall neither look for a cluster nor requeue its jobs.
            "plugins": [TorchElasticEnvironment() if self.world > 1 else LightningEnvironment(), PlainCheckpoints()],
        }
        if self.world > 1:
            # With synchronised batch norm every process has the same buffers: sending those of the first one at every
            # step would be needless, and for a bank of many frames expensive.
            strategy = DDPStrategy(broadcast_buffers=not cuda)
            options |= {"strategy": strategy, "num_nodes": self.world // self.local_world, "sync_batchnorm": cuda}
        return options

    def precision(self, compute: ComputeSettings) -> str:
        """`auto` as what it means here."""
        if compute.precision != "auto":
            return compute.precision
        return "bf16" if self.device.type == "cuda" and torch.cuda.is_bf16_supported() else "32"

    def autocast(self, compute: ComputeSettings) -> torch.dtype | None:
        """What inference computes in; None is full precision."""
        return {"32": None, "bf16": torch.bfloat16, "16": torch.float16}[self.precision(compute)]


@cache
def _on_cpu() -> Any:
    """The group of all processes, as those that talk by way of their CPUs; made when all of them first do."""
    if dist.get_backend() == "gloo":
        return None
    try:
        return dist.new_group(backend="gloo", timeout=PATIENCE)
    except RuntimeError as error:
        raise UserError(
            f"The processes cannot meet through gloo ({error}): set GLOO_SOCKET_IFNAME to the network interface by "
            "which the nodes reach each other, such as eth0."
        ) from error


def _take_over_slurm() -> None:
    """Where srun started several processes, say so in the variables that torchrun sets."""
    step = os.environ
    if "RANK" in step or int(step.get("SLURM_STEP_NUM_TASKS", 1)) == 1:
        return
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
