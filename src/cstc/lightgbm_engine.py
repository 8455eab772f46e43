"""Ensembles grown by LightGBM: the only place that trains its boosters, for experts, gates and whatever sees prices.

LightGBM knows features, not items, so features that share an item divide its price: together they pay it once.  Gates
are small regressions of their own.  What was grown is copied into flat trees by `lightgbm_trees`.

Plain LightGBM, as its users would train it without us, is no part of this (`cli/_plain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np

from .binning import ColumnBlocks
from .boosting import GATE_ROUNDS, MOST_JUDGES, REPEATABLE, Boosting, mean_one, rounds_of, work_of
from .capacity import MANY_ROWS, VERY_MANY_ROWS
from .matrix import cells_at
from .parallel import idle_workers, stop_if_asked
from .progress import Progress
from .rows import Rows, some_of

__all__ = [
    "SHARED_BINS",
    "Binned",
    "GainRegression",
    "attributions",
    "bin_blocks",
    "boost",
    "boost_while_prices_fall",
    "go_on",
]

#: Parts of a data set may be small enough for columns to be filtered that others need.
SHARED_BINS = {"feature_pre_filter": False}
#: Gates learn from differences of expected losses, which are smooth: few leaves, strong shrinkage, few bins.
GATE = {"objective": "regression", "learning_rate": 0.24, "num_leaves": 8, "lambda_l2": 10.0, "feature_fraction": 0.8}
GATE_BINS = 63  # of few rows, where most of the time goes by bins; many rows are binned already


def boost(
    boosting: Boosting,
    rows: Rows,
    *,
    cost_weight: float = 0.0,
    penalty: str = "lazy",
    n_rounds: int | None = None,
    validation: Rows | None = None,
) -> lightgbm.Booster:
    """One ensemble.

    Parameters
    ----------
    cost_weight : float
        A split pays ``cost_weight * price``, in units of the mean risk; 0 is blind to cost.
    penalty : {"lazy", "coupled"}
        When it pays.
    n_rounds : int, optional
        Other than those of `boosting`.
    validation : Rows, optional
        Stop early on these.
    """
    parameters = boosting.parameters(len(rows)) | _prices(boosting, cost_weight, penalty, len(rows))
    parameters |= _threads(boosting, len(rows))
    train = boosting.dataset(rows)
    judges = None if validation is None else boosting.dataset(validation, reference=train)
    return _train(boosting, parameters, train, n_rounds or boosting.n_rounds, judges)


def boost_while_prices_fall(
    boosting: Boosting, rows: Rows, prices: np.ndarray, levels: np.ndarray
) -> lightgbm.Booster:
    """One ensemble whose first split on a feature pays its price for all rows, ``levels[t] * price`` in round t."""
    parameters = boosting.parameters(len(rows)) | {
        "cegb_tradeoff": 1.0,
        "cegb_penalty_feature_coupled": list(boosting.loss.gain_unit * len(rows) * prices),  # gains are sums
    }
    # LightGBM cannot change parameters of a booster without a single usable feature: let it leave out none
    bins = {"feature_pre_filter": False, "min_data_in_bin": 1}
    falling = lightgbm.reset_parameter(cegb_tradeoff=list(map(float, levels)))
    train = boosting.dataset(rows, parameters=bins)
    return _train(boosting, parameters | bins, train, len(levels), callbacks=[falling])


def _prices(boosting: Boosting, cost_weight: float, penalty: str, n_rows: int) -> dict[str, Any]:
    """What splits pay, as parameters of LightGBM, which sums the lazy penalty over rows but not the coupled one."""
    prices = boosting.loss.gain_unit * cost_weight * boosting.costs.divided_prices
    factor = n_rows if penalty == "coupled" else 1
    return {"cegb_tradeoff": 1.0, f"cegb_penalty_feature_{penalty}": list(factor * prices)} if prices.any() else {}


def _train(
    boosting: Boosting,
    parameters: dict[str, Any],
    train: lightgbm.Dataset,
    n_rounds: int,
    judges: lightgbm.Dataset | None = None,
    callbacks: Sequence[Any] = (),
) -> lightgbm.Booster:
    """Boost, stopped early on `judges`."""
    rounds = _Rounds(boosting.progress, n_rounds)
    found: list[Any] = [rounds, *callbacks]
    judged = [judges] if judges is not None and boosting.early_stopping else []
    if judged:
        found.append(lightgbm.early_stopping(boosting.early_stopping or 1, verbose=False))
    # kept in training: LightGBM would cut off all rounds after the best, and `go_on` may need them
    booster = lightgbm.train(
        parameters, train, n_rounds, valid_sets=judged, callbacks=found, keep_training_booster=True
    )
    rounds.end()
    return booster


def _threads(boosting: Boosting, n_rows: int) -> dict[str, int]:
    """LightGBM's own threads, for a fit of very many rows that has no other one beside it; its trees do not change."""
    return {"num_threads": idle_workers(boosting.n_jobs)} if n_rows >= VERY_MANY_ROWS else {}


