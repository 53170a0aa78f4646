"""Distinguish runs whose user-defined strategy or aggregator changed its code in between, as in a notebook."""

from collections.abc import Callable, Iterator, Sequence

from odt_sim.persistence.run import Run


def code_settings(runs: Sequence[Run]) -> Callable[[Run], dict[str, str]]:
    """Return a function from a run to those digests of its code, such as `strategy.code`, that differ between runs.

    Digests are compared per class and version of Python, because other versions have other digests.

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
