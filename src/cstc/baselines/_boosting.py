"""Boosted trees for the systems: LightGBM, blind to cost or with one of its two penalties on features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np

from ..pool import TreePool
from ..training import Sample
from ..weak_learners import flatten_booster
from ._setting import Setting

__all__ = ["boost", "sums_of_trees"]

#: LightGBM's gain is the drop of the sum of squares, which is our risk, but twice the drop of the log loss.
_UNITS = {"squared": ("regression", 1.0), "logistic": ("binary", 2.0)}


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
    face = setting.face
    booster = _train(setting, setting.train, cost_weight, penalty, face.n_weak_learners, setting.validation)
    rounds = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    if choose_rounds is not None:
        rounds = choose_rounds(flatten_booster(booster, booster.current_iteration()))
    if rounds and use_everything and setting.everything is not None:
        booster = _train(setting, setting.everything, cost_weight, penalty, rounds, None)
    pool = flatten_booster(booster, max(rounds, 1))
    is_tree = pool.feature[pool.roots] >= 0  # a tree of one leaf is a constant: leave it out
    return pool.subset(np.flatnonzero(is_tree[:rounds]))


def _train(
    setting: Setting, rows: Sample, cost_weight: float, penalty: str, n_rounds: int, validation: Sample | None
) -> lightgbm.Booster:
    face, n = setting.face, len(rows.y)
    objective, unit = _UNITS[setting.loss.name]
    parameters: dict[str, Any] = {
        "objective": objective,
        "max_depth": face.weak_learner_depth,
        "num_leaves": min(2**face.weak_learner_depth, max(2, n), 1 << 17),
        "learning_rate": face.learning_rate,
        "min_data_in_leaf": max(1, min(20, n // 10)),
        "boost_from_average": False,
        "deterministic": True,
        "force_row_wise": True,
        "seed": setting.seed,
        "num_threads": face.n_jobs if face.n_jobs and face.n_jobs > 0 else 0,
        "verbosity": -1,
    }
    # features that share an item divide its price: LightGBM knows features, not items
    penalties = unit * cost_weight / setting.y_scale**2 * setting.costs.divided_prices
    if penalties.any():
        # LightGBM sums the lazy penalty over rows and takes the coupled one as it is: n makes it the same unit
        factor = n if penalty == "coupled" else 1
        parameters |= {"cegb_tradeoff": 1.0, f"cegb_penalty_feature_{penalty}": list(factor * penalties)}

    def dataset(part: Sample, **options: Any) -> lightgbm.Dataset:
        weights = part.weights * (len(part.y) / part.weights.sum())
        # starting scores instead of boost_from_average keep the constant out of the first tree's leaves
        start = np.repeat(setting.constant, len(part.y))
        columns = list(face._categorical_columns(setting.schema.feature_names))
        return lightgbm.Dataset(
            part.X, part.y, weight=weights, init_score=start, categorical_feature=columns, free_raw_data=True, **options
        )

    train = dataset(rows)
    options: dict[str, Any] = {}
    if validation is not None and face.early_stopping:
        stop = lightgbm.early_stopping(face.early_stopping, verbose=False)
        options = {"valid_sets": [dataset(validation, reference=train)], "callbacks": [stop]}
    # kept in training: LightGBM would otherwise cut off the rounds after the best
    return lightgbm.train(parameters, train, n_rounds, keep_training_booster=True, **options)


def sums_of_trees(pool: TreePool, X: np.ndarray) -> np.ndarray:
    """Shape (n, n_trees + 1): the sum of the first t trees at every row, from none to all."""
    sums = np.zeros((len(X), pool.n_learners + 1))
    np.cumsum(pool.transform(X), axis=1, out=sums[:, 1:])
    return sums
