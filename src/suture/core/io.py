"""Atomic files, folder locks, and readers of JSON and YAML that name the place of a mistake."""

import fcntl
import glob
import itertools
import json
import os
import platform
import re
import shutil
import uuid
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import yaml

try:
    from yaml import CSafeLoader as SafeLoader  # ten times as fast
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

from suture.core.errors import UserError
from suture.core.text import short

LOCK = ".lock"
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}(\.[^.]*)?")
MAX_NESTING = 50
"""Deepest nesting of YAML and JSON; Suture's own files nest six levels, and thousands would crash libyaml."""
MAX_TEXT_BYTES = 2**30
MAX_YAML_BYTES = 2**23
MAX_YAML_NODES = 2**20
"""Values in a YAML file, with those that aliases repeat."""
MAX_INTEGER = 2**63


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path, rename it to `path` on success, remove it on an error.

    >>> with replacing(Path("mask.png")) as temporary:  # doctest: +SKIP
    ...     cv2.imwrite(str(temporary), mask)
    """
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # a read-only disk keeps nothing anyway
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, temporary, str(temporary)):
            with suppress(AttributeError):  # read-only in PyAV's errors
                error.filename = str(path)  # users know the final name only
        raise


@contextmanager
def filling(folder: Path, last: str = "") -> Iterator[Path]:
    """Fill a folder in one step: yield a hidden folder, and move its files into `folder` on success.

    The file `last` is moved last. Leftovers of killed processes are removed.
    """
    remove_leftovers_of(folder)
    temporary = _temporary(folder.absolute())
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if not folder.exists():
            os.replace(temporary, folder)
        else:
            files = (path for path in temporary.rglob("*") if path.is_file())
            for file in sorted(files, key=lambda file: file.name == last):
                target = folder / file.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """A hidden name beside a path, with this process's number in it."""
    # The suffix stays last, because image and video writers choose the format by it.
    return path.with_name(f".{path.stem}.{os.getpid():08x}{uuid.uuid4().hex[:4]}{path.suffix}")


def remove_leftovers_of(path: Path) -> None:
    """Remove the temporary files and folders that killed processes of this machine have left for a path."""
    for place in path.absolute().parent.glob(f".{glob.escape(path.stem)}.*{glob.escape(path.suffix)}"):
        made_by = re.fullmatch(r"([0-9a-f]{8})[0-9a-f]{4}", place.name[len(path.stem) + 2 :].removesuffix(path.suffix))
        if made_by and not _is_running(int(made_by[1], 16)):
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        pass
    return True


