"""Supervised training on the labelled frames: the baseline, and the first and last stage of the others."""

from collections.abc import Callable, Iterator

from torch import Tensor

from suture.data.augment import Patches, draw_view, render_images, render_labels
from suture.data.training import Epochs
from suture.losses.cross_entropy import cross_entropy
from suture.methods.method import Method, method
from suture.methods.stage import Part, Settings, Stage, Total, TrainingSettings

SupervisedLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Supervised(Stage):
    """Cross entropy (or another loss of logits and labels) on the labelled frames."""

    def __init__(self, name: str, settings: TrainingSettings, loss: SupervisedLoss = cross_entropy) -> None:
        super().__init__(name, settings)
        self.pixel_loss = loss

    def prepare(self) -> int:
        self.order = Epochs(self.job.frames.labelled, self.job.seed, self.name)
        return len(self.job.frames.labelled)

    def draw(self, part: Part) -> Patches:
        numbers = [self.order[part.step * self.settings.batch + place] for place in part.own]
        draws = [draw_view(self.rng(part.step, place), self.settings.augment) for place in part.own]
        return self.job.frames.collate(numbers, draws)

    def render(self, batch: Patches) -> tuple[Tensor, Tensor]:
        return render_images(batch, self.job.size), render_labels(batch, self.job.size)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Total:
        images, labels = batch
        return Total(*self.pixel_loss(self.segmenter(images), labels))


@method("supervised")
class SupervisedOnly(Method):
    """DeepLabV3 (or any other segmenter) on the labelled frames alone: the baseline.

    Its default is as many supervised steps as the other methods have in all their supervised stages together:
    otherwise a comparison flatters them.
    """

    class Settings(Settings):
        train: TrainingSettings = TrainingSettings(steps=2000)

    def stages(self) -> Iterator[Stage]:
        yield Supervised("train", self.settings.train)
