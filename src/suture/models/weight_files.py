"""Whether weights are a file's or the hub's: what settings have to know without torch, which takes seconds to load."""

from pathlib import Path

from suture.files import suffix_of

FILE_SUFFIXES = (".safetensors", ".pth", ".pt", ".ckpt", ".bin")


def is_file(weights: str | Path) -> bool:
    """Whether `weights` names a file rather than weights of the hub."""
    return isinstance(weights, Path) or "/" in weights or "\\" in weights or suffix_of(weights) in FILE_SUFFIXES
