"""YAML files: a mapping, whole, and without a key that occurs twice. JSON files: whole. Folders that are shared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suture.core.errors import UserError
from suture.core.io import (
    LOCK,
    MAX_YAML_BYTES,
    filling,
    read_json,
    read_yaml,
    remove_leftovers_of,
    together_in,
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


HOLDS = """
import sys
from pathlib import Path
from suture.core.io import together_in
with together_in(Path(sys.argv[1]), {"model": sys.argv[2]}):
    print("in", flush=True)
    sys.stdin.read()
"""


def test_processes_share_a_folder_that_do_the_same_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "new/out"
    command = [sys.executable, "-c", HOLDS, str(folder), "a"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with (
            pytest.raises(UserError, match=r"out is in use by another process, with other settings \(model\): wait"),
            together_in(folder, {"model": "b"}),
        ):
            pass
        with together_in(folder, {"model": "a"}):
            pass
        assert (folder / LOCK).exists(), "the other one is still there"
        other.communicate()
    assert not (tmp_path / "new").exists()
    with together_in(folder, {"model": "b"}):
        assert (folder / LOCK).exists()
    assert not (tmp_path / "new").exists()


BREAKS_OFF = """
import fcntl, sys, time
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("in", flush=True)
time.sleep(1)
"""


def test_one_that_was_killed_before_it_said_what_it_does_is_no_hindrance(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BREAKS_OFF, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with together_in(tmp_path, {"model": "a"}):
            assert other.wait() == 0
            assert read_json(tmp_path / LOCK) == {"model": "a"}
    assert list(tmp_path.iterdir()) == []


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
