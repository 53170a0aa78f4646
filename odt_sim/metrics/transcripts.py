"""Transcripts of sequences by connectionist temporal classification, compared with the targets.

Graves et al. 2006, Connectionist Temporal Classification: Labelling Unsegmented Sequence Data with Recurrent Neural
Networks: best path decoding (section 3.2) and the label error rate (section 2.1). Class 0 is the blank.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.model.weights import Array

Tokens = NDArray[np.int64]


class Transcripts:
    """Labels decoded from the most likely class of each frame, compared with the targets."""

    def __init__(self, outputs: Array, y: Array, from_logits: bool = True) -> None:
        """Decode the outputs.

        Args:
            outputs: `[examples, frames, classes]`, logits or probabilities; the most likely classes are the same.
            y: `[examples, labels]` integers, padded with zeros at the end.
            from_logits: Ignored.
        """
        known = ~np.isnan(outputs).any(axis=-1)
        right = compact(y)
        self._labels = np.count_nonzero(right)
        self._distances = edit_distances(decoded(outputs.argmax(axis=-1) * known), right)

    def token_error_rate(self) -> float | None:
        """Return the insertions, deletions and substitutions that correct all transcripts, per target label."""
        return float(self._distances.sum() / self._labels) if self._labels else None

    def exact_match(self) -> float:
        """Return the fraction of transcripts without an error."""
        return float((self._distances == 0).mean())


def decoded(path: Array) -> Tokens:
    """Return the labels of paths `[examples, frames]`, without repeated classes and then without blanks."""
    repeated = np.zeros(path.shape, np.bool_)
    repeated[:, 1:] = path[:, 1:] == path[:, :-1]
    return compact(np.where(repeated, 0, path))


def compact(labels: Array) -> Tokens:
    """Return integers, `[examples, places]`, with each example's zeros moved to the end; others keep their order."""
    order = np.argsort(labels == 0, axis=1, kind="stable")
    return np.take_along_axis(labels, order, axis=1).astype(np.int64)


def edit_distances(one: Tokens, other: Tokens) -> Tokens:
    """Return the Levenshtein distance between each example's labels, `[examples]`; labels are padded with zeros."""
    lengths, others = (np.count_nonzero(labels, axis=1) for labels in (one, other))
    one, other = one[:, : lengths.max()], other[:, : others.max()]
    # row[:, j] is the distance of the first i labels of `one` to the first j of `other`
    row = np.broadcast_to(np.arange(other.shape[1] + 1), (len(other), other.shape[1] + 1))
    rows = [row]
    for i in range(one.shape[1]):
        replaced = row[:, :-1] + (one[:, i : i + 1] != other)
        columns = [np.full(len(other), i + 1)]
        for j in range(other.shape[1]):
            columns.append(np.minimum(np.minimum(columns[-1], row[:, j + 1]) + 1, replaced[:, j]))
        row = np.stack(columns, axis=1)
        rows.append(row)
    examples = np.arange(len(other))
    distances: Tokens = np.stack(rows)[lengths, examples, others]
    return distances
