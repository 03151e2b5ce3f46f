"""Settings as they are said one by one, `data.size=256`: read without torch, which the command line waits for last."""

from collections.abc import Sequence
from typing import Any

import yaml

from suture.core.errors import UserError
from suture.core.io import parse_yaml


def set_value(said: dict[str, Any], override: str, origin: str) -> None:
    """Put the value of an override `a.b=c` (YAML) into its place; messages name its origin.

    >>> said = {"seed": 0}
    >>> set_value(said, "data.size=[256, 320]", "the command line")
    >>> said
    {'seed': 0, 'data': {'size': [256, 320]}}
    """
    key, equals, value = override.partition("=")
    if not equals or not all(key.split(".")):
        raise UserError(f"{origin}: found {override!r}, expected KEY=VALUE such as data.size=256.")
    *sections, last = key.split(".")
    for section in sections:
        if said.get(section) is None:
            said[section] = {}
        elif isinstance(said[section], str) and section == "method":
            said[section] = {"name": said[section]}
        said = said[section]
        if not isinstance(said, dict):
            raise UserError(f"{origin}: found {override!r}, but {section} is a value, not a section.")
    try:
        parsed = parse_yaml(value)
    except (yaml.YAMLError, ValueError) as error:  # or what looks like a date and is none
        raise UserError(f"{origin}: found {override[:80]!r}, whose value is not valid YAML.") from error
    if key == "method" and isinstance(parsed, str) and isinstance(said.get("method"), dict):
        said["method"]["name"] = parsed  # naming a method takes nothing back of what was set for it before
    else:
        said[last] = parsed


def validate_scoring_overrides(overrides: Sequence[str], origin: str) -> None:
    """Settings that a finished run was trained with cannot be changed any more."""
    for override in overrides:
        if override.split(".")[0] not in ("compute", "evaluation"):
            raise UserError(
                f"{origin}: found {override!r}, but only compute and evaluation can be changed on a finished run."
            )