@contextmanager
def locked(path: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold a file lock; call `waiting` before blocking on another process. A killed process releases it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this process alone; if it is in use, raise and remove folders made for it."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        if not _try_lock(file):
            raise _in_use(folder, file)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            with suppress(OSError):  # in use by the next process, or NFS keeps the file
                if [path.name for path in folder.iterdir()] == [LOCK]:  # nothing was written
                    (folder / LOCK).unlink()
                    for place in made:
                        place.rmdir()


def require_unlocked(folder: Path) -> None:
    """Raise if another process holds the lock of a folder, without taking the lock."""
    with suppress(FileNotFoundError), (folder / LOCK).open() as file:
        if not _try_lock(file, fcntl.LOCK_SH):
            raise _in_use(folder, file)


def _in_use(folder: Path, file: IO[str]) -> UserError:
    file.seek(0)
    holder = file.read().strip() or "another process"
    return UserError(f"{folder} is in use by {holder}: wait for it, or choose another folder.")


def _try_lock(file: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    """Try to lock a file; return False if another process holds it."""
    try:
        # Not flock: data loader processes would inherit it and hold it after their parent was killed.
        fcntl.lockf(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def suffix_of(path: str | Path) -> str:
    """Lower-case suffix of a path.

    >>> suffix_of("CARD.MD")
    '.md'
    """
    return os.path.splitext(path)[1].lower()


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes below a folder that is locked by this process."""
    for path in folder.rglob(".*"):
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file atomically and durably: after a power cut it holds the old or the new content."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write sorted and indented JSON as `write_text` does."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def require_regular_file(path: Path) -> None:
    """Raise if a path is a folder, or a pipe or device, which would be waited for without end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file: replace it by one, or correct the path.")


def read_text(path: Path, expected: str = "a text file", max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Read a text file in UTF-8, with or without a byte order mark.

    Raises:
        UserError: The file cannot be read, is too large or has another encoding; says what was `expected`.
    """
    require_regular_file(path)
    try:
        if path.stat().st_size > max_bytes:
            raise OSError(f"more than {max_bytes // 2**20} MB")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): expected {expected} in UTF-8.") from error


def read_json(path: Path) -> Any:
    """Read a JSON file as `parse_json` does."""
    return parse_json(read_text(path, "a JSON file"), str(path))


def parse_json(content: str | bytes, where: str) -> Any:
    """Parse JSON; `where` is its place for messages.

    Raises:
        UserError: It is no JSON, or holds what no file of Suture does: deep nesting, huge numbers, half characters.
    """
    try:
        value = json.loads(content)
        _validate_values(value)
        if "\\u" in content if isinstance(content, str) else b"\\u" in content:  # perhaps half of a character
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where} is not valid JSON ({error}): it is damaged or cut off; put back a whole copy, or make it again."
        ) from error
    return value


def _validate_values(value: Any) -> None:
    """Raise `ValueError` on deep nesting, and on numbers that no array holds."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        if any(type(one) is int and abs(one) >= MAX_INTEGER for one in level):
            raise ValueError("a number of more than 64 bits")
        parts = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        if not parts:
            return
        level = list(itertools.chain.from_iterable(parts))
    raise ValueError(f"lists or mappings are nested more than {MAX_NESTING} deep")


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises:
        UserError: The file cannot be read or parsed, or holds no mapping; names line and column.
    """
    text = read_text(path, "a YAML file", MAX_YAML_BYTES)
    try:
        value = parse_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path} is not valid YAML{place}: {_one_line(error)}.") from error
    except ValueError as error:  # such as an impossible date
        raise UserError(f"{path} holds a value that YAML cannot read ({error}): put quotes around it.") from error
    if not isinstance(value, dict):
        kind = "nothing" if value is None else f"a {type(value).__name__}"
        raise UserError(
            f"{path} holds {kind}, expected a mapping of keys to values: put back a whole copy, or write it again."
        )
    return value


def parse_yaml(text: str) -> Any:
    """Parse YAML safely; a repeated key, deep nesting, or aliases in a cycle or to too much is a `YAMLError`."""
    open_anchors: list[str | None] = []  # of the lists and mappings around the event; None without an anchor
    starts: list[int] = []
    nodes, sizes = 0, dict[str | None, int]()  # with what aliases repeat
    for event in yaml.parse(text, SafeLoader):
        problem = ""
        nodes += 1 + (sizes.get(event.anchor, 0) if isinstance(event, yaml.AliasEvent) else 0)
        if nodes > MAX_YAML_NODES:
            problem = f"more than {MAX_YAML_NODES:,} values, with those that aliases repeat"
        if isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append(event.anchor)
            starts.append(nodes)
            if len(open_anchors) > MAX_NESTING:  # before libyaml's composer overflows the stack
                problem = f"lists or mappings are nested more than {MAX_NESTING} deep"
        elif isinstance(event, yaml.CollectionEndEvent):
            sizes[open_anchors.pop()] = nodes - starts.pop()
        elif isinstance(event, yaml.AliasEvent) and event.anchor in open_anchors:
            problem = f"*{event.anchor} contains itself"
        if problem:
            raise yaml.composer.ComposerError(problem=problem, problem_mark=event.start_mark)
    value = yaml.load(text, _UniqueKeys)
    _validate_values(value)
    return value


class _UniqueKeys(SafeLoader):
    """Safe YAML loader that rejects repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {short(key.value)} occurs twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def validate_folder_path(out: Path) -> None:
    """Raise if an output folder is a file."""
    if os.path.lexists(out) and not os.path.isdir(out):
        raise UserError(f"The output {out} is a file, expected a folder: give another.")


def check_format(path: Path, number: object, expected: int) -> None:
    """Raise if the format number of a file is not the one that this version reads."""
    if number != expected:
        raise UserError(
            f"{path} has format {short(number)}, but this version of Suture reads {expected}: update Suture."
        )


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(getattr(error, "problem", None) or error).split())[:200]
