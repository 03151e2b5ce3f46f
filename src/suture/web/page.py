"""Single-file HTML pages from Jinja2 templates in one style."""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def templates(package: str | None = None) -> Environment:
    """Return the Jinja2 environment with the shared templates and those in a package's folder `page`.

    Values are escaped, and a missing value is an error. A page begins with `{% extends "base.html" %}`.
    """
    shared = PackageLoader("suture.web", "")
    loader = ChoiceLoader([PackageLoader(package, "page"), shared]) if package else shared
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def render_page(template: str, package: str | None = None, *, scripts: Sequence[str] = (), **content: Any) -> str:
    """Render a template into one HTML file that needs nothing else and runs no script but its own.

    Args:
        template: File name of the template.
        package: Package whose folder `page` holds it; the shared templates by default.
        scripts: File names of the page's scripts, beside the template.
        content: Values of the template; `base.html` needs `title`.
    """
    environment = templates(package)
    names = ("first_paint.js", "theme.js", *scripts)
    sources = [Markup(environment.get_template(name).render()) for name in names]
    hashes = (b64encode(sha256(source.encode()).digest()).decode() for source in sources)
    content |= {"scripts": sources, "script_hashes": Markup(" ").join(Markup(f"'sha256-{one}'") for one in hashes)}
    return environment.get_template(template).render(content)
