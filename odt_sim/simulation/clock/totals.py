"""The costs of a run on the clock for its devices, over the fleet and by class: `summary.json` and `devices.jsonl`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.devices.federated import FederatedData
from odt_sim.fleet.availability import Trace
from odt_sim.fleet.conditions import Conditions, data_bytes
from odt_sim.metrics.fleet import gini
from odt_sim.persistence.timeline import Ledger
from odt_sim.simulation.clock.devices import together
from odt_sim.simulation.clock.work import LocalWork

SAMPLES = 500
"""The number of times, spread evenly over a run, at which availability is sampled: its share is then known to 2 %."""


def fleet_totals(
    ledger: Ledger, conditions: Conditions, data: FederatedData, seen: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the totals of the devices that may take part.

    Args:
        ledger: The run's costs for each device.
        conditions: The fleet's conditions.
        data: The devices' examples.
        seen: The ids of the devices that may take part.
    """
    held = data_bytes(data)[seen]
    fits = conditions.eligible(seen, held)
    reported = ledger.reported[seen]
    memory = conditions.costs.memory(held[fits])
    classes = conditions.population.of_device[seen]
    return {
        "participation_gini": gini(reported),
        "never_reached": int(np.count_nonzero(reported == 0)),
        "too_small": int(np.count_nonzero(~fits)),
        "peak_memory_bytes": int(memory.max()) if memory.size else None,
        "classes": {
            each.name: _totals(ledger, seen[classes == number], fits[classes == number])
            for number, each in enumerate(conditions.population.classes)
            if np.any(classes == number)
        },
    }


def _totals(ledger: Ledger, ids: NDArray[np.int64], fits: NDArray[np.bool_]) -> Mapping[str, Any]:
    sums = {name: column[ids].sum().item() for name, column in vars(ledger).items()}
    never = int(np.count_nonzero(ledger.reported[ids] == 0))
    return {"devices": len(ids), "too_small": int(np.count_nonzero(~fits)), "never_reached": never, **sums}


def deployment_costs(conditions: Conditions, works: Mapping[int, LocalWork]) -> dict[int, dict[str, float]]:
    """Return the `deploy_seconds` and `deploy_joules` of devices for training and inference, by id.

    Args:
        conditions: The fleet's conditions.
        works: The work of each device, by id.
    """
    ids = np.array(list(works), np.int64)
    cost = conditions.costs.of(ids, together(list(works.values())), np.ones(len(ids), np.bool_))
    columns = zip(cost.compute_seconds.tolist(), cost.compute_joules.tolist(), strict=True)
    names = ("deploy_seconds", "deploy_joules")
    return {device: dict(zip(names, values, strict=True)) for device, values in zip(works, columns, strict=True)}


def available_share(conditions: Conditions, ids: NDArray[np.int64], seconds: float) -> NDArray[np.float64]:
    """Return the share of a run's simulated time in which each device was available, `[devices]`.

    Args:
        conditions: The fleet's conditions.
        ids: The devices, `[devices]`.
        seconds: The simulated length of the run.
    """
    availability = conditions.availability
    if isinstance(availability, Trace):
        seconds = min(seconds, availability.end)  # the last round may end after the trace
    times = (np.arange(SAMPLES) + 0.5) * seconds / SAMPLES
    counts = np.zeros(len(ids))
    for time in times.tolist():
        counts += availability.available(ids, time)
    return counts / SAMPLES
