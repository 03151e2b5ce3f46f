"""Every example in a docstring gives what it says."""

import doctest
import importlib

import pytest
from test_architecture import FILES


@pytest.mark.parametrize("name", [name for name, file in FILES.items() if ">>> " in file.read_text(encoding="utf-8")])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
