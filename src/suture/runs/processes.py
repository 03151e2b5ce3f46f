"""One process or many: who this one is among them, and which device it computes on."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import SLURMEnvironment

from suture.errors import UserError
from suture.runs.config import ComputeSettings

T = TypeVar("T")


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
        if SLURMEnvironment.detect() and "RANK" not in os.environ:
            slurm = SLURMEnvironment()
            os.environ |= {
                "RANK": str(slurm.global_rank()),
                "WORLD_SIZE": str(slurm.world_size()),
                "LOCAL_RANK": str(slurm.local_rank()),
                "LOCAL_WORLD_SIZE": os.environ.get("SLURM_NTASKS_PER_NODE", str(slurm.world_size())),
                "MASTER_ADDR": slurm.main_address,
                "MASTER_PORT": str(slurm.main_port),
            }
        world = int(os.environ.get("WORLD_SIZE", 1))
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        device = _device(compute, local_rank)
        if world > 1 and not dist.is_initialized():
            if device.type == "cuda":
                torch.cuda.set_device(device)
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return Processes(
            int(os.environ.get("RANK", 0)), world, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", world)), device
        )

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()

    def first_then_all(self, work: Callable[[], T]) -> T:
        """Let the first process do the work (which leaves something on disk), then the others."""
        if self.first:
            result = work()
            self.wait()
            return result
        self.wait()
        return work()

    def gather(self, value: Any) -> list[Any]:
        """The value of every process."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def trainer_options(self, compute: ComputeSettings) -> dict[str, Any]:
        """Lightning's Trainer options for these devices and this precision."""
        cuda = self.device.type == "cuda"
        precision = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}[self.precision(compute)]
        options: dict[str, Any] = {
            "accelerator": {"cuda": "gpu"}.get(self.device.type, self.device.type),
            "devices": self.local_world,
            "precision": precision,
            "benchmark": cuda,
        }
        if self.world > 1:
            options |= {"strategy": "ddp", "num_nodes": self.world // self.local_world, "sync_batchnorm": cuda}
        return options

    def precision(self, compute: ComputeSettings) -> str:
        """`auto` as what it means here."""
        if compute.precision != "auto":
            return compute.precision
        return "bf16" if self.device.type == "cuda" and torch.cuda.is_bf16_supported() else "32"

    def autocast(self, compute: ComputeSettings) -> torch.dtype | None:
        """What inference computes in; None is full precision."""
        return {"32": None, "bf16": torch.bfloat16, "16": torch.float16}[self.precision(compute)]


def _device(compute: ComputeSettings, local_rank: int) -> torch.device:
    wanted = compute.accelerator
    if wanted in ("auto", "gpu") and torch.cuda.is_available():
        return torch.device("cuda", local_rank)
    if wanted == "gpu":
        raise UserError("compute.accelerator is gpu, but torch sees no GPU here: use auto or cpu.")
    if wanted == "mps" or (wanted == "auto" and torch.backends.mps.is_available()):
        return torch.device("mps")
    return torch.device("cpu")