class _Rounds:
    """A callback of LightGBM, after every round: the task may have to stop, and progress is told."""

    def __init__(self, progress: Progress, n_rounds: int):
        self._progress, self._left, self._work = progress, n_rounds, 0.0

    def __call__(self, environment: Any) -> None:
        stop_if_asked()
        if not self._work:
            data = environment.model.train_set
            self._work = work_of(data.num_data(), data.num_feature(), 1)
        self._left -= 1
        self._progress.did(self._work)

    def end(self) -> None:
        """Rounds that were not needed count as done: the next ensembles will not need all of theirs either."""
        self._progress.did(self._left * self._work, n_pieces=1)


def go_on(booster: Any, n_rounds: int) -> None:
    """Grow an ensemble that was stopped before until it has so many rounds."""
    _be_quiet()
    while booster.current_iteration() < n_rounds and not booster.update():
        stop_if_asked()


def _be_quiet() -> None:
    """LightGBM keeps what it may say for each thread, and learns it from the parameters of whatever is made there."""
    lightgbm.Dataset(np.zeros((1, 1)), params={"verbosity": -1}).construct()


def bin_blocks(
    boosting: Boosting, rows: Rows, sets: Sequence[np.ndarray], *, ahead: bool = True
) -> ColumnBlocks | None:
    """The columns of some sets, binned once for all of them, where there are many rows; at once, or when needed."""
    if len(rows) < MANY_ROWS:
        return None

    def make(columns: np.ndarray) -> lightgbm.Dataset:
        return boosting.on(columns).dataset(rows.on(columns), parameters=SHARED_BINS)

    return ColumnBlocks(make, sets, len(rows), boosting.n_jobs, ahead=ahead)


