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
from functools import cached_property, partial

import numpy as np

from .boosting import Boosting, work_of
from .capacity import capacity_for
from .costs import ResolvedCosts
from .lightgbm_engine import attributions, boost
from .losses import Loss
from .matrix import blocks, dense
from .parallel import side_by_side
from .rows import Rows, some_of

__all__ = ["Needs", "needs_of"]

#: Rows that teach, each half of them the ensemble for the other, and rows that are attributed: of one output, and of
#: many.  An attribution takes as long as there are trees, and far longer than growing them.
TAUGHT, ATTRIBUTED = (6000, 2000), (4000, 1000)
#: Of a tree: a selector of selectors, the selector and the feature that it names must fit on one branch.
LEAVES, DEPTH = 31, 8
AT_A_TIME = 1000  # rows


@dataclass(frozen=True, eq=False)
class Needs:
    """What would be lost without each item.

    Attributes
    ----------
    rows : Rows
        Some of the training rows.
    half : bool ndarray of shape (n,)
        Each half of them was attributed by what the other one taught.
    lost : float ndarray of shape (n_told, n_items)
        In standard units of what is weighed against cost.
    costs : ResolvedCosts
    factor : float ndarray of shape (n,) or float
        What errors at each row are multiplied by; `lost` is, too.
    told : int ndarray of shape (n_told,) or None
        Those of the rows that were attributed; None: all of them.
    """

    rows: Rows
    half: np.ndarray
    lost: np.ndarray
    costs: ResolvedCosts
    factor: np.ndarray | float = 1.0
    told: np.ndarray | None = None

    @cached_property
    def told_rows(self) -> Rows:
        """The rows of `lost`."""
        return self.rows if self.told is None else self.rows.take(self.told)

    def worth(self, at: np.ndarray) -> np.ndarray:
        """What each item is worth to some of the rows (bool) on average, by those of them that were attributed."""
        known = at if self.told is None else at[self.told]
        if not known.any():
            return np.zeros(self.lost.shape[1])
        return np.average(self.lost[known], axis=0, weights=self.told_rows.weights[known])


def needs_of(
    boosting: Boosting, rows: Rows, half: np.ndarray, stakes: Loss, factor: np.ndarray | None = None
) -> Needs:
    """Of some training rows, from ensembles that learned from the other `half` (bool).

    Errors at a row are multiplied by its `factor`, if there are any.
    """
    n_taught, n_attributed = (
        max(least, min(most, 2 * most // len(boosting.constant))) for most, least in (TAUGHT, ATTRIBUTED)
    )
    at = some_of(np.arange(len(rows)), n_taught)
    factor = np.ones(len(at)) if factor is None else factor[at]
    rows, half = rows.take(at), half[at]
    n_half = len(rows) // 2
    n_rounds = min(boosting.n_rounds, capacity_for(n_half).n_rounds)
    boosting = replace(boosting, n_rounds=n_rounds, n_leaves=LEAVES, depth=max(DEPTH, boosting.depth))
    boosting.progress.begin("what rows need", 2 * work_of(n_half, rows.X.shape[1], boosting.n_rounds), 2)
    heard = [some_of(np.flatnonzero(part), n_attributed // 2) for part in (~half, half)]
    lost = np.empty((len(rows), boosting.costs.n_items), dtype=np.float32)

    def hear(taught: np.ndarray, hears: np.ndarray) -> None:
        booster = boost(boosting, rows.take(np.flatnonzero(taught)), validation=rows.take(np.flatnonzero(~taught)))
        asked = rows.take(hears).X
        for block in blocks(asked, AT_A_TIME):
            shares = attributions(booster, dense(asked, block), len(boosting.constant))
            lost[hears[block]] = _lost(boosting, shares, stakes)

    side_by_side([partial(hear, *each) for each in zip((half, ~half), heard, strict=True)], boosting.n_jobs)
    told = np.sort(np.concatenate(heard))
    weighed = lost[told] * factor[told, None].astype(np.float32)
    return Needs(rows, half, weighed, boosting.costs, factor, told)


def _lost(boosting: Boosting, shares: np.ndarray, stakes: Loss) -> np.ndarray:
    """(n, n_items) from what each feature contributed to each output, (n, n_features + 1, n_outputs)."""
    items = boosting.costs.feature_items.astype(float)
    margins = boosting.constant + shares.sum(axis=1)
    mean = stakes.mean(margins)
    with_all = stakes.expected(margins, mean)
    by_item = np.einsum("nfo,fi->ino", shares[:, :-1], items)
    return np.column_stack([stakes.expected(margins - gone, mean) - with_all for gone in by_item])
