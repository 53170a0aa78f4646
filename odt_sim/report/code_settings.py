"""Tell runs of a user's strategy or aggregator apart whose code changed between them, as a cell of a notebook does."""

from collections.abc import Callable, Iterator, Sequence

from odt_sim.persistence.run import Run


def code_settings(runs: Sequence[Run]) -> Callable[[Run], dict[str, str]]:
    """Return a function of a run that returns the digests of its code, such as `strategy.code`, where they differ.

    Digests are compared within a class and a version of Python, of which each has digests of its own.

    Args:
        runs: The runs to compare.
    """
    found: dict[tuple[str, str, str], set[str]] = {}
    for run in runs:
        for kind, name, digest in _classes(run):
            found.setdefault((kind, name, run.code.get("python", "")), set()).add(digest)
    changed = {(kind, name) for (kind, name, _), digests in found.items() if len(digests) > 1}
    return lambda run: {f"{kind}.code": digest for kind, name, digest in _classes(run) if (kind, name) in changed}


def _classes(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the name and the digest of each class of the user."""
    names = {"strategy": run.name, "aggregator": (run.settings or {}).get("aggregator", "").partition(" ")[0]}
    for kind, name in names.items():
        if kind in run.code:
            yield kind, name, run.code[kind]
