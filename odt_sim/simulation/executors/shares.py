"""The order and size of the shares into which a round's blocks are divided among processes or actors."""

from collections.abc import Sequence

FRACTION = 2 / 3
"""The fraction of the remaining blocks that are divided into one share for each worker; see `in_shares`."""

SORTED = 8
"""The number of last blocks per worker that begin in descending order of cost."""


def in_turn(costs: Sequence[float], last: int) -> list[int]:
    """Return the order in which to begin blocks: the last ones by descending cost, so that workers end together.

    Args:
        costs: The cost of each block, in any unit.
        last: The number of blocks to sort by cost; earlier blocks keep their order, in which results are added.
    """
    first = max(0, len(costs) - last)
    return [*range(first), *sorted(range(first, len(costs)), key=lambda number: -costs[number])]


def in_shares(costs: Sequence[float], devices: Sequence[int], workers: int, most_devices: int) -> list[list[int]]:
    """Divide blocks into shares that one worker runs at a time: large ones first, single blocks at the end.

    A fraction of the blocks is divided among the workers, then the same fraction of the others, and so on, so that
    workers end together although they differ in speed: factoring, by Hummel, Schonberg and Flynn 1992, Factoring: A
    Method for Scheduling Parallel Loops.

    Args:
        costs: The cost of each block, in any unit.
        devices: The number of devices in each block.
        workers: The number of workers.
        most_devices: The maximum number of devices in a share of several blocks.

    Returns:
        The numbers of the blocks of each share, in the order in which they begin.
    """
    shares, left = list[list[int]](), sum(costs)
    most = cost = 0.0  # of the current share
    held = 0
    for number in in_turn(costs, SORTED * workers):
        if not shares or cost + costs[number] > most or held + devices[number] > most_devices:
            left -= cost
            if len(shares) % workers == 0:
                most = FRACTION * left / workers
            shares.append([])
            cost, held = 0.0, 0
        shares[-1].append(number)
        cost += costs[number]
        held += devices[number]
    return shares
