"""Generated video is read like the user's own: it passes the same checks as every source, as frames and as MP4."""

from pathlib import Path
from typing import ClassVar, Literal

from source_tester import SourceTester

from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic


class TestFrames(SourceTester):
    name = "folder"
    frames: ClassVar = {"case01a": 6, "case01b": 6, "case02": 6, "case03": 6}
    splits: ClassVar = {"train": {"case01a", "case01b"}, "val": {"case02"}, "test": {"case03"}}
    container: Literal["mp4", "png"] = "png"

    def make(self, root: Path) -> None:
        settings = SyntheticSettings(cases=3, frames=6, shots=1, width=64, height=64)
        write_synthetic(root, settings, container=self.container, progress=False)


class TestVideoFiles(TestFrames):
    container = "mp4"
