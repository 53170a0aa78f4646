"""Hit rate, NDCG and AUC of ranked candidates, such as a held-out item among sampled ones (leave-one-out).

He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1; Jaervelin and Kekaelaeinen, "Cumulated gain-based
evaluation of IR techniques", 2002; for the AUC of each query Zhu et al., "Optimized Cost per Click in Taobao Display
Advertising", KDD 2017. In hit rate and NDCG, ties count against the model: with equal scores for all candidates,
relevant ones rank last.
"""

import numpy as np

from odt_sim.metrics.scores import auc
from odt_sim.model.weights import Array


class Ranking:
    """Candidates of queries, ranked by their scores.

    Attributes:
        relevant: `[queries, candidates]` whether the candidate at each rank is relevant, for the queries with a
            relevant candidate.
    """

    def __init__(self, scores: Array, y: Array) -> None:
        """Rank the candidates.

        Args:
            scores: `[queries, candidates]`, or `[candidates]` or `[candidates, 1]` for a single query, such as one
                user's examples.
            y: The relevance of each candidate, of the same size: above 0.5 is relevant.
        """
        rows = scores if scores.ndim == 2 and scores.shape[1] > 1 else scores.reshape(1, -1)
        relevant = y.reshape(rows.shape) > 0.5
        self._columns = rows.T, relevant.T  # `[candidates, queries]`
        order = np.lexsort((relevant, -rows), axis=-1)  # among equal scores, irrelevant candidates first
        self._finite = bool(np.isfinite(rows).all())
        self.relevant = np.take_along_axis(relevant, order, axis=-1)[relevant.any(axis=1)]

    @property
    def defined(self) -> bool:
        """Whether at least one query has a relevant candidate and all scores are finite."""
        return self._finite and len(self.relevant) > 0

    def hit_rate(self, k: int) -> float | None:
        """Return the fraction of queries with a relevant candidate among the first `k`; None if undefined."""
        return float(self.relevant[:, :k].any(axis=1).mean()) if self.defined else None

    def ndcg(self, k: int) -> float | None:
        """Return the mean over queries of the gain of the first `k`, 1 / log2(1 + rank), relative to the best order."""
        if not self.defined:
            return None
        gains = 1 / np.log2(np.arange(2, self.relevant.shape[1] + 2))
        gains[k:] = 0
        best = np.cumsum(gains)[self.relevant.sum(axis=1) - 1]
        return float(((self.relevant @ gains) / best).mean())

    def auc(self) -> float | None:
        """Return the mean over queries of the area under the ROC curve; None if undefined.

        Queries without a relevant or without an irrelevant candidate do not count. Scores of different queries are not
        compared, so they need no common scale.
        """
        return auc(*self._columns)
