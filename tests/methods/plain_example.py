"""The module `examples/pgvcl_plain.py`."""

import importlib.util
from pathlib import Path

_PATH = Path(__file__).parents[2] / "examples/pgvcl_plain.py"
_SPEC = importlib.util.spec_from_file_location("pgvcl_plain", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
plain = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(plain)
