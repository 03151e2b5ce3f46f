"""Words for people."""

from suture.core.text import listed, number, time_left


def test_a_number_has_its_noun() -> None:
    assert [number(count, "frame") for count in (0, 1, 12345)] == ["0 frames", "1 frame", "12,345 frames"]
    assert number(2, "class", "classes") == "2 classes"


def test_names_are_listed() -> None:
    assert [listed(names) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert [listed("abcd", most) for most in (2, 3, 4)] == ["a, b and 2 more", "a, b, c and 1 more", "a, b, c and d"]
    assert listed([]) == ""


def test_the_time_left_is_what_remains_at_the_pace_so_far() -> None:
    assert time_left(60, 30, 40) == "0:01:20 left"
    assert time_left(10, 0, 0.5) == "0:00:05 left"  # nothing is done yet
