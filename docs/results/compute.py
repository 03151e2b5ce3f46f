"""What training a run of each method takes, in operations: `python docs/results/compute.py FOLDER`.

Minutes of runs that shared a GPU with others, in several sessions, cannot be compared; operations can. Each stage's
steps, its batch and the frames it gave pseudo labels are those that the first run of a method has recorded. What a
frame takes is what `benchmarks/supervised.py` and `benchmarks/contrast_stage.py` counted at 480×480 (beside the page
of speed), by the share of the pixels; a pass without gradients is that of a key. `strong` is supervised training; of
stitch the passes are counted (docs/method.md), with as many unlabelled as labelled frames.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from suture.data.sampling.keys import KeySettings

SPEED = Path(__file__).parents[1] / "performance"
COUNTED_AT = 480 * 480


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def stages(folder: Path) -> Iterator[tuple[str, float]]:
    """Each stage of a run, and its operations."""
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    method, size = config["method"], config["data"]["size"]
    training = {name: row["flops_per_frame"] for name, row in read(SPEED / "supervised.json")["rows"].items()}
    contrast = read(SPEED / "contrast_stage.json")["floor"]
    share = size**2 / COUNTED_AT
    for stage in sorted((folder / "stages").iterdir(), key=lambda stage: int(stage.name.split("-")[0])):
        name, done = stage.name.split("-")[1], read(stage / "done.json")
        match name:
            case "pseudo" | "labels":
                yield name, share * done["frames"] * contrast["key_flops"]
                continue
            case "contrast":
                keys = KeySettings(**method["contrast"]["keys"]).encoded
                frame = contrast["query_flops"] + keys * contrast["key_flops"]
            case "propagation":
                frame = training["pixpro"]
            case "train" if method["name"] == "stitch":
                correspondence = method["train"]["correspondence"]
                neighbours = correspondence.get("neighbours", 1) if method["train"]["propagate"] else 0
                frame = training["supervised"] * (2 * 3 + 1 + neighbours) / 3
            case _:
                frame = training.get(method["name"] if name == "train" else "supervised", training["supervised"])
        yield name, share * done["steps"] * done["batch"] * frame


def table(folder: Path) -> str:
    """A row for each method with runs, in the order of the plan."""
    plan = yaml.safe_load(folder.with_suffix(".yaml").read_text(encoding="utf-8"))
    found = {}
    for method in plan["methods"]:
        if runs := sorted((folder / "runs").glob(f"*__{method}__seed-*")):
            found[method] = list(stages(runs[0]))
    plain = sum(operations for _, operations in found["supervised"])
    rows = ["| Method | PFLOP of a run | supervised = 1 | its stages |", "| --- | ---: | ---: | --- |"]
    for method, parts in found.items():
        total = sum(operations for _, operations in parts)
        by_name: dict[str, float] = {}
        for name, operations in parts:
            by_name[name] = by_name.get(name, 0) + operations
        each = ", ".join(f"{name} {operations / plain:.2f}" for name, operations in by_name.items())
        rows.append(f"| {method} | {total / 1e15:.1f} | {total / plain:.1f} | {each} |")
    return "\n".join(rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    folder = options.parse_args().folder
    if not any((folder / "runs").glob("*__supervised__seed-*")):
        options.error(f"{folder} has no run of supervised, in whose operations the others are told")
    print(table(folder))


if __name__ == "__main__":
    main()
