"""The content of `environment.json`: software and device of one start of a run."""

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import suture
from suture.core.workers import cores
from suture.data.fingerprint import cache_folder

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


def machine() -> dict[str, str]:
    """Describe this machine for `suture doctor`."""
    import torch

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cache = cache_folder()
    existing = next(place for place in (cache, *cache.parents) if place.exists())
    return {
        "device": ", ".join(gpus) or f"cpu ({platform.machine()})",
        "cores": str(cores()),
        "memory": f"{memory / 2**30:.0f} GiB",
        "disk": f"{shutil.disk_usage(existing).free / 2**30:.0f} GiB free for the cache in {cache}",
        "weights": "can be downloaded" if _reaches_hub() else "cannot be downloaded: huggingface.co is not reached",
        "python": platform.python_version(),
        "suture": f"{suture.__version__} ({commit() or 'installed'})",
        **{name: _version(name) or "not installed" for name in PACKAGES},
    }


def _reaches_hub() -> bool:
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return False
    try:
        socket.create_connection(("huggingface.co", 443), timeout=3).close()
    except OSError:
        return False
    return True


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
