"""What the three estimators share: validation of tables and arrays, the call of training, costs and paths."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
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

from ..boosting import Boosting
from ..capacity import FEW, Capacity
from ..cluster import Reading, workers_of
from ..costs import ResolvedCosts, as_cost_model, is_number, shorten
from ..engines import check_engine
from ..folders import is_path
from ..losses import Loss
from ..matrix import column_at, is_sparse, missing_columns, rows_at, to_csr
from ..method import CandidateRow, Method, OutOfFold, Problem, Ranking, Trained
from ..model import Decisions, FittedTree, Schema, Training
from ..model.file import save
from ..model.mixture import Mixture
from ..model.queries import QueryTree
from ..model.schema import Encoded, encode, refuse_one_row
from ..paper.objective import NodeParameters
from ..parallel import apart
from ..progress import Progress
from ..rows import Rows, check_queries
from ..serving.explain import as_one_row, is_mapping
from ..tables import booleans_of, categories_of, is_frame
from ._given import given_rows
from ._mean_cost import MOST_LOOKS, Build, meet
from ._methods import explain_unknown, method_of
from ._parameters import check_parameters, cost_weight_of

__all__ = ["CSTCBase", "all_or_nothing", "watched"]

MEAN_COST_ROWS = 2000
MOST_CATEGORIES = 65_535


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Where a fit fails or is interrupted, the estimator stays what it was: fitted before, or not at all."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@contextmanager
def watched(progress: Progress) -> Iterator[None]:
    """The last line of a progress, whatever happens."""
    try:
        yield
    except BaseException:
        progress.close(finished=False)
        raise
    progress.close()


class CSTCBase(BaseEstimator):
    """What the three estimators share."""

    _needs_queries = False
    _categories: dict[str, list]
    _booleans: frozenset[str]
    _column_numbers: list[int] | None = None  # the own names of a table's columns where they are numbers

    def __init__(
        self,
        *,
        costs=None,
        cost_weight=None,
        mean_cost=None,
        method="auto",
        weak_learners="boosted",
        n_weak_learners=None,
        weak_learner_depth=None,
        learning_rate=0.1,
        early_stopping=20,
        categorical_features=None,
        random_state=None,
        n_jobs=None,
        device="cpu",
        verbose=0,
    ):
        self.costs = costs
        self.cost_weight = cost_weight
        self.mean_cost = mean_cost
        self.method = method
        self.weak_learners = weak_learners
        self.n_weak_learners = n_weak_learners
        self.weak_learner_depth = weak_learner_depth
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def set_params(self, **params):
        """Set parameters, those of the method as ``method__name``.

        Returns
        -------
        self
        """
        valid = self.get_params(deep=False)
        method = params.get("method", self.method)
        for name in params:
            unknown = name not in valid and (name.partition("__")[0] != "method" or not isinstance(method, Method))
            explained = explain_unknown(name, method) if unknown else None
            if explained is not None:
                raise ValueError(explained)
        return super().set_params(**params)

    # -- fitting ---------------------------------------------------------------------------------------------

    def _fit(self, X, y, *, executor, scratch, **given):
        """`fit`, with whatever it was given: find the rows and the workers."""
        check_parameters(self)
        taught, judged = given_rows(self, X, y, **given)
        with workers_of(self._resolved_method(), executor, scratch) as workers:
            return self._fit_rows(taught, judged, workers=workers)

    def _fit_rows(self, taught: Rows, judged: Rows, *, shared=None, start=None, progress=None, workers=None):
        """Validate, hand over to the method, keep what it returns.

        `shared` is kept by a frontier for fits to the same rows, `start` is the solution of one of them, `progress` is
        told of all of them, and `workers` grow what is large.
        """
        check_parameters(self)
        with all_or_nothing(self):
            if progress is not None:
                return self._fit_watched(taught, judged, shared, start, progress, workers)
            n_looks = None if self.mean_cost is None else MOST_LOOKS
            own = Progress("cstc fit", self.verbose, speaker=type(self).__name__, n_models=n_looks)
            with watched(own):
                return self._fit_watched(taught, judged, shared, start, own, workers)

    def _fit_watched(self, taught, judged, shared, start, progress, workers):
        method = self._resolved_method()
        self._check_method(method)
        rows = self._check_rows(taught, reset=True)
        names = self._feature_names()
        self.costs_ = self._resolve_costs(self.costs)
        validation = self._check_validation(judged)
        if validation is not None and not method.uses_validation:
            raise ValueError(
                f"X_val and y_val are given, and {type(method).__name__} has no use for them: it is cross-fitted. Give "
                "these rows to fit too, or let a Frontier choose with them, or take method='paper'"
            )
        categorical = self._categorical_columns(names)
        self._check_codes(rows.X, names, categorical)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        loss, usual = self._loss(), method.capacity(len(rows) if rows.more is None else rows.more.n_per_fit)
        boosting = self._boosting(loss, self.costs_, categorical, seed, usual)
        boosting = replace(boosting, progress=progress, workers=workers, engine=method.engine_on(self.device))
        check_engine(boosting, rows.X)
        problem = Problem(
            rows=rows,
            validation=validation,
            loss=loss,
            costs=self.costs_,
            schema=self._schema(rows),
            cost_weight=cost_weight_of(self),
            weak_learners=self.weak_learners,
            boosting=boosting,
            random_state=seed,
            progress=progress,
            shared={} if shared is None else shared,
            decisions=self._decisions(),
            whole_queries=self._whole_queries(),
            ranking=self._ranking(),
            start=start,
        )
        if self.mean_cost is None:
            trained = apart(lambda: self._with_training(method.train(problem), rows), progress.draw)
            self.cost_weight_: float | tuple[float, float] = problem.cost_weight
        else:
            trained, self.cost_weight_ = apart(lambda: self._meet_mean_cost(method, problem), progress.draw)
        self._take(trained)
        self.mean_cost_ = trained.model.training.mean_cost
        if not trained.converged:
            warnings.warn(
                f"the loss still fell after max_iter={method.max_iter} steps; "
                f"a larger max_iter of the method, or a tol above {method.tol:g}, ends this",
                ConvergenceWarning,
                stacklevel=5,
            )
        return self

    def _meet_mean_cost(self, method: Method, problem: Problem) -> tuple[Trained, float | tuple[float, float]]:
        """The model whose mean cost is `mean_cost`, and its cost weight; or a mixture, and both."""

        def preview(weight: float) -> tuple[float, Build]:
            found = method.preview(replace(problem, cost_weight=weight))
            cost = float(np.average(found.costs, weights=found.rows.weights / self._class_weights(found.rows.y)))

            def build() -> tuple[Trained, float]:
                trained = self._with_training(found.build(), problem.rows)
                if method.uses_validation:  # rows that were held out are new ones
                    return trained, cost
                # out of fold whole stages are paid for; on their branches rows pay what `reached` of them do
                by_stages = float(np.average(found.costs, weights=found.rows.weights))
                by_branches = float(trained.reached @ self._terminal_means(trained.model, problem.rows))
                part = by_branches / by_stages if by_stages > 0 else 1.0
                return trained, max(cost * part, trained.model.training.mean_cost or 0.0)

            return cost, build

        return meet(float(self.mean_cost), preview, problem)

    def _terminal_means(self, model: FittedTree | QueryTree, rows: Rows) -> np.ndarray:
        """What training rows pay on average that end at each terminal; where none does, what its path may cost."""
        at = self._some_rows(rows, rows.weights)
        terminals, costs = self._ends_and_costs(model, rows, at)
        sums = np.bincount(terminals, rows.weights[at] * costs, minlength=model.n_terminals)
        weights = np.bincount(terminals, rows.weights[at], minlength=model.n_terminals)
        return np.where(weights > 0, sums / np.where(weights > 0, weights, 1.0), model.terminal_costs())

    def _with_training(self, trained: Trained, rows: Rows) -> Trained:
        model = trained.model
        return replace(trained, model=model.with_training(self._look_back(model, rows)))

    def _resolve_costs(self, costs) -> ResolvedCosts:
        names = self._feature_names()
        return as_cost_model(costs, len(names)).resolve(names, self._column_numbers)

    def _resolved_method(self) -> Method:
        return method_of(self.method, self.weak_learners)

    def _boosting(
        self, loss: Loss, costs: ResolvedCosts, categorical: tuple[int, ...], seed: int, usual: Capacity = FEW
    ) -> Boosting:
        depth = self.weak_learner_depth
        return Boosting(
            loss=loss,
            costs=costs,
            n_rounds=usual.n_rounds if self.n_weak_learners is None else self.n_weak_learners,
            depth=usual.depth if depth is None else depth,
            n_leaves=usual.n_leaves if depth is None else None,
            learning_rate=self.learning_rate,
            early_stopping=self.early_stopping,
            categorical=categorical,
            random_state=seed,
            n_jobs=None if self.n_jobs is None or self.n_jobs < 0 else self.n_jobs,
            device=self.device,
        )

    def _schema(self, rows: Rows) -> Schema:
        classes = getattr(self, "classes_", None)
        # trees are averaged where a value is not to be had; a column that is used as it is needs something in its place
        means = rows.X.mean(axis=0, dtype=float) if self.weak_learners == "identity" else None
        names, may_miss = self._feature_names(), missing_columns(rows.X)
        return Schema(names, dict(self._categories), may_miss, classes, self._booleans, means)

    def _look_back(self, model: FittedTree | QueryTree, rows: Rows) -> Training:
        """What training rows pay and where they end, by one walk over some of them.

        `Trained.reached` is no measure of the latter: under `Paper` it is soft, and serving is not.

        Weights of rows are numbers of rows; weights of classes say what errors matter, and change no bill.
        """
        weights = rows.weights / self._class_weights(rows.y)
        at = self._some_rows(rows, weights)
        terminals, costs = self._ends_and_costs(model, rows, at)
        shares = np.bincount(terminals, weights[at], minlength=model.shape.n_terminals) / weights[at].sum()
        return Training(rows=len(rows), mean_cost=float(np.average(costs, weights=weights[at])), reached=shares)

    @staticmethod
    def _ends_and_costs(model: Any, rows: Rows, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where some rows end, and what they pay."""
        return model.ends_and_costs(rows_at(rows.X, at), None if rows.qid is None else rows.qid[at])

    def _some_rows(self, rows: Rows, weights: np.ndarray) -> np.ndarray:
        """At most so many of the rows that count, evenly spaced; of whole queries about as many."""
        at = np.flatnonzero(weights)
        if self._whole_queries() is not None:
            _, query = np.unique(rows.qid[at], return_inverse=True)
            n = query.max() + 1
            most = max(1, min(n, MEAN_COST_ROWS * n // len(at)))
            return at[np.isin(query, np.linspace(0, n - 1, most).round().astype(int))]
        return at[np.linspace(0, len(at) - 1, min(len(at), MEAN_COST_ROWS)).round().astype(int)]

    def _take(self, trained: Trained) -> None:
        self.model_: FittedTree | Mixture | QueryTree = trained.model
        self.loss_history_ = trained.loss_history
        self.n_iter_ = sum(len(stage) - 1 for stage in trained.loss_history)
        self._reached = trained.reached
        self._solution = trained.solution
        self.candidates_ = list(trained.candidates)
        self._out_of_fold = trained.out_of_fold
        self.expected_cost_ = float(trained.reached @ trained.model.terminal_costs())

    def _as_trained(self) -> Trained:
        """What `_take` was given."""
        found = self.loss_history_, True, self._reached, self._solution, self.candidates_, self._out_of_fold
        return Trained(self.model_, *found, getattr(self, "objective_", "regression"))

    def _state(self) -> dict:
        """All that a fitted estimator has beside its model, for JSON; `_restore` takes it."""
        return {
            "feature_names_in": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
            "column_numbers": self._column_numbers,
            "loss_history": [stage.tolist() for stage in self.loss_history_],
            "reached": self._reached.tolist(),
            "mean_cost": self.mean_cost_,
            "candidates": [list(candidate) for candidate in self.candidates_],
            "out_of_fold": None if self._out_of_fold is None else self._out_of_fold.to_json(),
            "objective": getattr(self, "objective_", "regression"),
            "solution": None if self._solution is None else {k: v.tolist() for k, v in vars(self._solution).items()},
        }

    def _restore(self, model: FittedTree | QueryTree, state: dict):
        """Become the fitted estimator that `model` and `state` came from."""
        history = [np.array(stage, dtype=float) for stage in state["loss_history"]]
        solution = state["solution"] and NodeParameters(**{k: np.array(v) for k, v in state["solution"].items()})
        candidates = [CandidateRow(*row) for row in state["candidates"]]
        unseen = state["out_of_fold"] and OutOfFold.from_json(state["out_of_fold"])
        reached, objective = np.array(state["reached"]), state.get("objective", "regression")
        self._take(Trained(model, history, True, reached, solution, candidates, unseen, objective))
        self.cost_weight_ = cost_weight_of(self)
        self.costs_ = model.costs
        self.mean_cost_ = state["mean_cost"]
        self.n_features_in_ = len(model.schema.feature_names)
        self._categories = dict(model.schema.categories)
        self._booleans = model.schema.booleans
        self._column_numbers = state["column_numbers"]
        if state["feature_names_in"] is not None:
            self.feature_names_in_ = np.array(state["feature_names_in"], dtype=object)
        if model.schema.classes is not None:
            self.classes_ = model.schema.classes
        return self

    def _check_rows(self, given: Rows, *, reset) -> Rows:
        X = self._check_X(given.X, reset=reset)
        y = self._check_y(given.y, reset=reset)
        check_consistent_length(X, y)
        weights = _check_sample_weight(given.weights, X, dtype=np.float64, ensure_non_negative=True)
        by_class = self._class_weights(y)
        weights = weights * by_class
        if not weights.sum() > 0:
            raise ValueError("all sample weights are zero; at least one non-zero weight is needed")
        qid = check_queries(given.qid, y, "qid" if reset else "qid_val") if self._needs_queries else given.qid
        rows = Rows(X, y, weights, qid)
        if given.part is not None and reset:
            reading = self._reading(X, y, by_class)
            more = None if given.more is None else given.more.read_as(reading)
            rows = replace(rows, part=given.part.read_as(reading), more=more)
        if (weights == 0).any():  # a row without weight is a row that is not there
            rows = rows.take(np.flatnonzero(weights))
            if reset:
                self._check_weighted(rows.y)
        return rows

    def _reading(self, X, y, by_class) -> Reading:
        """All that others must know to read rows of a folder as they were read here."""
        classes = getattr(self, "classes_", None)
        of_classes = None
        if classes is not None:
            of_classes = np.ones(len(classes))
            of_classes[y] = by_class
        names = tuple(self._feature_names())
        return Reading(names, self._categories, X.dtype.str, classes, of_classes)

    def _check_method(self, method: Method) -> None:
        """What parameters of an estimator do not go with a method."""

    def _whole_queries(self) -> int | None:
        """Where gates see places: by how many of the best of a query."""
        return None

    def _decisions(self) -> Decisions | None:
        """What errors cost, where they have prices."""
        return None

    def _ranking(self) -> Ranking | None:
        """What is asked of a ranking, where rows are ranked."""
        return None

    def _check_weighted(self, y):
        """What must hold of the rows that are left when those without weight are gone."""

    def _class_weights(self, y):
        return 1.0

    def _check_X(self, X, *, reset, strange=None):
        """The matrix of rows; columns with categories that training did not see are added to `strange`."""
        if is_path(X):
            raise TypeError(f"X is {str(X)!r}, and rows are needed here; cstc.predict_partitions reads folders")
        refuse_one_row(X)
        if reset:
            self._categories = categories_of(X)
            self._booleans = booleans_of(X)
            self._column_numbers = _column_numbers(X)
        checks = {
            "dtype": [np.float64, np.float32],  # single precision stays as it is; all else becomes double precision
            "ensure_all_finite": "allow-nan" if self.weak_learners == "boosted" else True,
            "ensure_min_samples": 2 if reset else 1,
        }
        if is_sparse(X):
            if self.weak_learners != "boosted":
                raise ValueError(
                    f"X is a sparse matrix, and weak_learners={self.weak_learners!r} needs a dense one; "
                    "give X.toarray(), or weak_learners='boosted'"
                )
            return csr_matrix(validate_data(self, to_csr(X), reset=reset, accept_sparse="csr", **checks))
        if not is_frame(X):
            return validate_data(self, X, reset=reset, **checks)
        # a table's names are checked on the table, its numbers on the encoded matrix
        _check_feature_names(self, X, reset=reset)
        own, found = self._column_numbers, _column_numbers(X)
        if own is not None and found is not None and found != own:  # scikit-learn looks at names that are text only
            raise ValueError(
                f"X has the columns {shorten(map(str, found))}; the model was fitted to {shorten(map(str, own))}, "
                "in this order"
            )
        matrix = check_array(encode(X, self._categories, strange=strange), estimator=self, input_name="X", **checks)
        _check_n_features(self, matrix, reset=reset)
        return matrix

    def _feature_names(self) -> list[str]:
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"x{j}" for j in range(self.n_features_in_)]

    def _check_validation(self, given: Rows) -> Rows | None:
        if (given.X is None) != (given.y is None):
            missing = "y_val" if given.y is None else "X_val"
            raise ValueError(f"validation data needs both X_val and y_val; {missing} is missing")
        if given.X is not None:
            return self._check_rows(given, reset=False)
        if given.weights is not None or given.qid is not None:
            raise ValueError("sample_weight_val and qid_val belong to X_val and y_val, which are missing")
        return None

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

    def _check_codes(self, X, names: list[str], columns: tuple[int, ...]) -> None:
        """A split has a place for every code up to the largest; LightGBM would take negative ones as missing."""
        for column in columns:
            codes = column_at(X, column)
            codes = codes[~np.isnan(codes)]
            bad = codes[(codes < 0) | (codes > MOST_CATEGORIES) | (codes != np.round(codes))]
            if len(bad):
                raise ValueError(
                    f"column {names[column]!r} is categorical and holds the code {bad[0]:g}; codes must be whole "
                    f"numbers from 0 to {MOST_CATEGORIES}: number the categories from 0 on, or give them as text"
                )

    # -- using -----------------------------------------------------------------------------------------------

    def _rows(self, X) -> Encoded:
        """Rows for the model, which says once what it makes of values that training did not see."""
        strange: set[str] = set()
        return Encoded(self._check_X(X, reset=False, strange=strange), frozenset(strange))

    def _margins(self, X, ids=None, qid=None) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.decision_function(self._rows(X), ids=ids, qid=qid)

    def _predict(self, X, ids, **options):
        check_is_fitted(self)
        return self.model_.predict(self._rows(X), ids=ids, **options)

    def _cost_of(self, X, counting, **options):
        check_is_fitted(self)
        return self.model_.predict_cost(self._rows(X), counting, **options)

    def predict_cost(self, X, counting="branch", *, budget=None, unavailable=(), ids=None):
        """Exact cost of each row: every item and every weak learner on its path is paid once.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, n_features)
        counting : {"branch", "learner"}, default="branch"
            "branch": the items on the branches that the row takes, what serving really pays.
            "learner": the paper's, all items of every used weak learner.
        budget, unavailable, ids : optional
            As in `predict`; a budget is counted by branches.

        Returns
        -------
        ndarray of shape (n,)
        """
        return self._cost_of(X, counting, budget=budget, unavailable=unavailable, ids=ids)

    def explain(self, row, *, budget=None, unavailable=(), id=None, number=0):
        """Step by step, how the answer for one row comes about: what is bought, why, and what it changes.

        Parameters
        ----------
        row : table or matrix of one row, array of values, or mapping of names to values
            Of a mapping, only what the path of the row asks for is needed.
        budget, unavailable : optional
            As in `predict`.
        id, number : optional
            The id of the row, or its number in the table that `predict` was given: where the model is a `Mixture`, it
            decides which of its two models answers.

        Returns
        -------
        cstc.serving.Explanation
            An object; as text with `print`, with `to_json` and with `to_html`.
        """
        check_is_fitted(self)
        row = row if is_mapping(row) else self._rows(as_one_row(row))
        by_id = {"id": id, "number": number} if isinstance(self.model_, Mixture) else {}
        return self.model_.explain(row, budget=budget, unavailable=unavailable, **by_id)

    def item_importance(self, X, y=None, *, ids=None):
        """For each item, the share of rows that buy it, the money that is spent on it, and the loss that it saves.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, n_features)
        y : array-like of shape (n,), optional
            With labels, the loss that is observed when the item is not to be had, less that with it; without them,
            what the steps that bought the item were expected to save in training (None where that is not known).
        ids : optional
            As in `predict`.

        Returns
        -------
        cstc.serving.ItemTable
            One row for each item that the model may buy, the one that most is spent on first; ``to_pandas()``.
        """
        check_is_fitted(self)
        return self.model_.item_importance(self._rows(X), y, ids=ids)

    def apply(self, X, *, ids=None):
        """The terminal element that each row reaches; those of the second model of a mixture come after the first's."""
        check_is_fitted(self)
        return self.model_.apply(self._rows(X), ids=ids)

    def with_limit(self, limit):
        """The same model with a hard budget of its own: no row pays more, wherever it is answered.

        `limit` is counted by branches, as `budget` is, and stays with the model when it is saved; None takes it off.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other.model_ = self.model_.with_limit(limit)
        other.__dict__.pop("mean_cost_", None)  # the training rows are gone
        return other

    def with_costs(self, costs):
        """The same model under new prices, without refitting.

        Takes what the parameter `costs` takes; the model predicts as before and counts with the new prices.
        """
        check_is_fitted(self)
        resolved = self._resolve_costs(costs)
        other = copy.copy(self)
        other.costs = costs
        other.costs_ = resolved
        other.model_ = self.model_.with_costs(resolved)
        other.expected_cost_ = float(self._reached @ other.model_.terminal_costs())
        # the training rows are gone: predict_cost gives the mean for any rows at hand
        other.__dict__.pop("mean_cost_", None)
        return other

    # -- showing ---------------------------------------------------------------------------------------------

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._sketch()

    def _repr_mimebundle_(self, **kwargs) -> dict:
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:  # not where scikit-learn is told to show text
            bundle["text/html"] += self._sketch()
        return bundle

    def _sketch(self) -> str:
        """The tree of a fitted estimator, below scikit-learn's own diagram in notebooks."""
        return self.model_._repr_html_() if hasattr(self, "model_") else ""

    def save(self, path, *, trained=None) -> None:
        """Write the fitted model into one file; `cstc.load` reads it without scikit-learn and LightGBM.

        `trained`, a date, is kept in the file if it is given.
        """
        check_is_fitted(self)
        save(self.model_, path, trained=trained)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.weak_learners == "boosted"
        tags.input_tags.sparse = self.weak_learners == "boosted"
        return tags


def _column_numbers(X) -> list[int] | None:
    names = list(getattr(X, "columns", [])) if is_frame(X) else []
    return [int(name) for name in names] if names and all(map(is_number, names)) else None
