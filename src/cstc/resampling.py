"""The bootstrap: what a figure would have been on other rows of the same kind, and from that its standard error.

Rows are drawn again, with replacement, as many as there are; in ranking whole queries, since the documents of a query
stand or fall together.  A drawn sample is how often each row counts in it, so that nothing is copied and a model
answers each row once: a figure of all samples is a weighted sum over rows that are sorted once.  The same samples
judge all models, so that differences between models have the noise of differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["Resamples", "auc_draws", "cost_draws", "r2_draws", "standard_error"]

N_DRAWS = 200  # a standard error is then known to about 5% of itself
FEWEST_DRAWS = 50
MOST_CELLS = 2_000_000  # of counts: of more than 10,000 rows there are fewer samples, which tell an error to a tenth
BLOCK_CELLS = 4_000_000  # and those that are worked with at a time


def standard_error(draws: np.ndarray) -> float | None:
    """Of a figure, from its values in the samples that could be judged; None where fewer than two could."""
    known = draws[np.isfinite(draws)]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None


@dataclass(frozen=True, eq=False)
class Resamples:
    """Samples that are drawn from some rows.

    Attributes
    ----------
    unit : int ndarray of shape (n,)
        The unit that each row belongs to: itself, or its query.
    weights : ndarray of shape (n,)
        Of the rows; those of weight 0 are never drawn.
    seed : int
    """

    unit: np.ndarray
    weights: np.ndarray
    seed: int = 0

    @classmethod
    def of(cls, n: int, weights: np.ndarray | None = None, qid: np.ndarray | None = None, seed: int = 0) -> Resamples:
        unit = np.arange(n) if qid is None else np.unique(qid, return_inverse=True)[1]
        return cls(unit, np.ones(n) if weights is None else np.asarray(weights, dtype=float), seed)

    @property
    def n_draws(self) -> int:
        return int(np.clip(MOST_CELLS // max(len(self.unit), 1), FEWEST_DRAWS, N_DRAWS))

    @cached_property
    def units(self) -> np.ndarray:
        """Those that count: of which a row has a weight."""
        return np.unique(self.unit[self.weights > 0])

    @property
    def n_effective(self) -> float:
        """How many units of equal weight would be as many as these: the squared sum over the sum of squares."""
        each = np.bincount(self.unit, self.weights)
        if len(each) < len(self.unit):
            return float(len(self.units))  # a query counts once, whatever its documents weigh
        return float(each.sum() ** 2 / (each**2).sum())

    @cached_property
    def unit_counts(self) -> np.ndarray:
        """How often each unit is drawn, uint8 (n_units, n_draws)."""
        rng = np.random.default_rng(self.seed)
        found = np.zeros((int(self.unit.max()) + 1, self.n_draws), dtype=np.uint8)
        for draw in range(self.n_draws):
            drawn = rng.choice(self.units, len(self.units))
            found[:, draw] = np.minimum(np.bincount(drawn, minlength=len(found)), 255)
        return found

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Some samples at a time, and how much each row counts in them: float (n, n_samples)."""
        size = max(1, BLOCK_CELLS // len(self.unit))
        alone = np.array_equal(self.unit, np.arange(len(self.unit_counts)))  # each row is a unit
        for start in range(0, self.n_draws, size):
            which = slice(start, min(start + size, self.n_draws))
            counts = self.unit_counts[:, which] if alone else self.unit_counts[self.unit, which]
            yield which, counts * self.weights[:, None]

    def rows(self, draw: int) -> np.ndarray:
        """The rows of a sample, each as often as it is drawn; those of a query together."""
        if len(self.units) == len(self.unit):
            return np.repeat(np.arange(len(self.unit)), self.unit_counts[self.unit, draw])
        order = np.argsort(self.unit, kind="stable")
        starts = np.searchsorted(self.unit[order], np.arange(len(self.unit_counts) + 1))
        drawn = np.repeat(np.arange(len(self.unit_counts)), self.unit_counts[:, draw])
        return np.concatenate([order[starts[unit] : starts[unit + 1]] for unit in drawn])

    def means(self, values: np.ndarray) -> np.ndarray:
        """Of a value for each unit, NaN where it has none: the mean of each sample, every unit counting alike."""
        known = np.isfinite(values)
        counts = self.unit_counts[known].astype(float)
        with np.errstate(invalid="ignore"):  # a sample may hold none of them
            return values[known] @ counts / counts.sum(axis=0)


def auc_draws(scores: np.ndarray, positive: np.ndarray, resamples: Resamples) -> np.ndarray:
    """The AUC of each sample: the weight of pairs in the right order, half of it where scores are equal.

    NaN where a sample has one class only.
    """
    positives, negatives = np.flatnonzero(positive), np.flatnonzero(~positive)
    negatives = negatives[np.argsort(scores[negatives], kind="stable")]
    below = np.searchsorted(scores[negatives], scores[positives], side="left")
    upto = np.searchsorted(scores[negatives], scores[positives], side="right")
    found = np.empty(resamples.n_draws)
    for which, counts in resamples.blocks():
        lower = np.zeros((len(negatives) + 1, counts.shape[1]))
        np.cumsum(counts[negatives], axis=0, out=lower[1:])
        upper = counts[positives]
        right = np.einsum("ij,ij->j", upper, lower[below])
        if not (below == upto).all():
            right = (right + np.einsum("ij,ij->j", upper, lower[upto])) / 2
        with np.errstate(invalid="ignore"):
            found[which] = right / (upper.sum(axis=0) * lower[-1])
    return found


def r2_draws(y: np.ndarray, predicted: np.ndarray, resamples: Resamples) -> np.ndarray:
    """R² of each sample; NaN where all its targets are equal."""
    centred = y - y.mean()  # so that squares do not swallow the differences
    sums = np.column_stack([np.ones(len(y)), centred, centred**2, (y - predicted) ** 2])
    found = np.empty(resamples.n_draws)
    for which, counts in resamples.blocks():
        weight, total, squares, lost = sums.T @ counts
        spread = squares - total**2 / weight
        with np.errstate(invalid="ignore", divide="ignore"):
            found[which] = np.where(spread > 0, 1.0 - lost / spread, np.nan)
    return found


def cost_draws(costs: np.ndarray, resamples: Resamples) -> dict[str, np.ndarray]:
    """Mean, 95th percentile and maximum of the cost of each sample."""
    order = np.argsort(costs, kind="stable")
    found = {name: np.empty(resamples.n_draws) for name in ("mean", "p95", "max")}
    for which, counts in resamples.blocks():
        counts = counts[order]
        total = np.cumsum(counts, axis=0)
        found["mean"][which] = costs[order] @ counts / total[-1]
        found["p95"][which] = costs[order][np.argmax(total >= 0.95 * total[-1], axis=0)]
        found["max"][which] = costs[order][len(costs) - 1 - np.argmax(counts[::-1] > 0, axis=0)]
    return found
