"""The content of `environment.json`: software and device of one start of a run."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import suture

if TYPE_CHECKING:
    import torch

PACKAGES = (
    "torch",
    "torchvision",
    "lightning",
    "segmentation-models-pytorch",
    "timm",
    "numpy",
    "opencv-python-headless",
    "av",
)
RUNS_AT_A_TIME = "SUTURE_RUNS_AT_A_TIME"
"""Environment variable with the number of runs that share a device; `suture compare` sets it."""


def environment(device: "torch.device", precision: str) -> dict[str, Any]:
    """Return one entry of `environment.json`: versions, commit, device and precision."""
    import torch

    on_gpu = device.type == "cuda"
    return {
        "suture": suture.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": torch.cuda.get_device_name(device) if on_gpu else f"{device.type} ({platform.machine()})",
        "runs_at_a_time": int(sharing) if (sharing := os.environ.get(RUNS_AT_A_TIME)) else None,
        "threads": torch.get_num_threads(),
        "precision": precision,
    }


def commit() -> str | None:
    """Return the commit of the code, with `+` if files were changed; None if it is no checkout."""
    folder = Path(__file__).resolve().parent
    repository = folder.parents[2]
    stated = repository / "COMMIT"
    if stated.exists():  # written into copies without .git
        return stated.read_text().strip()
    try:
        top, sha = _git(folder, "rev-parse", "--show-toplevel", "HEAD").splitlines()
        if Path(top).resolve() != repository:  # installed inside another project's checkout
            return None
        return sha + ("+" if _git(folder, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
