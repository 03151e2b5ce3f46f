"""Words for people."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text"}
"""What pydantic calls values, in plain words."""


def number(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> number(1, "video"), number(3000, "video"), number(2, "class", "classes")
    ('1 video', '3,000 videos', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


NAMED = 6
"""Classes, videos and the like that a sentence names of many."""


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Names in a row; of more than `most` the first ones, and how many are left.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], most=2)
    ('a', 'a, b and c', 'a, b and 2 more')
    """
    if most is not None and len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    *others, last = names or [""]
    return f"{', '.join(others)} and {last}" if others else last


def time_left(remaining: float, done: float, seconds: float) -> str:
    """How long what remains takes at the pace of what is done.

    >>> time_left(60, 30, 40)
    '0:01:20 left'
    """
    return f"{timedelta(seconds=round(remaining * seconds / max(done, 1)))} left"


def reason(mistake: Mapping[str, Any]) -> str:
    """What pydantic says against a value, in the words of who wrote YAML, not Python.

    >>> reason({"msg": "Value error, crop is too small"}), reason({"msg": "Input should be a valid tuple"})
    ('crop is too small', 'expected a list')
    >>> reason({"msg": "Input should be a valid integer, unable to parse string as an integer"})
    'expected a whole number'
    >>> reason({"msg": "Input should be greater than 0"})
    'expected a number greater than 0'
    >>> reason({"msg": "Input should be a valid dictionary or instance of _Data"}), reason({"msg": "Field required"})
    ('expected a mapping of keys to values', 'missing')
    """
    text = str(mistake["msg"]).removeprefix("Value error, ").removesuffix(" for <class 'pathlib.Path'>")
    text = re.sub(r"dictionary( or instance of \w+)?", "mapping of keys to values", text)
    text = text.replace("tuple", "list").replace("Tuple", "List").replace(" after validation", "")
    text = text.replace("Field required", "missing")
    text = re.sub("^Input should be (?=greater|less)", "expected a number ", text)
    text = re.sub("^Input (should (be|have)|is not) ", "expected ", text)
    text = re.sub("a valid (integer|number|boolean|string)(, .*)?$", lambda found: _KINDS[found[1]], text)
    return text.replace("a valid ", "a ")
