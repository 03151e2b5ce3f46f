"""Words for people."""

from suture.words import number


def test_a_number_has_its_noun() -> None:
    assert [number(count, "frame") for count in (0, 1, 12345)] == ["0 frames", "1 frame", "12,345 frames"]
    assert number(2, "class", "classes") == "2 classes"
