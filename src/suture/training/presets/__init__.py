"""The presets that come with Suture, a YAML file each; to name them imports nothing of weight."""

from importlib.resources import files


def presets() -> list[str]:
    """List the names of all presets."""
    names = (path.name for path in files(__name__).iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """Read the file of a preset."""
    return (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
