"""Rooms import only rooms on lower floors, and no modules import each other in a circle."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"

# From bottom to top. Rooms on one floor do not import each other.
FLOORS = [
    {"core", "web"},
    {"losses", "models", "data"},
    {"methods", "evaluation", "checks"},
    {"training"},
    {"prediction"},
    {"deployment", "annotate", "reports"},
    {"comparison", "studio"},
    {"cli", "library"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def _name(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_name(file): file for file in SOURCE.glob("suture/**/*.py")}


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imports(module: str) -> Iterator[str]:
    """The modules of ours that a module imports anywhere in its text, inside functions too."""
    file = FILES[module]
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    # What only type checkers read imports nothing.
    unread = {id(node) for block in ast.walk(tree) if _for_types(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            # `from suture.data import store` imports a module, `from suture.data.store import Store` a thing in one.
            names = [full if (full := f"{origin}.{alias.name}") in FILES else origin for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "suture")


IMPORTS = {module: set(_imports(module)) for module in FILES}


def _room(module: str) -> str:
    """The room of a module; empty for the package itself and for `__main__`, which stand on no floor."""
    room = module.split(".")[1] if "." in module else ""
    return "" if room == "__main__" else room


@pytest.mark.parametrize("module", sorted(FILES))
def test_house_order(module: str) -> None:
    room = _room(module)
    if not room:
        return
    assert room in FLOOR_OF, f"{room} has no floor yet: give it its place in FLOORS"
    elsewhere = [name for name in IMPORTS[module] if _room(name) not in {"", room}]
    upwards = sorted(name for name in elsewhere if FLOOR_OF[_room(name)] >= FLOOR_OF[room])
    assert not upwards, f"{module} does not stand above {', '.join(upwards)}"


def test_every_room_of_the_list_exists() -> None:
    assert set(FLOOR_OF) == {_room(module) for module in FILES} - {""}


def test_no_circles() -> None:
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' → '.join(reversed(error.args[1]))}")


def test_every_import_of_ours_exists() -> None:
    missing = {(module, name) for module, names in IMPORTS.items() for name in names if name not in FILES}
    assert not missing
