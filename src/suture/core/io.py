"""Files that are whole or not there: written under a temporary name, then renamed."""

import fcntl
import json
import os
import platform
import re
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import yaml

try:
    from yaml import CSafeLoader as SafeLoader  # ten times as fast: a comparison reads the configs of all its runs
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

from suture.core.errors import UserError

LOCK = ".lock"
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}(\.[^.]*)?")
_DEEPEST = 50
"""Lists and mappings within each other; what Suture reads has six at most, and thousands would end the process."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` if the block succeeds, remove it if not.

    >>> with replacing(Path("mask.png")) as temporary:  # doctest: +SKIP
    ...     cv2.imwrite(str(temporary), mask)
    """
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last, because image and video writers choose the format by it.
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:12]}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # where nothing can be written, nothing is left
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, temporary, str(temporary)):
            with suppress(AttributeError):  # PyAV's errors keep theirs
                error.filename = str(path)  # what a message names: nobody knows the temporary file
        raise


@contextmanager
def locked(path: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold a lock that other processes wait for, and that a killed one leaves; `waiting` is called before a wait."""
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
    """Keep a second process off a folder; a killed one leaves no lock, a refused one no folder that it made."""
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
            with suppress(OSError):  # another has begun there, or NFS still holds the lock's file
                if [path.name for path in folder.iterdir()] == [LOCK]:  # nothing came of it
                    (folder / LOCK).unlink()
                    for place in made:
                        place.rmdir()


def require_unlocked(folder: Path) -> None:
    """Refuse a folder that another process is alone in; it says so sooner than `lock_folder`, and keeps nobody off."""
    with suppress(FileNotFoundError), (folder / LOCK).open() as file:
        if not _try_lock(file, fcntl.LOCK_SH):
            raise _in_use(folder, file)


def _in_use(folder: Path, file: IO[str]) -> UserError:
    file.seek(0)
    holder = file.read().strip() or "another process"
    return UserError(f"{folder} is in use by {holder}: wait for it, or choose another folder.")


@contextmanager
def together_in(folder: Path, doing: Mapping[str, Any]) -> Iterator[None]:
    """Share a folder with processes that do the same at this moment, and keep others off it; the last leaves no lock.

    `doing` is what has to be the same, as JSON has it.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    path = folder / LOCK
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as file:
            if _try_lock(file):  # nobody else is here
                file.truncate(0)
                json.dump(doing, file)
                file.flush()
            fcntl.lockf(file, fcntl.LOCK_SH)  # waits for one who is about to say what it does
            file.seek(0)
            said = file.read()
            if not said or not _is_at(file, path):  # it was killed before, or was the last to leave and has removed it
                continue
            theirs = json.loads(said)
            if changed := [key for key, value in doing.items() if theirs.get(key) != value]:
                raise UserError(
                    f"{folder} is in use by another process, with other settings ({', '.join(changed)}): wait for it, "
                    "or choose another folder."
                )
            try:
                yield
            finally:
                fcntl.lockf(file, fcntl.LOCK_UN)
                with suppress(OSError):
                    if _try_lock(file) and _is_at(file, path):  # the last one
                        path.unlink()
                        for place in made:  # where nothing came of it
                            place.rmdir()
            return


def _try_lock(file: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    """Lock a file if no other process has locked it."""
    try:
        # Not flock: loader processes would inherit it, and hold it for a while after their parent was killed.
        fcntl.lockf(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def suffix_of(path: str | Path) -> str:
    """The suffix by which a file's kind is told, in small letters: some systems write CARD.MD.

    >>> suffix_of("CARD.MD")
    '.md'
    """
    return os.path.splitext(path)[1].lower()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that killed processes left below a folder, where nobody else writes now."""
    for path in folder.rglob(".*"):
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write hours of work atomically: a power cut leaves the old or the new, and that whole."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_bytes` does: without its config a run cannot go on."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON as `write_text` does, sorted and indented so that it can be read and compared by people."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; one that does not parse is a `UserError` that names the place."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): check that it is a UTF-8 JSON file.") from error
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path} is not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}): it is damaged or "
            "cut off; put back a whole copy, or make it again."
        ) from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping; anything else is a `UserError` that names the place."""
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): check that it is a UTF-8 text file.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path} is not valid YAML{place}: {_one_line(error)}.") from error
    except ValueError as error:  # such as what looks like a date and is none
        raise UserError(f"{path} holds a value that YAML cannot read ({error}): put quotes around it.") from error
    if not isinstance(value, dict):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise UserError(
            f"{path} holds {found}, expected a mapping of keys to values: put back a whole copy, or write it again."
        )
    return value


def parse_yaml(text: str) -> Any:
    """What a YAML text says; a key that occurs twice, or endless nesting, is a `YAMLError` as any other mistake."""
    around: list[str | None] = []  # the anchors of the lists and mappings that it stands in; None where one has none
    for event in yaml.parse(text, SafeLoader):
        problem = ""
        if isinstance(event, yaml.CollectionStartEvent):
            around.append(event.anchor)
            if len(around) > _DEEPEST:  # told before anything is made of it: libyaml's composer overflows the stack
                problem = f"more than {_DEEPEST} lists or mappings stand within each other"
        elif isinstance(event, yaml.CollectionEndEvent):
            around.pop()
        elif isinstance(event, yaml.AliasEvent) and event.anchor in around:
            problem = f"*{event.anchor} stands within itself"
        if problem:
            raise yaml.composer.ComposerError(problem=problem, problem_mark=event.start_mark)
    return yaml.load(text, _UniqueKeys)


class _UniqueKeys(SafeLoader):
    """Safe YAML in which no key occurs twice: of two, one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value!r} occurs twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def validate_folder_path(out: Path) -> None:
    """Refuse a file where a folder is to be filled."""
    if os.path.lexists(out) and not os.path.isdir(out):
        raise UserError(f"The output {out} is a file, expected a folder: give another.")


def check_format(path: Path, found: object, newest: int) -> None:
    """Refuse a file of a newer format than this version reads; older ones are the caller's to read."""
    if not isinstance(found, int) or found < 1:
        raise UserError(f"{path} says format {found!r}, expected a whole number from 1 to {newest}.")
    if found > newest:
        raise UserError(f"{path} has format {found}, but this version of Suture reads up to {newest}: update Suture.")


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(getattr(error, "problem", None) or error).split())
