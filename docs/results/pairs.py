"""How far one method is above another, pair by pair: `python docs/results/pairs.py FOLDER METHOD OTHER`.

A pair is two runs of one dataset, labelling and seed. For every score (of the sets, their classes and their videos) it
prints the mean difference in percent points with its 95 % interval (Student's t over the pairs, taken as independent;
of these runs on these videos, not of other videos), how many pairs are ahead, and the pairs: of each labelling, and of
all together.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scipy.stats import t

NAMES = {"val": "validation", "test": "new videos", "completion": "completion"}
OVERALL = {"miou": "mIoU", "miou_frames": "per frame", "nsd": "NSD"}


def scores(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Every score of a run with its name, in percent."""
    for which, found in metrics.items():
        rows = [(title, found["overall"].get(key)) for key, title in OVERALL.items()]
        rows += [(f"IoU of {name}", row["iou"]) for name, row in found["classes"].items()]
        rows += [(f"mIoU of {name}", row["miou"]) for name, row in found["videos"].items()]
        for name, value in rows:
            if value is not None:
                yield f"{NAMES[which]}, {name}", 100 * value


def told(apart: list[float]) -> str:
    """A mean with its interval, how many are ahead, and all of them."""
    mean, interval = statistics.mean(apart), " " * 16
    if len(apart) > 1:
        half = t.ppf(0.975, len(apart) - 1) * statistics.stdev(apart) / len(apart) ** 0.5
        interval = f"[{mean - half:+6.1f}, {mean + half:+6.1f}]"
    each = " ".join(f"{one:+.1f}" for one in apart)
    return f"{mean:+6.1f} {interval}  {sum(one > 0 for one in apart)} of {len(apart)}  ({each})"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("method")
    options.add_argument("other")
    said = options.parse_args()
    runs: dict[tuple[str, ...], dict[str, float]] = {}
    for file in sorted((said.folder / "runs").glob("*/metrics.json")):
        runs[tuple(file.parent.name.split("__"))] = dict(scores(json.loads(file.read_text(encoding="utf-8"))))
    apart: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (dataset, labelling, method, *rest), ours in runs.items():
        theirs = runs.get((dataset, labelling, said.other, *rest), {})
        if method == said.method:
            for name in ours.keys() & theirs.keys():
                for place in (labelling, "all"):
                    apart[name][place].append(ours[name] - theirs[name])
    if not apart:
        options.error(f"{said.folder} has no dataset, labelling and seed of both {said.method} and {said.other}")
    for name, found in sorted(apart.items()):
        print(f"{said.method} − {said.other}: {name}")
        for place, values in sorted(found.items(), key=lambda one: one[0] == "all"):
            print(f"  {place:10s} {told(values)}")


if __name__ == "__main__":
    main()
