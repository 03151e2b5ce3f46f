"""`suture doctor`."""

from typing import Annotated

import typer

from suture.cli import terminal


def doctor(json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Show what this machine offers: device, memory, disk, downloads of weights, versions."""
    with terminal.waiting():
        from suture.training.environment import machine

        facts = machine()
    if json:
        terminal.out.print_json(data=facts)
        return
    for name, value in facts.items():
        terminal.print_line(terminal.out, f"{name:<28}{value}")
