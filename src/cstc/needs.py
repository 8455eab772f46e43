"""What each row needs: what would be lost there without an item, by the attributions of one full ensemble.

Purchases do not tell (`lazy`): where two cheap features say which of four expensive ones matters, none of the cheap
ones gains anything alone, and whoever buys greedily buys all four.  An ensemble that may look at everything finds out,
and its attributions (SHAP values, which share its margin out among the features) say at which rows it made use of what.
Without item r, a row would be answered with the margin less what the features that require r contributed:

    lost[i, r] = E l(a_i - phi_ir) - E l(a_i),    in expectation over the label if a_i is right

An item is needed at a row where that is more than its price.  Both are sums over rows, so that it can be weighed for
groups of rows, too.  Features that repeat each other share their attribution, and each seems to be needed less than it
is: good enough to tell rows apart, not to say what a group must buy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .boosting import Boosting, work_of
from .costs import ResolvedCosts
from .lightgbm_engine import attributions, boost
from .losses import Loss
from .matrix import blocks, dense
from .parallel import side_by_side
from .rows import Rows, some_of

__all__ = ["Needs", "needs_of"]

#: Rows that are attributed; each half of them teaches the ensemble for the other.  Attributions take as long as there
#: are trees, of which several classes have more.
MOST_ROWS, FEWER_ROWS = 6000, 2000
#: Of a tree: a selector of selectors, the selector and the feature that it names must fit on one branch.
LEAVES, DEPTH = 31, 8
ATTRIBUTED = 1000  # rows at a time


@dataclass(frozen=True, eq=False)
class Needs:
    """What would be lost without each item.

    Attributes
    ----------
    rows : Rows
        Some of the training rows.
    half : bool ndarray of shape (n,)
        Each half of them was attributed by what the other one taught.
    lost : float ndarray of shape (n, n_items)
        In standard units of what is weighed against cost.
    costs : ResolvedCosts
    factor : float ndarray of shape (n,) or float
        What errors at each row are multiplied by; `lost` is, too.
    """

    rows: Rows
    half: np.ndarray
    lost: np.ndarray
    costs: ResolvedCosts
    factor: np.ndarray | float = 1.0

    def worth(self, at: np.ndarray) -> np.ndarray:
        """What each item is worth to some rows (bool) on average."""
        return np.average(self.lost[at], axis=0, weights=self.rows.weights[at])


def needs_of(
    boosting: Boosting, rows: Rows, half: np.ndarray, stakes: Loss, factor: np.ndarray | None = None
) -> Needs:
    """Of some training rows, from ensembles that learned from the other `half` (bool).

    Errors at a row are multiplied by its `factor`, if there are any.
    """
    most = max(FEWER_ROWS, min(MOST_ROWS, 2 * MOST_ROWS // len(boosting.constant)))
    at = some_of(np.arange(len(rows)), most)
    factor = np.ones(len(at)) if factor is None else factor[at]
    rows, half = rows.take(at), half[at]
    boosting = replace(boosting, n_leaves=LEAVES, depth=max(DEPTH, boosting.depth))
    n_half = len(rows) // 2
    boosting.progress.begin("what rows need", 2 * work_of(n_half, rows.X.shape[1], boosting.n_rounds), 2)
    lost = np.empty((len(rows), boosting.costs.n_items), dtype=np.float32)

    def hear(taught: np.ndarray) -> None:
        hears = np.flatnonzero(~taught)
        judges = rows.take(hears)
        booster = boost(boosting, rows.take(np.flatnonzero(taught)), validation=judges)
        for block in blocks(judges.X, ATTRIBUTED):
            shares = attributions(booster, dense(judges.X, block), len(boosting.constant))
            lost[hears[block]] = _lost(boosting, shares, stakes)

    side_by_side([partial(hear, taught) for taught in (half, ~half)], boosting.n_jobs)
    return Needs(rows, half, lost * factor[:, None].astype(np.float32), boosting.costs, factor)


def _lost(boosting: Boosting, shares: np.ndarray, stakes: Loss) -> np.ndarray:
    """(n, n_items) from what each feature contributed to each output, (n, n_features + 1, n_outputs)."""
    items = boosting.costs.feature_items.astype(float)
    margins = boosting.constant + shares.sum(axis=1)
    mean = stakes.mean(margins)
    with_all = stakes.expected(margins, mean)
    by_item = np.einsum("nfo,fi->ino", shares[:, :-1], items)
    return np.column_stack([stakes.expected(margins - gone, mean) - with_all for gone in by_item])
