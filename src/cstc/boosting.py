"""How trees are boosted, whatever grows them: `Boosting`, and what it is as parameters and data sets of LightGBM.

Experts, the paper's weak learners and the systems of `cstc.baselines` are ensembles that see the prices in one of four
ways:

blind
    Prices play no part.
lazy prices
    A split pays for its feature at every row that reaches it and has not bought the feature yet, in the units of
    ``risk + cost_weight * cost``.
coupled prices
    The first split of the whole ensemble on a feature pays for it, for all rows.
falling prices
    Coupled, and the level of all prices falls from round to round: the order in which features enter is an order
    of buying.

Blind ones may also be grown for the order of documents within queries (`Lambdarank`) instead of the loss.

`lightgbm_engine` grows all of them, `xgboost_engine` the blind ones, and `engines` says which of the two is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import lightgbm
import numpy as np

from .costs import ResolvedCosts
from .losses import Loss
from .progress import QUIET, Progress
from .rows import Rows, Units, some_of

__all__ = [
    "GATE_ROUNDS",
    "Boosting",
    "Lambdarank",
    "agreed_rounds",
    "mean_one",
    "rounds_of",
    "work_of",
]

MIN_DATA_IN_LEAF = 20
MOST_LEAVES = 1 << 17  # LightGBM takes no more
GATE_ROUNDS = 25
MOST_JUDGES = 5000  # rows that stop boosting, of many, for each 200 rounds that it may take: late gains are small
#: The same trees, whatever the number of threads.
REPEATABLE = {"deterministic": True, "force_col_wise": True, "verbosity": -1}
#: Of a truth that is a grade; LightGBM's own list ends there, too.
GAINS = [2**grade - 1 for grade in range(31)]
TRUNCATED = 30  # places that pairs are made of at least: with few, most documents teach nothing


@dataclass(frozen=True, eq=False)
class Lambdarank:
    """Boosting for the order of documents within their queries: LightGBM's lambdarank.

    Scores have no unit then: only their differences within a query mean something (`experts.calibration`).

    Attributes
    ----------
    at : int
        Places that count.
    units : Units
        Of the grades: targets are in standard units.
    sizes : int ndarray of shape (n_queries,)
        Documents of each query, in the order of the rows.
    """

    at: int
    units: Units
    sizes: np.ndarray

    def parameters(self) -> dict[str, Any]:
        """For LightGBM, in the place of those of the loss."""
        return {
            "objective": "lambdarank",
            "label_gain": GAINS,
            "lambdarank_truncation_level": max(TRUNCATED, self.at),
            "metric": "ndcg",
            "eval_at": [self.at],
        }

    @classmethod
    def of(cls, rows: Rows, at: int, units: Units) -> Lambdarank:
        """For rows whose queries stand together."""
        new = np.concatenate([[True], rows.qid[1:] != rows.qid[:-1]])
        return cls(at, units, np.diff(np.append(np.flatnonzero(new), len(rows))))

    def put_into(self, data: lightgbm.Dataset, rows: Rows, at: np.ndarray) -> lightgbm.Dataset:
        """The data set of some of the rows, in rising order, with grades and queries instead of targets."""
        sizes = np.bincount(np.repeat(np.arange(len(self.sizes)), self.sizes)[at])
        data.set_label(np.rint(self.units.margins(rows.y[at])))
        data.set_group(sizes[sizes > 0])
        return data

    def some_of(self, out: np.ndarray, most: int) -> np.ndarray:
        """Of some rows, about so many at most, of whole queries."""
        query = np.repeat(np.arange(len(self.sizes)), self.sizes)[out]
        if len(out) <= most:
            return out
        own = np.unique(query)
        kept = some_of(own, max(1, most * len(own) // len(out)))
        return out[np.isin(query, kept)]


@dataclass(frozen=True, eq=False)
class Boosting:
    """How trees are boosted.

    Attributes
    ----------
    loss : Loss
    costs : ResolvedCosts
    n_rounds, depth, learning_rate, early_stopping, categorical, random_state, n_jobs
        As in the estimators.
    n_leaves : int or None
        Leaves of a tree at most; None: as many as the depth allows.
    constant : ndarray of shape (n_outputs,)
        Margins to start from.
    least_leaf : int
        Rows of a leaf at least, where there are enough of them.
    max_bin : int
        Bins of a column.
    in_full_view : int
        So few columns are seen by every tree: of two or three, LightGBM would show some pairs to none.
    feature_fraction, row_fraction, l2 : float
        Each tree sees a random part of the features and of the rows; leaf values are shrunk by `l2`.
    progress : Progress
        Is told of every round.
    workers : cstc.cluster.Workers or None
        Where large ensembles are grown; None: in threads of this process.
    engine : {"lightgbm", "xgboost"}
        What grows those that are blind to prices (`engines`).
    device : {"cpu", "cuda"}
        Where XGBoost grows them.
    lambdarank : Lambdarank or None
        Where experts are grown for the order of documents, and not for the loss; by LightGBM alone.
    """

    loss: Loss
    costs: ResolvedCosts
    n_rounds: int
    depth: int
    learning_rate: float
    early_stopping: int | None
    n_leaves: int | None = None
    categorical: Sequence[int] = ()
    random_state: int = 0
    n_jobs: int | None = None
    constant: np.ndarray = field(default_factory=lambda: np.zeros(1))
    least_leaf: int = MIN_DATA_IN_LEAF
    max_bin: int = 255
    in_full_view: int = 0
    feature_fraction: float = 1.0
    row_fraction: float = 1.0
    l2: float = 0.0
    progress: Progress = QUIET
    workers: Any = None
    engine: str = "lightgbm"
    device: str = "cpu"
    lambdarank: Lambdarank | None = None

    def starting_at(self, rows: Rows, **changes: Any) -> Boosting:
        """The same from the best constant of some rows on."""
        return replace(self, constant=self.loss.constant(rows.y, rows.weights), **changes)

    def on(self, columns: np.ndarray) -> Boosting:
        """The same for a matrix of these columns."""
        fraction = self.feature_fraction if len(columns) > self.in_full_view else 1.0
        return replace(self, categorical=_among(self.categorical, columns), feature_fraction=fraction)

    def parameters(self, n_rows: int) -> dict[str, Any]:
        """For LightGBM."""
        found = REPEATABLE | {
            "objective": self.loss.objective,
            "max_depth": self.depth,
            "num_leaves": min(self.n_leaves or 2**self.depth, max(2, n_rows), MOST_LEAVES),
            "learning_rate": self.learning_rate,
            # a leaf must hold enough rows to be worth a value, but a small sample must still be splittable
            "min_data_in_leaf": max(1, min(self.least_leaf, n_rows // 10)),
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.row_fraction,
            "bagging_freq": int(self.row_fraction < 1 and n_rows >= 2 * MIN_DATA_IN_LEAF),
            "lambda_l2": self.l2,
            "boost_from_average": False,
            "seed": self.random_state,
            "num_threads": 1,  # independent fits run side by side (`parallel`)
            "max_bin": self.max_bin,
        }
        found |= {"num_class": len(self.constant)} if len(self.constant) > 1 else {}
        return found if self.lambdarank is None else found | self.lambdarank.parameters()

    def dataset(
        self, rows: Rows, reference: lightgbm.Dataset | None = None, parameters: dict[str, Any] | None = None
    ) -> lightgbm.Dataset:
        """Rows as LightGBM takes them."""
        return lightgbm.Dataset(
            rows.X,
            rows.y,
            weight=mean_one(rows.weights),
            # starting scores instead of boost_from_average keep the constant out of the first tree's leaves;
            # LightGBM wants the scores of one class after the other
            init_score=np.repeat(self.constant, len(rows)) if self.lambdarank is None else None,
            reference=reference,
            categorical_feature=list(self.categorical),
            params=self.parameters(len(rows)) | (parameters or {}),
            free_raw_data=True,
        )


def _among(categorical: Sequence[int], columns: np.ndarray) -> list[int]:
    """Where the categorical ones stand among some columns."""
    known = set(categorical)
    return [at for at, column in enumerate(columns) if column in known]


def mean_one(weights: np.ndarray) -> np.ndarray:
    """The same weights in a unit in which their mean is 1."""
    return weights * (len(weights) / weights.sum())


def work_of(n_rows: int, n_columns: int, n_rounds: int) -> float:
    """What an ensemble takes, to compare with others: a round passes over all rows even where columns are few."""
    return float(n_rounds) * (n_rows + 2000) * (n_columns + 20)


def rounds_of(booster: Any) -> int:
    """Rounds of an ensemble up to its best one, or all."""
    return booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()


def agreed_rounds(rounds: Sequence[int]) -> int:
    """One number of rounds for all folds: the mean of what each would stop at.

    A fold's own number would have been chosen on the rows that it then predicts.
    """
    return max(1, round(float(np.mean(rounds))))
