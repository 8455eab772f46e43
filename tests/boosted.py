"""Rows and how to boost on them: for the tests of boosting, of its engine and of its trees."""

import numpy as np
import pytest

from builders import LOSSES
from cstc.boosting import Boosting
from cstc.costs import CostModel
from cstc.lightgbm_trees import trees_of
from cstc.rows import Rows

each_loss_name = pytest.mark.parametrize("loss_name", list(LOSSES))
MANY, FEW = 3, 4  # categorical columns: one with 40 categories, which LightGBM splits as sets, and one with 3
N = 400


def table(seed=0, n=N, *, missing=0.1, categories=40):
    """Three columns of numbers with zeros among them, two of categories, and missing values in all."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 5)), 1)
    X[:, MANY], X[:, FEW] = rng.integers(0, categories, n), rng.integers(0, 3, n)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def target(X, loss_name, seed=0):
    rng = np.random.default_rng(seed)
    effect = rng.normal(size=40)[np.nan_to_num(X[:, MANY]).astype(int)]
    score = np.nan_to_num(X[:, 0], nan=1.0) + effect + (X[:, FEW] == 1) + 0.3 * rng.normal(size=len(X))
    if loss_name == "squared":
        return score - score.mean()
    return (score > 0).astype(int) if loss_name == "logistic" else np.digitize(score, [-0.5, 0.8])


def problem(loss_name="squared", *, X=None, y=None, prices=(1, 2, 3, 4, 5), weights=None, **options):
    """How to boost, from the best constant on, and the rows to boost on."""
    X = table() if X is None else X
    y = target(X, loss_name) if y is None else y
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weights is None else weights
    rows = Rows(X, y, weights)
    settings = {"n_rounds": 10, "depth": 3, "learning_rate": 0.2, "early_stopping": None, "n_jobs": 1}
    costs = CostModel(prices).resolve("abcde"[: len(prices)])
    return Boosting(loss=LOSSES[loss_name], costs=costs, **settings | options).starting_at(rows), rows


def margins_of(boosting, booster, X, n_rounds=None):
    """The constant plus all trees."""
    pool, weights = trees_of(booster, len(boosting.constant), n_rounds)
    return pool.transform(X) @ weights + boosting.constant
