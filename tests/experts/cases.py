"""Data, prices and chains that the tests of the default method share."""

import numpy as np

from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor
from cstc.boosting import Boosting
from cstc.costs import as_cost_model
from cstc.experts.chain import Chain
from cstc.experts.expert import constant_expert, grow_experts
from cstc.experts.purchases import Stage
from cstc.losses import SquaredLoss
from cstc.rows import Rows

TASKS = ("regression", "classes", "three classes", "ranking")
PRICES = [1.0, 2.0, 3.0, 4.0, 10.0]  # of `dear_for_some`
TWO_PRICES = [0.0, 4.0, 10.0, 2.0]  # of `two_needs`
OWN_PRICES = [0.5, 10.0, 10.0, 10.0, 10.0, 10.0]  # of `own_features`


def boosting(costs, constant=(0.0,), loss=None, **changes):
    options = {"n_rounds": 30, "depth": 3, "learning_rate": 0.2, "early_stopping": None, "n_jobs": 1}
    constant = np.array(constant, dtype=float)
    return Boosting(loss or SquaredLoss(), costs, **(options | changes), constant=constant)


def grow_expert(boosting, rows, folds, columns):
    """One expert alone."""
    return grow_experts([(columns, boosting)], rows, folds)[0]


def resolved(prices, requires=None, evaluation=0.0, n=None):
    """Prices bound to columns x0, x1, ..."""
    n = n or len(prices)
    return as_cost_model(CostModel(prices, requires or {}, evaluation), n).resolve([f"x{j}" for j in range(n)])


def rows_of(X, y, weights=None):
    return Rows(X, y, np.ones(len(y)) if weights is None else weights)


def table(n=800, n_features=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_features)), rng


# -- data ---------------------------------------------------------------------------------------------------------


def labelled(task, X, signal, cuts, most, rng):
    """An estimator, its rows and what else `fit` needs."""
    n = len(X)
    if task == "regression":
        return CSTCRegressor, X, signal + 0.1 * rng.normal(size=n), {}
    if task == "classes":
        return CSTCClassifier, X, (signal > np.mean(cuts)).astype(int), {}
    if task == "three classes":
        return CSTCClassifier, X, np.searchsorted(cuts, signal), {}
    return CSTCRanker, X, np.clip(np.round(signal), 0, most), {"qid": np.repeat(np.arange(-(-n // 10)), 10)[:n]}


def dear_for_some(task, n=900, seed=3):
    """Half of the rows are settled by x0; the others need x4, which is expensive, too."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    signal = 2.0 * X[:, 0] + np.where(X[:, 0] > 0, 2.0 * X[:, 4], 0.0) + 0.3 * X[:, 1]
    return labelled(task, X, signal, [-0.5, 1.5], 3, rng)


def own_features(task="regression", n=2400, seed=0):
    """A cheap column says which of four expensive ones matters; the last one is noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    X[:, 0] = rng.integers(4, size=n)
    signal = X[:, 0] + 2.0 * X[np.arange(n), 1 + X[:, 0].astype(int)]
    return labelled(task, X, signal, [0.5, 2.5], 4, rng)


def two_needs(task="regression", n=900, seed=0):
    """A free column says which of two expensive ones matters: the more expensive one explains more."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    signal = np.where(X[:, 0] > 0, 2.6 * X[:, 2], 2.2 * X[:, 1])
    return labelled(task, X, signal, [-1.0, 1.0], 3, rng)


def needed(X):
    """What is bought if each row of `own_features` buys its own column, and all rows the first."""
    bought = np.zeros((len(X), 6), dtype=bool)
    bought[:, 0] = True
    bought[np.arange(len(X)), 1 + X[:, 0].astype(int)] = True
    return bought


# -- chains -------------------------------------------------------------------------------------------------------


def make_chain(X, losses, prices, columns, **changes):
    """A chain of stages whose losses and prices are given, with experts that say nothing."""
    n, n_stages = losses.shape
    costs = resolved(np.ones(X.shape[1]))
    given = {
        "name": "as given",
        "stages": [Stage(np.array(own, dtype=int), price) for own, price in zip(columns, prices, strict=True)],
        "experts": [constant_expert(np.zeros(1), n)] * n_stages,
        "losses": losses,
        "shifts": np.zeros(n_stages),
        "prices": np.array(prices, dtype=float),
        "gate_price": 0.0,
        "rows": rows_of(X, np.zeros(n)),
        "half": np.arange(n) % 2 == 0,
        "boosting": boosting(costs),
    }
    return Chain(**(given | changes))
