from pathlib import Path

import pytest
from two_videos import write_videos


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_videos(tmp_path)
    return tmp_path
