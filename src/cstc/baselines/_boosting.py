"""Boosted trees for the systems, blind to cost or with one of LightGBM's two penalties on features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..boosting import rounds_of
from ..lightgbm_engine import boost as train_booster
from ..lightgbm_trees import flatten_booster, without_stumps
from ..model import TreePool
from ._setting import Setting

__all__ = ["boost", "sums_of_trees"]


def boost(
    setting: Setting,
    *,
    cost_weight: float = 0.0,
    penalty: str = "lazy",
    use_everything: bool = True,
    choose_rounds: Callable[[TreePool], int] | None = None,
) -> TreePool:
    """Trees of one ensemble, in the order in which they were grown.

    Rounds are stopped early on the validation rows, or chosen by `choose_rounds` from those grown until then.  With
    `use_everything`, and where the validation rows were held out of those given, the ensemble is grown again on all
    rows.

    Parameters
    ----------
    setting : Setting
    cost_weight : float
        In the units of the risk, as for the estimators; 0 is blind to cost.
    penalty : {"lazy", "coupled"}
        A split pays for its feature at every row that has not bought it yet, or once for the whole ensemble.
    """
    options: dict[str, Any] = {"cost_weight": setting.units.standard_weight(cost_weight), "penalty": penalty}
    booster = train_booster(setting.boosting, setting.train, validation=setting.validation, **options)
    rounds = rounds_of(booster)
    if choose_rounds is not None:
        rounds = choose_rounds(flatten_booster(booster, booster.current_iteration()))
    if rounds and use_everything and setting.everything is not None:
        booster = train_booster(setting.boosting, setting.everything, n_rounds=rounds, **options)
    pool = flatten_booster(booster, max(rounds, 1))
    return without_stumps(pool, len(setting.constant), rounds)[0]


def sums_of_trees(pool: TreePool, X: Any) -> np.ndarray:
    """Shape (n, n_trees + 1): the sum of the first t trees at every row, from none to all."""
    sums = np.zeros((X.shape[0], pool.n_learners + 1))
    np.cumsum(pool.transform(X), axis=1, out=sums[:, 1:])
    return sums
