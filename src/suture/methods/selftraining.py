"""Self-training: pre-train, label the other frames, and take the pseudo labels for the truth.

The plainest use of unlabelled frames, and what PGV-CL argues against: errors of the pseudo labels are learnt.
"""

from collections.abc import Iterator

from suture.core.settings import Settings
from suture.methods.method import Method, method
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.methods.stage import Stage, TrainingSettings
from suture.methods.supervised import Supervised


@method("selftraining")
class SelfTraining(Method):
    """Pre-train, pseudo labels, go on with all frames alike."""

    class Settings(Settings):
        pretrain: TrainingSettings = TrainingSettings()
        pseudo: PseudoSettings = PseudoSettings()
        train: TrainingSettings = TrainingSettings()

    def stages(self) -> Iterator[Stage | PseudoLabels]:
        s = self.settings
        yield Supervised("pretrain", s.pretrain)
        yield PseudoLabels("pseudo", s.pseudo)
        yield Supervised("train", s.train, on="all")
