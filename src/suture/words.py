"""Words for people."""


def number(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> number(1, "video"), number(3000, "video"), number(2, "class", "classes")
    ('1 video', '3,000 videos', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
