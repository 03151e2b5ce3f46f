"""YAML files: a mapping, whole, and without a key that occurs twice. JSON files: whole. Folders that are shared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suture.core.errors import UserError
from suture.core.io import (
    MAX_YAML_BYTES,
    filling,
    read_json,
    read_yaml,
    remove_leftovers_of,
    write_bytes,
    write_text,
)


def test_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base: &base {a: 1}\nother: {<<: *base, b: [x, y]}\n")
    assert read_yaml(path) == {"base": {"a": 1}, "other": {"a": 1, "b": ["x", "y"]}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds nothing"),
        ("- a", "holds a list"),
        ("a: [1,", "line 2"),
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key 'a' occurs twice"),
        ("split: {train: [x], test: [y], train: [z]}", "'train' occurs twice"),
        ("name: 2024-31-12", "month must be in 1..12.*put quotes around it"),
        ("a: !!python/object:os.system {}", "not valid YAML"),
        ("a: " + "[" * 1000 + "]" * 1000, "line 1, column 53: lists or mappings are nested more than 50 deep"),
        (
            "a: " + "{a: " * 100_000 + "}" * 100_000,
            "lists or mappings are nested more than 50 deep",
        ),  # which ends a process that reads it
        (
            "\n".join(f"{' ' * depth}a:" for depth in range(1000)),
            "line 51, column 51: lists or mappings are nested more than 50 deep",
        ),
        ("a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 99}]\n" for n in range(1, 9)), "aliases repeat"),
        (f"a: {'9' * 5000}", "holds a value that YAML cannot read"),
        (f"a: 0x{'f' * 5000}", "a number of more than 64 bits"),
        ("data: &d\n  root: a\n  options: *d\n", r"line 3, column 12: \*d contains itself"),
    ],
)
def test_anything_else_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_yaml(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_json_file_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1, "b')
    with pytest.raises(UserError, match=r"a\.json is not valid JSON .*line 1 column 10.*: it is damaged or cut off"):
        read_json(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "not valid JSON"),
        (b"[" * 60 + b"]" * 60, "nested more than 50 deep"),
        (b"[" + b"9" * 5000 + b"]", "4300 digits"),
        (b"[1000000000000000000000000000000]", "more than 64 bits"),
        (b'["\\ud800"]', "surrogates"),
        (b'["\xff"]', "can't decode byte 0xff"),
    ],
)
def test_json_that_no_program_writes_is_one_message(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_json(tmp_path / "a.json")
    assert len(str(error.value)) < 400


def test_only_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate(MAX_YAML_BYTES + 1)
    with pytest.raises(UserError, match="more than 8 MB"):
        read_yaml(tmp_path / "a.yaml")


def test_what_took_hours_is_on_the_disk_before_it_takes_the_place_of_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync = tmp_path / "weights", os.fsync
    path.write_bytes(b"old")
    seen = []

    def look(file: int) -> None:
        sync(file)
        seen.append((path.read_bytes(), Path(f"/proc/self/fd/{file}").read_bytes()))

    monkeypatch.setattr(os, "fsync", look)
    write_bytes(path, b"new")
    assert seen == [(b"old", b"new")]
    assert path.read_bytes() == b"new"
    write_text(path, "newer")  # such as a run's config, without which it cannot go on
    assert seen[1:] == [(b"new", b"newer")]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    for process, kept in ((int(dead.stdout), False), (os.getpid(), True)):
        file, folder = (tmp_path / f".model.{process:08x}beef{suffix}" for suffix in (".onnx", ""))
        file.touch()
        folder.mkdir()
        (folder / "frame.png").touch()
        remove_leftovers_of(tmp_path / "model.onnx")
        remove_leftovers_of(tmp_path / "model")
        assert (file.exists(), folder.exists()) == (kept, kept)
    other = tmp_path / ".model.txt"
    other.touch()
    with filling(tmp_path / "model") as filled:
        (filled / "a").touch()
    assert (tmp_path / "model/a").exists()
    assert other.exists()
