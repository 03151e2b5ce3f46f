"""Text for people: counts, lists of names, times and explanations."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from reprlib import Repr
from typing import Any

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_short": "text of at least {min_length} characters",
    "path_type": "a path",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys to values",
    "mapping_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "too_short": "{min_length} or more entries, not {actual_length}",
    "too_long": "{max_length} or fewer entries, not {actual_length}",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
    "none_required": "null",
}
"""Error types of pydantic in plain words; braces are filled from the error's context."""


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
    """Explain one of pydantic's errors in plain words, by its type and context.

    Args:
        mistake: An entry of `ValidationError.errors()`.

    Returns:
        The second half of a message, such as "expected a whole number".

    >>> reason({"type": "greater_than", "ctx": {"gt": 0}}), reason({"type": "missing"})
    ('expected a number greater than 0', 'missing')
    """
    kind, context = mistake["type"], mistake.get("ctx", {})
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind].format(**context)}"
    if kind == "value_error":
        return str(context["error"])
    return "missing" if kind == "missing" else str(mistake["msg"])
