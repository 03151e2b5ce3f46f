"""LabelJournal: every change of a label with its time and effort, and the rounds that follow from it."""

import json
import os
import statistics
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

How = Literal["paint", "draft", "carried", "empty", "remove", "train"]
"""Origin of a change; `train` marks the start of a training, which ends a round."""
Entry = Mapping[str, Any]


class LabelJournal:
    """A file with one JSON line per change; lines are only ever added."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.jsonl"
        self._lock = threading.Lock()

    def add(self, how: How, **facts: Any) -> None:
        """Add a line, durably."""
        line = json.dumps({"time": round(time.time(), 1), "how": how, **facts}, ensure_ascii=False)
        with self._lock:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{line}")  # a line that a crash cut off is not continued
                file.flush()
                os.fsync(file.fileno())

    def entries(self) -> list[Entry]:
        """Read all lines; one that a crash cut off is left out."""
        entries: list[Entry] = []
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    entries.append(json.loads(line))
                except ValueError:
                    continue
        return entries


def rounds(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Sum up the work of each round; a training ends a round.

    >>> frame = {"how": "paint", "video": "a", "index": 3, "seconds": 90, "pixels": 40}
    >>> rounds([frame, {"how": "train", "run": "r1"}, frame])[0]
    {'round': 1, 'run': 'r1', 'labels': 1, 'drafts': 0, 'minutes': 1.5, 'pixels': 40.0}
    """
    parts: list[list[Entry]] = [[]]
    for entry in entries:
        parts[-1].append(entry)
        if entry["how"] == "train":
            parts.append([])
    return [_round(number, part) for number, part in enumerate(parts, start=1) if part or number == len(parts)]


def _round(number: int, entries: Sequence[Entry]) -> dict[str, Any]:
    frames: dict[tuple[str, int], list[Entry]] = {}
    for entry in entries:
        if entry["how"] == "remove":
            frames.pop((entry["video"], entry["index"]), None)
        elif entry["how"] != "train":
            frames.setdefault((entry["video"], entry["index"]), []).append(entry)
    # Pixels of an accepted draft are no work; what is painted over them is.
    pixels = [sum(one["pixels"] for one in of_frame if one["how"] == "paint") for of_frame in frames.values()]
    return {
        "round": number,
        "run": next((entry["run"] for entry in entries if entry["how"] == "train"), None),
        "labels": len(frames),
        "drafts": sum(any(one["how"] == "draft" for one in of_frame) for of_frame in frames.values()),
        "minutes": round(sum(entry.get("seconds", 0) for entry in entries) / 60, 1),
        "pixels": float(statistics.median(pixels)) if pixels else None,
    }
