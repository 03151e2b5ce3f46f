"""The tests' own browser gets its pipes whatever files the test process holds open."""

import os
import select
from contextlib import ExitStack

from browser import piped


def test_the_pipes_arrive_whatever_numbers_are_taken() -> None:
    with ExitStack() as held:
        for _ in range(20):
            with piped("sh", "-c", "cat <&3 >&4") as (_, send, receive):
                os.write(send, b"there")
                assert select.select([receive], [], [], 30)[0], "no answer"
                assert os.read(receive, 100) == b"there"
            taken = os.open(os.devnull, os.O_RDONLY)
            held.callback(os.close, taken)
