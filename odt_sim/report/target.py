"""How many rounds a run needed to reach a target."""

from collections.abc import Sequence

from odt_sim.metrics.fleet import HIGHER_IS_BETTER, Row


def rounds_to_target(rounds: Sequence[Row], metric: str, target: float) -> int | None:
    """Returns the first evaluated round whose mean over seen devices is at least as good as a target; None where none is.

    Args:
        rounds: Lines of `rounds.jsonl`, ascending.
        metric: A key of `HIGHER_IS_BETTER`; the rounds have its mean weighted by test examples.
        target: The value to reach.
    """
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    known = ((row["round"], row.get(metric)) for row in rounds)
    return next((round for round, value in known if value is not None and sign * value >= sign * target), None)
