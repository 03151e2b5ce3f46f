"""Twice: pre-training and fine-tuning without a stage between them, the control of PGV-CL's contrast."""

from collections.abc import Iterator

from suture.core import settings
from suture.methods.method import Method
from suture.methods.stage import Stage, TrainingSettings
from suture.methods.supervised import OhemSettings, Supervised, finetune


class Twice(Method):
    """Pre-training, fine-tuning."""

    class Settings(settings.Settings):
        pretrain: TrainingSettings = TrainingSettings()
        finetune: OhemSettings = OhemSettings()

    def stages(self) -> Iterator[Stage]:
        yield Supervised("pretrain", self.settings.pretrain)
        yield finetune(self.settings.finetune)
