"""Python warnings about excluded devices, for runs without a display."""

import warnings
from collections.abc import Mapping

from odt_sim.observers.base import Observer
from odt_sim.persistence.records import RoundRecord, by_reason, is_failure


class ExclusionWarnings(Observer):
    """Observer that warns once for each reason why devices were left out of a round or not evaluated."""

    waits = True

    def __init__(self) -> None:
        """Start with no reasons warned about."""
        self._warned: set[str] = set()

    def on_round(self, record: RoundRecord) -> None:
        """Warn about reasons that did not occur in an earlier round."""
        self._warn(f"excluded from round {record.round}", record.excluded_reasons)
        missing = {id: reason for id, reason in (record.not_evaluated or {}).items() if is_failure(reason)}
        self._warn(f"not evaluated after round {record.round}", missing)

    def _warn(self, what: str, reasons: Mapping[int, str]) -> None:
        for reason, devices in by_reason(reasons.items()).items():
            if reason not in self._warned:
                self._warned.add(reason)
                warnings.warn(f"{what}: {reason} on {devices}; see rounds.jsonl", stacklevel=2)
