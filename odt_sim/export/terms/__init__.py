"""Terms that strategies add to a model's training loss."""

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.utils import get_method

from odt_sim.errors import ExportError
from odt_sim.export.terms.shipped import (
    CONTRASTIVE,
    DISTILLATION,
    LOGIT_SHIFT,
    MEAN_EMBEDDING,
    NOT_TRUE_DISTILLATION,
    PROTOTYPES,
)
from odt_sim.export.terms.term import Term, own_term, term

__all__ = ["PROX", "TERMS", "Term", "term", "terms_of"]

TERMS: Mapping[str, Term] = {
    each.name: each
    for each in (CONTRASTIVE, DISTILLATION, LOGIT_SHIFT, MEAN_EMBEDDING, NOT_TRUE_DISTILLATION, PROTOTYPES)
}
"""The shipped terms by name; for most, this is also the name of the input with the term's factor."""

PROX = "prox"
"""The proximal term: the gradient offset `mu (w - w_ref)`, see `export_model(gradient_offset=True)`."""


def terms_of(given: Sequence[Any]) -> tuple[Term, ...]:
    """Return the terms of `export_model(terms=...)`, without `prox`.

    Args:
        given: Names of shipped terms, paths of functions such as `mine.distance`, or functions; see `term`.

    Raises:
        ExportError: A name is unknown, or a function declares no inputs.
    """
    terms = tuple(_term(each) for each in given if each != PROX)
    names = [each.name for each in terms]
    if len(set(names)) < len(names):
        raise ExportError(f"terms: expected different terms, found {', '.join(names)}")
    return terms


def _term(given: Any) -> Term:
    if isinstance(given, Term):
        return given
    if callable(given):
        return own_term(given)
    if given in TERMS:
        return TERMS[given]
    if "." not in str(given):
        raise ExportError(
            f"terms: unknown term {given!r}; expected {', '.join((*TERMS, PROX))}, or the path of a function such as "
            "mine.distance"
        )
    try:
        found = get_method(str(given))
    except Exception as error:  # user code may raise anything
        raise ExportError(
            f"terms: {given} cannot be imported ({type(error).__name__}: {error}); correct the path"
        ) from error
    return found if isinstance(found, Term) else own_term(found)
