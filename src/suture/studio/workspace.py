"""Workspace: one dataset with its labels, pictures, drafts and trainings, as the studio shows it."""

import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Video
from suture.data.datasets import load_dataset
from suture.methods import METHODS
from suture.studio.frame_pictures import FramePictures
from suture.studio.label_journal import How, LabelJournal, rounds
from suture.studio.label_store import STUDIO_FOLDER, LabelStore, name_classes
from suture.studio.model_drafts import ModelDrafts
from suture.studio.refine_selection import carry_mask
from suture.studio.training_jobs import TrainingJobs
from suture.training.presets import presets

MAX_SECONDS_PER_SAVE = 600.0
Layer = Literal["label", "draft", "carried", "prediction"]


class Workspace:
    """Everything that the studio shows and changes.

    Args:
        root: Folder of the dataset.
        runs: Folder of its runs.
        read_only: Only look.

    >>> workspace = Workspace(Path("videos"), Path("runs"))  # doctest: +SKIP
    """

    def __init__(self, root: Path, runs: Path, read_only: bool = False) -> None:
        if not root.is_dir():
            raise UserError(f"{root} is not a folder: give the folder that holds the videos.")
        self.root = root
        self.runs = runs
        self.read_only = read_only
        self.key = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
        """Name of the dataset in a browser's storage."""
        self.folder = root / STUDIO_FOLDER
        self.pictures = FramePictures()
        self.journal = LabelJournal(self.folder)
        self.trainings = TrainingJobs(root, runs, self.folder / "logs")
        self._writing = threading.Lock()
        self._open()

    def _open(self) -> None:
        self.dataset = load_dataset(self.root)
        self.labels = LabelStore(self.dataset)
        self.drafts = ModelDrafts(self.dataset, self.runs, self.folder)
        self._facts: dict[str, dict[str, Any]] = {}
        threading.Thread(target=self._measure_all, daemon=True).start()

    def _measure_all(self) -> None:
        for video in self.dataset:
            self._facts_of(video)

    def _facts_of(self, video: Video) -> dict[str, Any]:
        """Length and size of a video, which open its file."""
        if video.id not in self._facts:
            facts: dict[str, Any] = {"frames": 0, "width": 0, "height": 0, "fps": 0.0, "error": ""}
            try:
                (width, height), fps = video.size, video.file.fps if video.file else 0.0
                facts |= {"frames": len(video), "width": width, "height": height, "fps": fps}
            except UserError as error:
                facts["error"] = str(error)
            self._facts[video.id] = facts
        return self._facts[video.id]

    def overview(self) -> dict[str, Any]:
        """Describe dataset, classes and videos without opening a video file."""
        classes = self.dataset.classes
        return {
            "key": self.key,
            "name": self.dataset.name,
            "read_only": self.read_only,
            "problem": self.labels.problem,
            "needs_classes": len(classes) == 1 and not classes.values,
            "classes": [
                {"id": id, "name": name, "color": color}
                for id, (name, color) in enumerate(zip(classes.names, classes.colors, strict=True))
            ],
            "blank": self.labels.blank,
            "ground": self.labels.ground,
            "presets": presets(),
            "methods": list(METHODS),
            "videos": [self._entry(video) for video in self.dataset],
        }

    def _entry(self, video: Video) -> dict[str, Any]:
        return {
            "id": video.id,
            "case": video.case,
            "split": video.split,
            "labelled": len(video.masks),
            "excluded": len(video.excluded),
            "suggested": len(self.drafts.suggested(video)),
            **self._facts.get(video.id, {}),
        }

    def video(self, number: int) -> Video:
        """Return a video by its place in the list."""
        if not 0 <= number < len(self.dataset.videos):
            raise UserError(f"There is no video {number}: reload the page.")
        return self.dataset.videos[number]

    def frame(self, number: int, index: int) -> Video:
        """Return a video that has this frame."""
        video = self.video(number)
        if not 0 <= index < len(video):
            raise UserError(f"The video {video.id} has no frame {index}.")
        return video

    def timeline(self, number: int, run: str | None) -> dict[str, Any]:
        """Describe one video: its size, and which frames are labelled, excluded, suggested and unsure."""
        video = self.video(number)
        return {
            **self._entry(video),
            **self._facts_of(video),
            "labelled_frames": sorted(video.masks),
            "excluded_frames": sorted(video.excluded),
            "suggested_frames": self.drafts.suggested(video),
            "draft_frames": self.drafts.draft_frames(video),
            "shots": self.drafts.shots(video),
            "confidence": self.drafts.confidence(run, video) if run else [],
        }

    def mask(self, video: Video, index: int, layer: Layer, run: str | None) -> np.ndarray | None:
        """Return the class ids of one layer of a frame, or None."""
        if layer == "label":
            return self.labels.read(video, index)
        if layer == "draft":
            ids = self.drafts.draft(video, index)  # ignored outside the view, which a label need not be
            return None if ids is None else np.where(ids == IGNORE, np.uint8(self.labels.blank), ids)
        if layer == "carried":
            return self._carried(video, index)
        return self.drafts.predict(self.trainings.run(run or "").folder.name, video, index).mask

    def _carried(self, video: Video, index: int) -> np.ndarray | None:
        others = [one for one in video.masks if one != index]
        if not others:
            return None
        nearest = min(others, key=lambda one: (abs(one - index), one))
        ids = self.labels.read(video, nearest)
        return None if ids is None else carry_mask(video.read(nearest), ids, video.read(index))

    def save(self, video: Video, index: int, ids: np.ndarray, how: How, seconds: float) -> int:
        """Save a label; return the number of changed pixels."""
        with self._writing:
            pixels = self.labels.write(video, index, ids)
            seconds = round(min(max(seconds, 0.0), MAX_SECONDS_PER_SAVE), 1)
            self.journal.add(how, video=video.id, index=index, seconds=seconds, pixels=pixels)
        return pixels

    def remove(self, video: Video, index: int) -> None:
        """Make a frame unlabelled."""
        with self._writing:
            self.labels.remove(video, index)
            self.journal.add("remove", video=video.id, index=index)

    def exclude(self, video: Video, index: int, excluded: bool) -> None:
        """Exclude a frame, or take it back in."""
        with self._writing:
            self.labels.exclude(video, index, excluded)

    def name_classes(self, names: list[str]) -> None:
        """Name the classes of a new dataset, and open it again."""
        name_classes(self.root, names)
        self._open()

    def train(self, name: str, preset: str | None, method: str, settings: list[str]) -> None:
        """Start a training, which ends the round."""
        self.trainings.start(name, preset, method, settings)
        self.journal.add("train", run=name)

    def rounds(self) -> list[dict[str, Any]]:
        """Describe the rounds, with the scores of their runs."""
        described = rounds(self.journal.entries())
        for one in described:
            with suppress(UserError, KeyError):
                scores = self.trainings.run(one["run"]).metrics if one["run"] else {}
                one["scores"] = {split: values["primary"]["value"] for split, values in scores.items()}
        return described
