"""Self-training: pre-training, pseudo labels, training on all frames with pseudo labels taken as true.

It is the simplest use of unlabelled frames. PGV-CL argues against it, because it learns the errors of pseudo labels.
"""

from collections.abc import Iterator

from suture.core.settings import Settings
from suture.methods.method import Method
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.methods.stage import Stage, TrainingSettings
from suture.methods.supervised import Supervised


class SelfTraining(Method):
    """Pre-training, pseudo labels, training on all frames."""

    class Settings(Settings):
        pretrain: TrainingSettings = TrainingSettings()
        pseudo: PseudoSettings = PseudoSettings()
        train: TrainingSettings = TrainingSettings()

    def stages(self) -> Iterator[Stage | PseudoLabels]:
        s = self.settings
        yield Supervised("pretrain", s.pretrain)
        yield PseudoLabels("pseudo", s.pseudo)
        yield Supervised("train", s.train, on="all")
