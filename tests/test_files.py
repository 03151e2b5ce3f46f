"""YAML files: a mapping, whole, and without a key that occurs twice. JSON files: whole."""

import os
from pathlib import Path

import pytest

from suture.errors import UserError
from suture.files import read_json, read_yaml, write_bytes


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
        ("a: " + "[" * 1000 + "]" * 1000, "line 1, column 53: more than 50 lists or mappings stand within each other"),
        ("a: " + "{a: " * 100_000 + "}" * 100_000, "more than 50 lists"),  # which ends a process that reads it
        ("\n".join(f"{' ' * depth}a:" for depth in range(1000)), "line 51, column 51: more than 50 lists"),
        ("data: &d\n  root: a\n  options: *d\n", r"line 3, column 12: \*d stands within itself"),
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
    with pytest.raises(UserError, match=r"a\.json is not valid JSON at line 1, column 10 .*: it is damaged or cut off"):
        read_json(path)


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
