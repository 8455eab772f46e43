"""What the three estimators share: validation of tables and arrays, the call of training, costs and paths."""

from __future__ import annotations

import copy
import sys
import warnings
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from ..costs import ResolvedCosts, as_cost_model
from ..frames import categories_of, encode, is_frame
from ..model import FittedTree, Schema
from ..objective import NodeParameters
from ..persistence import save
from ..training import Sample, Settings, Trained, train
from ._labels import check_queries
from ._parameters import check_parameters

__all__ = ["CSTCBase"]

MEAN_COST_ROWS = 2000
MOST_CATEGORIES = 65_535


class CSTCBase(BaseEstimator):
    """What the three estimators share."""

    _needs_queries = False
    _categories: dict[str, list]

    def __init__(
        self,
        *,
        costs=None,
        cost_weight=0.01,
        l1_weight=0.0,
        method="auto",
        depth=3,
        max_nodes=10,
        weak_learners="boosted",
        n_weak_learners=200,
        weak_learner_depth=4,
        learning_rate=0.1,
        early_stopping=20,
        cost_strengths=None,
        cross_fit=None,
        solver=None,
        max_iter=1000,
        tol=1e-5,
        pruning=True,
        fine_tuning=True,
        validation_fraction=0.2,
        categorical_features=None,
        dtype="float64",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.costs = costs
        self.cost_weight = cost_weight
        self.l1_weight = l1_weight
        self.method = method
        self.depth = depth
        self.max_nodes = max_nodes
        self.weak_learners = weak_learners
        self.n_weak_learners = n_weak_learners
        self.weak_learner_depth = weak_learner_depth
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.cost_strengths = cost_strengths
        self.cross_fit = cross_fit
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.pruning = pruning
        self.fine_tuning = fine_tuning
        self.validation_fraction = validation_fraction
        self.categorical_features = categorical_features
        self.dtype = dtype
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------------------

    def _fit(
        self, X, y, X_val, y_val, sample_weight, sample_weight_val, qid=None, qid_val=None, ensembles=None, start=None
    ):
        check_parameters(self)
        X, y, weights, qid = self._check_sample(X, y, sample_weight, qid, reset=True)
        names = self._feature_names()
        self.costs_ = as_cost_model(self.costs, len(names)).resolve(names)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        sample = Sample(X, y, weights, qid)
        validation = self._check_validation(X_val, y_val, sample_weight_val, qid_val)
        held_out = np.zeros(len(y), dtype=bool)
        settings = self._settings(names, seed)
        if settings.method == "experts":
            if len(y) < settings.cross_fit:
                raise ValueError(
                    f"{len(y)} training rows are fewer than the {settings.cross_fit} folds of the experts; "
                    "give more rows, or a smaller cross_fit"
                )
        else:
            if validation is None:
                held_out[self._hold_out(sample, seed)] = True
            n_nodes = min(2**settings.depth - 1, settings.max_nodes or 2**settings.depth)
            n_rows = int((~held_out).sum())
            if n_rows < n_nodes:
                raise ValueError(
                    f"{n_rows} training rows are fewer than the {n_nodes} nodes of the tree; "
                    "give more rows, or a smaller depth or max_nodes"
                )
        self._check_codes(X, names, settings.categorical)
        schema = Schema(names, dict(self._categories), np.isnan(X).any(axis=0), getattr(self, "classes_", None))
        trained = train(
            sample, validation, held_out, self._loss(), self.costs_, schema, settings, self._report, ensembles, start
        )
        self._take(trained)
        # weights of rows are numbers of rows; weights of classes say what errors matter, and change no bill
        rows = sample.weights / self._class_weights(sample.y)
        at = np.flatnonzero(rows)
        at = at[np.linspace(0, len(at) - 1, min(len(at), MEAN_COST_ROWS)).round().astype(int)]
        self.mean_cost_ = float(np.average(self.model_.predict_cost(X[at]), weights=rows[at]))
        if not trained.converged:
            warnings.warn(
                f"the loss still fell after max_iter={self.max_iter} steps; "
                f"a larger max_iter, or a tol above {self.tol:g}, ends this",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _take(self, trained: Trained) -> None:
        self.model_: FittedTree = trained.model
        self.loss_history_ = trained.loss_history
        self.n_iter_ = sum(len(stage) - 1 for stage in trained.loss_history)
        self._reached = trained.reached
        self._solution = trained.solution
        self.expected_cost_ = float(trained.reached @ trained.model.terminal_costs())

    def _state(self) -> dict:
        """All that a fitted estimator has beside its model, for JSON; `_restore` takes it."""
        return {
            "feature_names_in": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
            "loss_history": [stage.tolist() for stage in self.loss_history_],
            "reached": self._reached.tolist(),
            "mean_cost": self.mean_cost_,
            "solution": None if self._solution is None else {k: v.tolist() for k, v in vars(self._solution).items()},
        }

    def _restore(self, model: FittedTree, state: dict):
        """Become the fitted estimator that `model` and `state` came from."""
        history = [np.array(stage, dtype=float) for stage in state["loss_history"]]
        solution = state["solution"] and NodeParameters(**{k: np.array(v) for k, v in state["solution"].items()})
        self._take(Trained(model, history, True, np.array(state["reached"]), solution))
        self.costs_ = model.costs
        self.mean_cost_ = state["mean_cost"]
        self.n_features_in_ = len(model.schema.feature_names)
        self._categories = dict(model.schema.categories)
        if state["feature_names_in"] is not None:
            self.feature_names_in_ = np.array(state["feature_names_in"], dtype=object)
        if model.schema.classes is not None:
            self.classes_ = model.schema.classes
        return self

    def _check_sample(self, X, y, sample_weight, qid, *, reset):
        X = self._check_X(X, reset=reset)
        y = self._check_y(y, reset=reset)
        check_consistent_length(X, y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        weights = weights * self._class_weights(y)
        if not weights.sum() > 0:
            raise ValueError("all sample weights are zero; at least one row must count")
        if self._needs_queries:
            qid = check_queries(qid, y, "qid" if reset else "qid_val")
        if (weights == 0).any():  # a row without weight is a row that is not there
            at = np.flatnonzero(weights)
            X, y, weights, qid = X[at], y[at], weights[at], None if qid is None else qid[at]
            if reset:
                self._check_weighted(y)
        return X, y, weights, qid

    def _check_weighted(self, y):
        """What must hold of the rows that are left when those without weight are gone."""

    def _class_weights(self, y):
        return 1.0

    def _check_X(self, X, *, reset):
        if reset:
            self._categories = categories_of(X)
        checks = {
            "dtype": np.float64,
            "ensure_all_finite": "allow-nan" if self.weak_learners == "boosted" else True,
            "ensure_min_samples": 2 if reset else 1,
        }
        if not is_frame(X):
            return validate_data(self, X, reset=reset, **checks)
        # a table's names are checked on the table, its numbers on the encoded matrix
        _check_feature_names(self, X, reset=reset)
        matrix = check_array(encode(X, self._categories), estimator=self, input_name="X", **checks)
        _check_n_features(self, matrix, reset=reset)
        return matrix

    def _feature_names(self) -> list[str]:
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"x{j}" for j in range(self.n_features_in_)]

    def _check_validation(self, X_val, y_val, sample_weight_val, qid_val) -> Sample | None:
        if (X_val is None) != (y_val is None):
            missing = "y_val" if y_val is None else "X_val"
            raise ValueError(f"validation data needs both X_val and y_val; {missing} is missing")
        if X_val is not None:
            return Sample(*self._check_sample(X_val, y_val, sample_weight_val, qid_val, reset=False))
        if sample_weight_val is not None or qid_val is not None:
            raise ValueError("sample_weight_val and qid_val belong to X_val and y_val, which are missing")
        return None

    def _hold_out(self, sample: Sample, seed: int) -> np.ndarray:
        """The rows that judge the tree when no validation data is given."""
        rows = np.arange(len(sample.y))
        return train_test_split(
            rows, test_size=self.validation_fraction, random_state=seed, stratify=self._strata(sample.y)
        )[1]

    def _strata(self, y: np.ndarray) -> np.ndarray | None:
        return None

    def _settings(self, names: list[str], seed: int) -> Settings:
        method = self.method
        if method == "auto":
            method = "experts" if self.weak_learners == "boosted" else "refined"
        paper = method == "paper"
        strengths = (
            self.cost_strengths if self.cost_strengths is not None else ((0.0,) if paper else (64.0, 16.0, 4.0, 1.0))
        )
        cross_fit = self.cross_fit if self.cross_fit is not None else {"paper": 0, "refined": 3, "experts": 5}[method]
        jobs = None if self.n_jobs is None or self.n_jobs < 0 else self.n_jobs
        return Settings(
            cost_weight=float(self.cost_weight),
            l1_weight=float(self.l1_weight),
            method=method,
            depth=self.depth,
            max_nodes=self.max_nodes,
            weak_learners=self.weak_learners,
            n_weak_learners=self.n_weak_learners,
            weak_learner_depth=self.weak_learner_depth,
            learning_rate=self.learning_rate,
            early_stopping=self.early_stopping,
            cost_strengths=tuple(strengths),
            cross_fit=int(cross_fit),
            solver=self.solver or ("cyclic" if paper else "joint"),
            max_iter=self.max_iter,
            tol=self.tol,
            pruning=self.pruning,
            fine_tuning=self.fine_tuning,
            dtype=np.dtype(self.dtype).type,
            categorical=self._categorical_columns(names),
            random_state=seed,
            n_jobs=jobs,
        )

    def _categorical_columns(self, names: list[str]) -> tuple[int, ...]:
        columns = {names.index(name) for name in self._categories}
        listed = [] if self.categorical_features is None else self.categorical_features
        if isinstance(listed, str) or not all(isinstance(column, str | Integral) for column in listed):
            raise ValueError(f"categorical_features is {listed!r}; give a list of column numbers or names")
        for column in listed:
            if isinstance(column, str):
                if column not in names:
                    raise ValueError(f"categorical_features names {column!r}, which is no column of X: {names[:8]}")
                columns.add(names.index(column))
            elif not 0 <= int(column) < len(names):
                raise ValueError(f"categorical_features has {column}; X has columns 0 to {len(names) - 1}")
            else:
                columns.add(int(column))
        if columns and self.weak_learners == "identity":
            raise ValueError(
                f"column {names[min(columns)]!r} of X holds categories, and weak_learners='identity' needs numbers; "
                "give 0/1 columns, or weak_learners='boosted'"
            )
        return tuple(sorted(columns))

    def _check_codes(self, X: np.ndarray, names: list[str], columns: tuple[int, ...]) -> None:
        """A split has a place for every code up to the largest; LightGBM would take negative ones as missing."""
        for column in columns:
            codes = X[~np.isnan(X[:, column]), column]
            bad = codes[(codes < 0) | (codes > MOST_CATEGORIES) | (codes != np.round(codes))]
            if len(bad):
                raise ValueError(
                    f"column {names[column]!r} is categorical and holds the code {bad[0]:g}; codes must be whole "
                    f"numbers from 0 to {MOST_CATEGORIES}: number the categories from 0 on, or give them as text"
                )

    def _report(self, text: str) -> None:
        step = text.startswith(("step", "sweep"))
        if self.verbose > (1 if step else 0):
            print(f"[{type(self).__name__}] {text}", file=sys.stderr, flush=True)

    # -- using -----------------------------------------------------------------------------------------------

    def _margins(self, X) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.decision_function(self._check_X(X, reset=False))

    def predict_cost(self, X, counting="branch"):
        """Exact cost of each row: every item and every weak learner on its path is paid once.

        Parameters
        ----------
        X : array-like or table of shape (n, n_features)
        counting : {"branch", "learner"}, default="branch"
            "branch": the items on the branches that the row takes, what serving really pays.
            "learner": the paper's, all items of every used weak learner.

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        return self.model_.predict_cost(self._check_X(X, reset=False), counting)

    def apply(self, X):
        """The terminal element that each row reaches."""
        check_is_fitted(self)
        return self.model_.apply(self._check_X(X, reset=False))

    def with_costs(self, costs):
        """The same model under new prices, without refitting.

        Takes what the parameter `costs` takes; the model predicts as before and counts with the new prices.
        """
        check_is_fitted(self)
        resolved: ResolvedCosts = as_cost_model(costs, self.n_features_in_).resolve(self._feature_names())
        other = copy.copy(self)
        other.costs = costs
        other.costs_ = resolved
        other.model_ = self.model_.with_costs(resolved)
        other.expected_cost_ = float(self._reached @ other.model_.terminal_costs())
        # the training rows are gone: predict_cost gives the mean for any rows at hand
        other.__dict__.pop("mean_cost_", None)
        return other

    def save(self, path) -> None:
        """Write the fitted model into one file; `cstc.load` reads it without scikit-learn and LightGBM."""
        check_is_fitted(self)
        save(self.model_, path)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.weak_learners == "boosted"
        return tags
