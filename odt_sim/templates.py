"""Pages from the templates of odt_sim's packages."""

from base64 import b64encode
from typing import Any


def rendered(template: str, *packages: str, **values: Any) -> str:
    """Return a page; a value that the template names and that is not given is an error.

    Args:
        template: The template's file.
        *packages: The packages whose folders `templates` have it and what it includes.
        **values: What it shows.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package) for package in packages])
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    templates.filters["base64"] = lambda content: b64encode(content).decode()
    return str(templates.get_template(template).render(**values))
