"""Frontiers that the tests of the page share: small ones, and one whose names want to do harm."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_wine

from cstc import CSTCClassifier, CSTCRegressor, Frontier
from cstc.datasets import load_diabetes_with_costs
from hostile_names import HOSTILE


@pytest.fixture(scope="session")
def cancer():
    """Two classes, prices that spread, test rows, two other systems and how it was made."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    y = np.where(y == 0, "malignant", "benign")
    prices = dict(zip(X.columns, [0.2] * 10 + [2.0] * 10 + [5.0] * 10, strict=True))
    estimator = CSTCClassifier(costs=prices, n_weak_learners=20, random_state=0)
    frontier = Frontier(estimator, cost_weights=[3.0, 0.1, 0.01, 0.0]).fit(X[:400], y[:400])
    return SimpleNamespace(
        frontier=frontier,
        saved=SimpleNamespace(
            models=[model.model_ for model in frontier.models_],
            table=list(frontier.table_),
            quality_name=frontier.quality_name_,
            made={
                "command": "cstc frontier train.csv --target diagnosis --prices prices.csv -o frontier/",
                "files": [{"file": "train.csv", "bytes": 123_456, "sha256": "ab" * 32}],
                "random_state": 0,
            },
            references=[
                ("plain LightGBM", [{"mean_cost": 72.0, "quality": 0.98}]),
                ("CEGB", [{"mean_cost": 1.0, "quality": 0.9}, {"mean_cost": 20.0, "quality": 0.97}]),
            ],
        ),
        test={"X": X[400:], "y": y[400:], "test_name": "test.csv"},
    )


@pytest.fixture(scope="session")
def diabetes():
    """Numbers, in a tree with shared items."""
    X, y, names, costs = load_diabetes_with_costs()
    X = pd.DataFrame(X, columns=names)
    estimator = CSTCRegressor(costs=costs, n_weak_learners=20, random_state=0)
    frontier = Frontier(estimator, cost_weights=[3000.0, 30.0, 1.0]).fit(X[:350], y[:350])
    return SimpleNamespace(frontier=frontier, test={"X": X[350:], "y": y[350:], "test_name": "test.csv"})


@pytest.fixture(scope="session")
def money():
    """Errors with prices."""
    X, y, names, costs = load_diabetes_with_costs()
    X, y = pd.DataFrame(X, columns=names), np.where(y > 200, "high", "low")
    errors = [[0, 250], [30, 0]]
    estimator = CSTCClassifier(costs=costs, error_costs=errors, n_weak_learners=20, random_state=0)
    frontier = Frontier(estimator, cost_weights=[30.0, 1.0, 0.1]).fit(X[:350], y[:350])
    return SimpleNamespace(frontier=frontier, test={"X": X[350:], "y": y[350:], "test_name": "test.csv"})


@pytest.fixture(scope="session")
def hostile():
    """Three classes; features, classes, files and systems with names that must stay text."""
    X, y = load_wine(return_X_y=True)
    X = pd.DataFrame(X[:, : len(HOSTILE)], columns=HOSTILE)
    y = np.array(HOSTILE[:3])[y]
    frontier = Frontier(CSTCClassifier(n_weak_learners=10, random_state=0), cost_weights=[10.0, 0.01]).fit(X, y)
    return SimpleNamespace(
        saved=SimpleNamespace(
            models=[model.model_ for model in frontier.models_],
            table=list(frontier.table_),
            quality_name=frontier.quality_name_,
            made={"command": HOSTILE[0], HOSTILE[1]: HOSTILE[2], "files": [{"file": each} for each in HOSTILE]},
            references=[(each, [(1.0 + place, 0.9)]) for place, each in enumerate(HOSTILE)],
        ),
        test={"X": X, "y": y, "test_name": HOSTILE[0]},
    )
