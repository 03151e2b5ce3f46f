"""Files that no program of good will writes end in one short message, and none is waited for."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from suture.comparison.results import read_results
from suture.core.errors import UserError
from suture.core.io import read_json, read_yaml
from suture.data.dataset_file import read_exclusions
from suture.data.fingerprint import file_sha256
from suture.data.formats.archive import Archive
from suture.data.images import MaskFile
from suture.models.encoder_weights import read_tensors
from suture.models.model_files import fingerprint
from suture.prediction.journal import Journal
from suture.prediction.mask_files import read_written_mask
from suture.prediction.open_network import open_network, read_training_notes
from suture.training.run_folder import read_curve

READERS: dict[str, Callable[[Path], object]] = {
    "exclude.csv": read_exclusions,
    "mask.png": lambda path: MaskFile(path).read(by_color=False),
    "content.png": lambda path: MaskFile(path).content(),
    "hash.png": file_sha256,
    "model.onnx": open_network,
    "metrics.json": read_json,
    "dataset.yaml": read_yaml,
    "metrics.csv": read_curve,
    "weights.pt": read_tensors,
    "weights.safetensors": read_tensors,
    "weights.pth": fingerprint,
    "masks.zip": lambda path: Archive(path).names(),
    "results.csv": read_results,
    "previous.png": read_written_mask,
    "journal.jsonl": lambda path: Journal(path).read({}),
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match="is not a regular file"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("row", ["a," + "9" * 5000 + ",1", "a,1," + "9" * 4000, "9" * 5000])
def test_long_digits_in_a_list_are_shortened(row: str, tmp_path: Path) -> None:
    (tmp_path / "exclude.csv").write_text(f"video,first,last\n{row}\n")
    with pytest.raises(UserError, match="line 2") as error:
        read_exclusions(tmp_path / "exclude.csv")
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("notes", ["[]", "{", '{"view": 7}', '{"videos_by": []}', "[" * 5000])
def test_notes_of_weights_that_are_no_mapping(notes: str, tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors", {"trained_on": notes})
    with pytest.raises(UserError, match="model"):
        read_training_notes(tmp_path / "model.safetensors")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_weights_with_any_byte_changed_are_read_or_refused(tmp_path: Path) -> None:
    for legacy in (True, False):
        path = tmp_path / "weights.pt"
        torch.save({"a": torch.ones(2)}, path, _use_new_zipfile_serialization=not legacy)
        whole = path.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 300)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
            with suppress(UserError):
                read_tensors(path)
