"""ModelDrafts: a run's predictions, its confidence, suggested frames and their drafts."""

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from suture.annotate.choose_frames import candidates, choose_frames, measure_by_model, shots_of_places
from suture.core.errors import UserError
from suture.core.io import read_json, write_json
from suture.data.dataset import Dataset, Video
from suture.data.labelling import Labelling, by_budget, frame_name, video_of
from suture.data.shots import find_shots
from suture.prediction.mask_files import read_written_mask, write_mask

if TYPE_CHECKING:
    from suture.prediction.predictor import Prediction, Predictor

MAX_CACHED_PREDICTIONS = 64


class ModelDrafts:
    """Predictions of runs on the dataset's frames. A draft is no label: it lies apart from the masks.

    Args:
        dataset: The dataset.
        runs: Folder of the runs.
        folder: Folder for drafts, confidence and suggestions.
    """

    def __init__(self, dataset: Dataset, runs: Path, folder: Path) -> None:
        self.dataset = dataset
        self.runs = runs
        self.folder = folder
        self.state: dict[str, Any] = {"running": False, "done": 0, "total": 0, "what": "", "error": ""}
        self._lock = threading.Lock()
        self._predictor: tuple[str, Predictor] | None = None
        self._predictions: OrderedDict[tuple[str, str, int], Prediction] = OrderedDict()

    def predict(self, run: str, video: Video, index: int) -> "Prediction":
        """Predict one frame; the first call loads PyTorch and the model."""
        with self._lock:
            key = run, video.id, index
            if key not in self._predictions:
                predictor = self._load(run)
                self._predictions[key] = predictor.predict(video.read(index), video.view)[0]
                while len(self._predictions) > MAX_CACHED_PREDICTIONS:
                    self._predictions.popitem(last=False)
            return self._predictions[key]

    def _load(self, run: str) -> "Predictor":
        from suture.prediction.predictor import Predictor  # imports torch

        if self._predictor is None or self._predictor[0] != run:
            predictor = Predictor(self.runs / run)
            if predictor.classes.names != self.dataset.classes.names:
                raise UserError(f"{run} was trained on other classes: choose a run of this dataset.")
            self._predictor = run, predictor
            self._predictions.clear()
        return self._predictor[1]

    def draft(self, video: Video, index: int) -> np.ndarray | None:
        """Return the draft of a frame as class ids; None without."""
        return read_written_mask(self._draft_path(video, index))

    def draft_frames(self, video: Video) -> list[int]:
        """Return the frames that have a draft."""
        start = frame_name(video.id, 0).rstrip("0")
        drafts = (path.stem for path in (self.folder / "drafts").glob("*.png"))
        return sorted(int(name.removeprefix(start)) for name in drafts if video_of(name) == video.id)

    def confidence(self, run: str, video: Video) -> list[tuple[int, float]]:
        """Return the measured confidence of a run by frame."""
        values = self._read("confidence").get(run, {}).get(video.id, {})
        return sorted((int(index), value) for index, value in values.items())

    def shots(self, video: Video) -> list[int]:
        """Return the first frames of the shots, if they were looked for."""
        return list(self._read("shots").get(video.id, []))

    def suggested(self, video: Video) -> list[int]:
        """Return the suggested frames that have no label yet."""
        frames = self._read("suggestions").get(video.id, [])
        return [index for index in frames if index not in video.masks and index not in video.excluded]

    def start(self, run: str | None, budget: int) -> None:
        """Look for frames to label next, in the background; with a run, make their drafts too."""
        if self.state["running"]:
            raise UserError("Suggestions are being made: wait for them.")
        self.state = {"running": True, "done": 0, "total": 0, "what": "Starting", "error": ""}
        threading.Thread(target=self._work, args=(run, budget), daemon=True).start()

    def _work(self, run: str | None, budget: int) -> None:
        try:
            suggested = self._suggest_by_run(run, budget) if run else self._suggest_by_shots(budget)
            write_json(self.folder / "suggestions.json", suggested.frames)
            self.state["what"] = f"{suggested.count} frames suggested"
        except (UserError, OSError, RuntimeError) as error:  # RuntimeError: the GPU is full
            self.state["error"] = str(error)
        finally:
            self.state["running"] = False

    def _suggest_by_shots(self, budget: int) -> Labelling:
        return by_budget(self._find_shots(self.dataset.videos), budget, self._labelled(self.dataset.videos))

    def _suggest_by_run(self, run: str, budget: int) -> Labelling:
        """Suggest frames of training videos as `suture select RUN` does; keep their confidence, write their drafts."""
        training = replace(self.dataset, videos=self.dataset.split("train"))
        shots, labelled = self._find_shots(training.videos), self._labelled(training.videos)
        others = candidates(training, budget)
        frames = Labelling({video.id: [*others[video.id], *labelled[video.id]] for video in training})
        self._begin("Measuring confidence", frames.count)
        with self._lock:
            facts = measure_by_model(self._load(run), training, frames, self._advance)
        confidence: dict[str, dict[int, float]] = {}
        for (name, index), uncertainty in zip(facts.places, facts.uncertainty.tolist(), strict=True):
            confidence.setdefault(name, {})[index] = round(1 - uncertainty, 4)
        write_json(self.folder / "confidence.json", self._read("confidence") | {run: confidence})
        chosen = choose_frames(facts, labelled, dict(shots_of_places(shots)), budget)
        self._begin("Writing drafts", len(chosen))
        for name, index in chosen:
            video = training[name]
            write_mask(self._draft_path(video, index), self.predict(run, video, index).mask, self.dataset.classes)
            self._advance(1)
        return Labelling({video.id: [index for name, index in chosen if name == video.id] for video in training})

    def _find_shots(self, videos: Sequence[Video]) -> dict[str, list[list[int]]]:
        """Return the usable frames of each shot, by video; a video's shots are looked for once."""
        starts = self._read("shots")
        missing = [video for video in videos if video.id not in starts]
        self._begin("Looking for shots", sum(len(video.usable) for video in missing))
        for video in missing:
            starts[video.id] = list(find_shots(video, progress=self._advance).starts)
        write_json(self.folder / "shots.json", starts)
        members = {}
        for video in videos:
            places = [bisect_left(video.usable, start) for start in (*starts[video.id], len(video))]
            members[video.id] = [video.usable[a:b] for a, b in pairwise(places) if a < b]
        return members

    @staticmethod
    def _labelled(videos: Sequence[Video]) -> Labelling:
        return Labelling({video.id: video.with_mask for video in videos})

    def _begin(self, what: str, total: int) -> None:
        self.state |= {"what": what, "done": 0, "total": total}

    def _advance(self, frames: int) -> None:
        self.state["done"] += frames

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.json"
        content: dict[str, Any] = read_json(path) if path.exists() else {}
        return content

    def _draft_path(self, video: Video, index: int) -> Path:
        return self.folder / "drafts" / f"{frame_name(video.id, index)}.png"
