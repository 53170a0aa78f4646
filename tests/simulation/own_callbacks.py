"""Callbacks of a user, imported as a user would."""


class StopWhenFlat:
    """A callback that stops when the train loss has not fallen by `least` for `patience` consecutive rounds."""

    def __init__(self, patience: int = 2, least: float = 0.0):
        self.patience, self.least = patience, least
        self._best, self._flat = None, 0

    def __call__(self, record):
        fell = self._best is None or record.train_loss < self._best - self.least
        self._best, self._flat = (record.train_loss, 0) if fell else (self._best, self._flat + 1)
        return self._flat >= self.patience and f"flat for {self._flat} rounds"


def stop_after(record, rounds=2):
    return record.round == rounds


def absent_column(record):
    return record["f1"] > 0.5