class Binned:
    """Some columns of rows, and parts of the rows for folds.  Columns of many rows are binned once, for all parts.

    Few rows are binned anew for each part: that takes no time, and a fold's bins are as fine as its own rows allow.

    Attributes
    ----------
    columns : ndarray
        In the order in which trees number them.
    """

    def __init__(self, boosting: Boosting, rows: Rows, columns: np.ndarray, blocks: ColumnBlocks | None):
        self._blocks = blocks
        self.columns = columns
        if blocks is None:
            self.rows = rows.on(columns)
        else:
            self.columns = blocks.order(columns)
            self.rows = replace(rows, X=None)  # the bins hold all that is needed
        self.boosting = boosting.on(self.columns)

    def boost_all(self, n_rounds: int, cost_weight: float = 0.0) -> lightgbm.Booster:
        """One ensemble on all rows."""
        if self.boosting.lambdarank is not None:
            data = self._part(np.arange(len(self.rows)))  # a copy: queries are put into it
        else:
            data = self.boosting.dataset(self.rows) if self._blocks is None else self._blocks.together(self.columns)
        parameters = self._parameters(len(self.rows), cost_weight) | _threads(self.boosting, len(self.rows))
        return _train(self.boosting, parameters, data, n_rounds)

    def boost_without(self, out: np.ndarray, cost_weight: float = 0.0) -> lightgbm.Booster:
        """An ensemble without some rows (bool), stopped early on them."""
        kept, out = np.flatnonzero(~out), np.flatnonzero(out)
        parameters = self._parameters(len(kept), cost_weight)
        train = self._part(kept)
        judges, most = out, MOST_JUDGES * max(1, self.boosting.n_rounds // 200)
        if self._blocks is not None:
            ranking = self.boosting.lambdarank
            judges = some_of(out, most) if ranking is None else ranking.some_of(out, most)
        return _train(self.boosting, parameters, train, self.boosting.n_rounds, self._part(judges, train))

    def _parameters(self, n_rows: int, cost_weight: float) -> dict[str, Any]:
        found = self.boosting.parameters(n_rows) | _prices(self.boosting, cost_weight, "lazy", n_rows)
        return found | ({} if self._blocks is None else SHARED_BINS)

    def _part(self, at: np.ndarray, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
        """The rows of the given numbers."""
        if self._blocks is None:
            part = self.boosting.dataset(self.rows.take(at), reference)
        else:
            part = self._blocks.together(self.columns, at)
            part.set_field("weight", mean_one(self.rows.weights[at]))  # `set_weight` ignores weights that are all 1
        ranking = self.boosting.lambdarank
        if ranking is None:
            return part
        if self._blocks is not None:
            part.set_field("init_score", None)  # blocks are made for the loss; `set_init_score` ignores None
        return ranking.put_into(part, self.rows, at)


class GainRegression:
    """Regressions of changing targets on the same columns of the same rows, which are binned once.

    Parameters
    ----------
    boosting : Boosting
        Whose columns of categories, seed and threads are taken.
    rows : Rows
        All rows, with weights of mean 1; targets are given to `fit`.
    at : int ndarray
        The rows to learn from.
    columns : ndarray
        The columns to learn from.
    blocks : ColumnBlocks or None
        Where they are binned already.

    Attributes
    ----------
    columns : ndarray
        In the order in which trees number them.
    """

    def __init__(
        self, boosting: Boosting, rows: Rows, at: np.ndarray, columns: np.ndarray, blocks: ColumnBlocks | None
    ):
        n_rows, weights = len(rows), rows.weights[at]
        self._parameters = REPEATABLE | GATE | {
            "min_data_in_leaf": max(5, min(100, n_rows // 60)),
            "seed": boosting.random_state,
            "num_threads": 1,
        }
        self._progress = boosting.progress
        self.columns = columns
        self._binned: lightgbm.Dataset
        if blocks is None:
            self._binned = lightgbm.Dataset(
                cells_at(rows.X, at, columns),
                np.zeros(len(at)),
                weight=weights,
                categorical_feature=list(boosting.on(columns).categorical),
                params=self._parameters | {"max_bin": GATE_BINS},
                free_raw_data=True,
            ).construct()
        else:
            self._parameters |= SHARED_BINS | {"max_bin": boosting.max_bin}
            self.columns = blocks.order(columns)
            self._binned = blocks.together(columns, at)
            self._binned.set_field("weight", weights)  # `set_weight` ignores weights that are all 1
            self._binned.set_field("init_score", None)  # those of the experts; `set_init_score` ignores None

    def fit(self, target: np.ndarray) -> lightgbm.Booster:
        """The regression of a target, one number for each of the rows to learn from."""
        # kept in training: LightGBM would write the model out and read it back, which takes longer than growing it
        rounds = _Rounds(self._progress, GATE_ROUNDS)
        booster = lightgbm.train(
            self._parameters,
            self._binned.set_label(target),
            GATE_ROUNDS,
            callbacks=[rounds],
            keep_training_booster=True,
        )
        rounds.end()
        return booster


def attributions(booster: lightgbm.Booster, X: np.ndarray, n_outputs: int) -> np.ndarray:
    """What each column contributed to each margin at some rows (SHAP), (n, n_columns + 1, n_outputs).

    The last of them is what is left: the mean.  Together they are the margin, but for the constant that boosting
    started from.
    """
    shares = booster.predict(X, num_iteration=rounds_of(booster), pred_contrib=True, num_threads=1)
    return np.asarray(shares).reshape(len(X), n_outputs, X.shape[1] + 1).transpose(0, 2, 1)
