"""Text for people: counts, lists of names, times and explanations."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from reprlib import Repr
from typing import Any


def number(count: int, noun: str, plural: str | None = None) -> str:
    """Write a count with its noun.

    >>> number(1, "video"), number(3000, "video"), number(2, "class", "classes")
    ('1 video', '3,000 videos', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def short(value: object) -> str:
    """Represent a value as `repr` does, without what is too long or too deep for a message.

    >>> short([1, "a"]), len(short("a" * 5000)), short([[[[[1]]]]])
    ("[1, 'a']", 80, '[[[[[...]]]]]')
    """
    return _SHORT.repr(value)


_SHORT = Repr()
_SHORT.maxlevel = 4
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 10


NAMED = 6
"""Names shown in a sentence before the rest is counted."""


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Join names into a phrase; after `most` names the rest is counted.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], most=2)
    ('a', 'a, b and c', 'a, b and 2 more')
    """
    if most is not None and len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    *others, last = names or [""]
    return f"{', '.join(others)} and {last}" if others else last


def time_left(remaining: float, done: float, seconds: float) -> str:
    """Estimate the time left from the pace so far.

    >>> time_left(60, 30, 40)
    '0:01:20 left'
    """
    return f"{timedelta(seconds=round(remaining * seconds / max(done, 1)))} left"


def reason(mistake: Mapping[str, Any]) -> str:
    """Return the message of one of pydantic's errors, as the second half of a sentence.

    Args:
        mistake: An entry of `ValidationError.errors()`.

    >>> reason({"type": "greater_than", "msg": "Input should be greater than 0"})
    'input should be greater than 0'
    """
    if mistake["type"] == "value_error":
        return str(mistake["ctx"]["error"])
    message = str(mistake["msg"])
    return message[:1].lower() + message[1:]
