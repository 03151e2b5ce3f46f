"""Single-file HTML pages from Jinja2 templates in one style."""

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


@cache
def templates(package: str | None = None) -> Environment:
    """Return the Jinja2 environment with the shared templates and those in a package's folder `page`.

    Values are escaped, and a missing value is an error. A page begins with `{% extends "base.html" %}`.
    """
    shared = PackageLoader("suture.web", "")
    loader = ChoiceLoader([PackageLoader(package, "page"), shared]) if package else shared
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def render_page(template: str, package: str | None = None, **content: Any) -> str:
    """Render a template into one HTML file that needs nothing else.

    Args:
        template: File name of the template.
        package: Package whose folder `page` holds it; the shared templates by default.
        content: Values of the template; `base.html` needs `title`.
    """
    return templates(package).get_template(template).render(content)
