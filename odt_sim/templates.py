"""Rendering of pages from the templates of odt_sim's packages."""

from base64 import b64encode
from typing import Any


def rendered(template: str, *packages: str, **values: Any) -> str:
    """Return a page; a missing value of the template is an error.

    Args:
        template: The template's file name.
        *packages: The packages whose `templates` folders contain the template and its includes.
        **values: The values that the template shows.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package) for package in packages])
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    templates.filters["base64"] = lambda content: b64encode(content).decode()
    templates.filters["unbroken"] = lambda text: text.replace(" %", "\u00a0%")  # no line begins with a percent sign
    return str(templates.get_template(template).render(**values))
