"""Pseudo labels: predictions of the segmenter for every unlabelled training frame, with their confidence."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import torch
from numpy.lib.format import write_array_header_1_0
from pydantic import Field, PositiveFloat

from suture.core.errors import UserError
from suture.core.io import replacing, require_regular_file
from suture.core.settings import Settings
from suture.data.classes import IGNORE
from suture.data.dataset import Video
from suture.data.read_scenes import MaskSource, resize_into_frame
from suture.data.sampling.frames import TrainingFrames
from suture.methods.stage import StageContext
from suture.models.inference import predict_probabilities
from suture.models.segmenter import Segmenter

Progress = Callable[[int, int], None]
"""Called with frames done and frames in all."""


class PseudoSettings(Settings):
    """Settings of the prediction of pseudo labels."""

    batch: int = Field(16, ge=1)
    """Frames at a time."""
    flip: bool = False
    """Average the prediction of the frame and of its mirror image."""
    scales: tuple[PositiveFloat, ...] = Field((1.0,), min_length=1)
    """Sizes, as factors of the training size, whose predictions are averaged."""


class PseudoLabels:
    """A stage without training: one pass over the unlabelled frames.

    Each video has a file of labels and one of confidence, at training size, for memory mapping. Files appear when a
    video is finished, so a killed pass goes on with the next video. Several processes share the videos.
    """

    is_outcome: ClassVar[bool] = False
    """True if the labels are the outcome of the run: it scores them instead of a model."""

    def __init__(self, name: str, settings: PseudoSettings, *, start_from: str | None = None) -> None:
        self.name = name
        self.settings = settings
        self.start_from = start_from
        """Earlier stage whose segmenter predicts the labels; None is the stage before."""

    def folder(self, run: Path) -> Path:
        """Folder of the labels in a run folder; a method with several sets has one for each."""
        return run / "pseudo" if self.name == "pseudo" else run / "pseudo" / self.name

    def levels(self, sure: torch.Tensor) -> torch.Tensor:
        """Convert confidence, 0…1, to stored levels, 0…255."""
        return (sure * 255).round()

    def confidence(self, levels: np.ndarray) -> np.ndarray:
        """Convert stored levels to confidence."""
        return levels / 255

    def run(self, context: StageContext, progress: Progress = lambda done, total: None) -> None:
        """Label the frames in this process's share of the videos."""
        segmenter = context.segmenter.to(context.device).eval()
        total, done = len(context.frames.unlabelled), 0
        for place, (video, numbers) in enumerate(_by_video(context.frames).items()):
            finished = all(file.exists() for file in _files(self.folder(context.folder), video))
            # By the place among all videos: processes may disagree on which are finished.
            if place % context.world == context.rank and not finished:
                self._label(context, segmenter, video, numbers)
            done += len(numbers)
            progress(done, total)

    def _label(self, context: StageContext, segmenter: Segmenter, video: str, numbers: np.ndarray) -> None:
        labels_file, confidence_file = _files(self.folder(context.folder), video)
        with (
            replacing(labels_file) as a,
            replacing(confidence_file) as b,
            a.open("wb") as labels,
            b.open("wb") as confidence,
        ):
            # Written piece by piece: on a full disk this raises an error, where a memory map would crash.
            for batch in self.predict(context, segmenter, video, numbers):
                for file, part in zip((labels, confidence), batch, strict=True):
                    if not file.tell():
                        shape = (len(numbers), *part.shape[1:])
                        write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
                    file.write(part.tobytes())

    def predict(
        self, context: StageContext, segmenter: Segmenter, video: str, numbers: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels and stored confidence of the frames of a video in batches, each B H W, uint8."""
        inside = context.frames.pixels.inside(video).astype(np.uint8)
        inside = cv2.resize(inside, context.size[::-1], interpolation=cv2.INTER_NEAREST_EXACT).astype(bool)
        for start in range(0, len(numbers), self.settings.batch):
            part = numbers[start : start + self.settings.batch]
            frames = np.stack([context.frames.image(number) for number in part])
            probabilities = predict_probabilities(
                segmenter,
                torch.from_numpy(frames).to(context.device),
                context.size,
                flip=context.frames.classes.flip_order(self.settings.flip),
                scales=self.settings.scales,
                autocast=context.autocast,
            )
            sure, ids = probabilities.max(1)
            labels = np.where(inside, ids.byte().cpu().numpy(), np.uint8(IGNORE))
            yield labels, np.where(inside, self.levels(sure).byte().cpu().numpy(), np.uint8(0))

    def digest(self, context: StageContext) -> str:
        """Return the SHA-256 of all label files."""
        digest = hashlib.sha256()
        for video in _by_video(context.frames):
            for path in _files(self.folder(context.folder), video):
                require_regular_file(path)
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def load(self, context: StageContext) -> None:
        """Load the labels into the training frames."""
        load_pseudo_labels(self.folder(context.folder), context.frames)

    def masks(self, run: Path, frames: TrainingFrames) -> MaskSource:
        """Open the labels of a run folder as masks of whole frames."""
        load_pseudo_labels(self.folder(run), frames)
        numbers = {(frames.places[n][0].id, frames.places[n][1]): n for n in frames.unlabelled.tolist()}

        def masks(video: Video, indices: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
            for index in indices:
                yield index, resize_into_frame(frames.pseudo[numbers[video.id, index]], video)

        return masks


def load_pseudo_labels(folder: Path, frames: TrainingFrames) -> None:
    """Load pseudo labels and their confidence from a folder into training frames."""
    videos = _by_video(frames)
    files = [_files(folder, video) for video in videos]
    frames.pseudo = Mapped(list(videos.values()), [labels for labels, _ in files])
    frames.confidence = Mapped(list(videos.values()), [confidence for _, confidence in files])


class Mapped(Mapping[int, np.ndarray]):
    """Arrays by frame number, as windows into one memory-mapped file per video."""

    def __init__(self, numbers: Sequence[np.ndarray], files: Sequence[Path]) -> None:
        self.numbers = np.concatenate([np.zeros(0, np.int64), *numbers])
        self.firsts = np.cumsum([0, *map(len, numbers)])
        # Indexing a memmap object is slower than reading the pixels.
        self.files = [_map_file(file, len(of_video)) for file, of_video in zip(files, numbers, strict=True)]

    def __getitem__(self, number: int) -> np.ndarray:
        place = int(np.searchsorted(self.numbers, number))
        if place == len(self.numbers) or self.numbers[place] != number:
            raise KeyError(number)
        video = int(np.searchsorted(self.firsts, place, "right")) - 1
        return self.files[video][place - self.firsts[video]]

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers.tolist())

    def __len__(self) -> int:
        return len(self.numbers)


def _map_file(file: Path, frames: int) -> np.ndarray:
    require_regular_file(file)
    try:
        array = np.load(file, mmap_mode="r").view(np.ndarray)
    except (OSError, ValueError, EOFError, OverflowError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is damaged or cut off: remove it, so that its labels are made again.") from error
    if array.dtype != np.uint8 or array.ndim != 3 or len(array) != frames:
        raise UserError(f"{file} is not of the {frames} unlabelled frames: remove it, so that it is made again.")
    return array


def _by_video(frames: TrainingFrames) -> dict[str, np.ndarray]:
    """Numbers of the unlabelled frames of each video."""
    ends = np.searchsorted(frames.unlabelled, frames.places.firsts[1:-1])
    numbers = zip(frames.videos, np.split(frames.unlabelled, ends), strict=True)
    return {video.id: of_video for video, of_video in numbers if len(of_video)}


def _files(folder: Path, video: str) -> tuple[Path, Path]:
    name = video.replace("/", "__")
    return folder / f"{name}.labels.npy", folder / f"{name}.confidence.npy"
