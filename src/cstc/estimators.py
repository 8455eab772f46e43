"""CSTCRegressor, CSTCClassifier and CSTCRanker: validate, train, hand over to the fitted model."""

from __future__ import annotations

import copy
import sys
import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupShuffleSplit, train_test_split
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from .costs import ResolvedCosts, as_cost_model
from .frames import categories_of, encode, is_frame
from .losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from .metrics import ndcg
from .model import FittedTree, Schema
from .persistence import save
from .solver import SOLVERS
from .training import METHODS, Sample, Settings, Trained, train
from .tree import TreeShape

__all__ = ["CSTCClassifier", "CSTCRanker", "CSTCRegressor"]

_PARAMETERS = """
    Parameters
    ----------
    costs : CostModel, array-like, mapping, path or None, default=None
        What features cost: one price per column, a mapping from column names to prices, the path of a
        CSV file, or a `CostModel` with shared items.  None: 1 for each feature.
    cost_weight : float, default=0.01
        The paper's lambda: how much risk one unit of cost is worth.
    l1_weight : float, default=0.0
        The paper's rho: strength of the l1 penalty on the weights of every node.
    method : {{"refined", "paper"}}, default="refined"
        The default procedure, or the paper's, letter by letter.
    depth : int, default=3
        Levels of classifiers in the tree.
    max_nodes : int or None, default=10
        At most so many classifiers, counted by breadth.
    weak_learners : {{"boosted", "identity"}}, default="boosted"
        Boosted trees of limited depth, or the inputs themselves, unscaled.
    n_weak_learners : int, default=200
        Rounds of boosting at most.
    weak_learner_depth : int, default=4
        Depth of a weak learner.
    learning_rate : float, default=0.1
        Shrinkage of boosting.
    early_stopping : int or None, default=20
        Stop boosting after so many rounds without a better validation score; None: never.
    cost_strengths : tuple of float or None, default=None
        Grow one ensemble of weak learners for each entry, with a split paying `entry * cost_weight * price` per
        row for what the row has not bought yet; 0 is blind to cost.  None: {strengths}
    cross_fit : int or None, default=None
        With 2 or more, training rows see leaf values that were estimated without their own fold.
        None: {cross_fit}
    solver : {{"joint", "cyclic"}} or None, default=None
        All nodes at once, or the paper's one node at a time.  None: the one that the method names.
    max_iter : int, default=200
        Steps (joint) or sweeps (cyclic) at most, in every stage.
    tol : float, default=1e-6
        Stop when a step lowers the loss by less than this part of it.
    pruning : bool, default=True
        Prune the tree on validation data (method "paper"; the default method always does).
    fine_tuning : bool, default=True
        Fine-tune the predictive classifiers (method "paper"; the default method always does).
    validation_fraction : float, default=0.2
        Part of the training data that is held out when `fit` is given no validation data{queries}.
    categorical_features : sequence of int or str, or None, default=None
        Columns whose numbers are categories.  Text and categorical columns of a table always are.
    dtype : {{"float64", "float32"}}, default="float64"
        Precision of the learner outputs that the solver works on.{class_weight}
    random_state : int, RandomState or None, default=None
        Seed of the held-out part, of the folds and of boosting.
    n_jobs : int or None, default=None
        Threads of boosting; None or -1: all cores.
    verbose : int, default=0
        1 shows what is going on, 2 every step of the solver."""

_ATTRIBUTES = """
    Attributes
    ----------
    model_ : FittedTree
        The fitted model as flat arrays.
    costs_ : ResolvedCosts
        Items, prices and which feature requires which item.
    expected_cost_ : float
        Soft sum of traversal probability times exact path cost on the training data (counting="learner").
    mean_cost_ : float
        Mean of `predict_cost` on the training data.
    loss_history_ : list of ndarray
        For each stage of training (one, in the paper's method), the loss after every step.
    n_iter_ : int
        Steps of the solver, all stages together.
    n_features_in_, feature_names_in_
        As in scikit-learn."""


def _document(*, queries: bool = False, class_weight: bool = False) -> str:
    """The parameters of one estimator: the three differ in few words."""
    weight = """
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with the sample weights."""
    return _PARAMETERS.format(
        strengths="(0,) for the paper, (64, 16, 4, 1) otherwise.",
        cross_fit="off for the paper, 3 otherwise.",
        queries=" (whole queries)" if queries else "",
        class_weight=weight if class_weight else "",
    )


class _CSTCBase(BaseEstimator):
    """What the three estimators share."""

    _needs_queries = False

    def __init__(
        self,
        *,
        costs=None,
        cost_weight=0.01,
        l1_weight=0.0,
        method="refined",
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
        max_iter=200,
        tol=1e-6,
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

    def _fit(self, X, y, X_val, y_val, sample_weight, sample_weight_val, qid=None, qid_val=None):
        self._check_parameters()
        X, y, weights, qid = self._check_sample(X, y, sample_weight, qid, reset=True)
        names = self._feature_names()
        self.costs_ = as_cost_model(self.costs, len(names)).resolve(names)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        sample = Sample(X, y, weights, qid)
        validation = self._check_validation(X_val, y_val, sample_weight_val, qid_val)
        held_out = np.zeros(len(y), dtype=bool)
        if validation is None:
            held_out[self._hold_out(sample, seed)] = True
        settings = self._settings(names, seed)
        n_nodes = TreeShape.full(settings.depth, settings.max_nodes).n_nodes
        n_rows = int((~held_out).sum())
        if n_rows < n_nodes:
            raise ValueError(
                f"{n_rows} training rows are fewer than the {n_nodes} nodes of the tree; "
                "give more rows, or a smaller depth or max_nodes"
            )
        schema = Schema(names, dict(self._categories), np.isnan(X).any(axis=0), getattr(self, "classes_", None))
        trained = train(sample, validation, held_out, self._loss(), self.costs_, schema, settings, self._report)
        self._take(trained)
        self.mean_cost_ = float(np.average(self.model_.predict_cost(sample.X), weights=sample.weights))
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
        self.expected_cost_ = float(trained.reached @ trained.model.terminal_costs())

    def _check_sample(self, X, y, sample_weight, qid, *, reset):
        X = self._check_X(X, reset=reset)
        y = self._check_y(y, reset=reset)
        check_consistent_length(X, y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        weights = weights * self._class_weights(y)
        if not weights.sum() > 0:
            raise ValueError("all sample weights are zero; at least one row must count")
        if self._needs_queries:
            qid = _check_queries(qid, y, "qid" if reset else "qid_val")
        if (weights == 0).any():  # a row without weight is a row that is not there
            at = np.flatnonzero(weights)
            X, y, weights, qid = X[at], y[at], weights[at], None if qid is None else qid[at]
        return X, y, weights, qid

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
        paper = self.method == "paper"
        strengths = (
            self.cost_strengths if self.cost_strengths is not None else ((0.0,) if paper else (64.0, 16.0, 4.0, 1.0))
        )
        cross_fit = self.cross_fit if self.cross_fit is not None else (0 if paper else 3)
        jobs = None if self.n_jobs is None or self.n_jobs < 0 else self.n_jobs
        return Settings(
            cost_weight=float(self.cost_weight),
            l1_weight=float(self.l1_weight),
            method=self.method,
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

    def _check_parameters(self) -> None:
        """Every parameter that can be wrong, with what would be right."""
        for name in ("cost_weight", "l1_weight", "tol"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not np.isfinite(float(value)) or value < 0:
                raise ValueError(f"{name} is {value!r}; it must be a finite number, 0 or more")
        for name in ("depth", "n_weak_learners", "weak_learner_depth", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a whole number, 1 or more")
        for name in ("max_nodes", "early_stopping"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Integral) or value < 1):
                raise ValueError(f"{name} is {value!r}; it must be None or a whole number, 1 or more")
        folds = self.cross_fit
        if folds is not None and (not isinstance(folds, Integral) or folds < 0 or folds == 1):
            raise ValueError(f"cross_fit is {folds!r}; it must be None, 0 (off) or a number of folds, 2 or more")
        if folds and self.method == "paper":
            raise ValueError("cross_fit belongs to the default method; leave it out for method='paper'")
        for name in ("learning_rate", "validation_fraction"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) < (1 if name == "validation_fraction" else np.inf):
                raise ValueError(f"{name} is {value!r}; it must be above 0 and, for a fraction, below 1")
        choices = {
            "method": METHODS,
            "weak_learners": ("boosted", "identity"),
            "solver": (None, *SOLVERS),
            "dtype": ("float64", "float32"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be one of {allowed}")
        for name in ("pruning", "fine_tuning"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be True or False")
        if not isinstance(self.verbose, Integral) or self.verbose < 0:
            raise ValueError(f"verbose is {self.verbose!r}; it must be 0, 1 or 2")
        if self.n_jobs is not None and (not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise ValueError(f"n_jobs is {self.n_jobs!r}; it must be None, -1 (all cores) or a number of threads")
        if self.cost_strengths is not None:
            strengths = self.cost_strengths
            numbers = not np.isscalar(strengths) and all(isinstance(strength, Real) for strength in strengths)
            if not numbers or not len(strengths) or not np.isfinite(strengths).all() or np.min(strengths) < 0:
                raise ValueError(f"cost_strengths is {strengths!r}; give a list of finite numbers, 0 or more")

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


class CSTCRegressor(RegressorMixin, _CSTCBase):
    __doc__ = f"""Cost-sensitive tree of regressors: squared risk at every node.

    Each input takes its own path through the tree and buys only the features that this path needs.
    {_document()}
    {_ATTRIBUTES}

    References
    ----------
    Xu, Kusner, Weinberger, Chen: Cost-Sensitive Tree of Classifiers. ICML 2013.

    Examples
    --------
    >>> from cstc import CSTCRegressor
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> X, y = make_quadrants(1200, random_state=0)
    >>> model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
    >>> model = model.fit(X[:1000], y[:1000])
    >>> round(model.score(X[1000:], y[1000:]), 3), float(model.predict_cost(X[1000:]).mean())
    (1.0, 12.0)
    """

    def fit(self, X, y, *, X_val=None, y_val=None, sample_weight=None, sample_weight_val=None):
        """Fit the tree.

        Parameters
        ----------
        X : array-like or table of shape (n, n_features)
        y : array-like of shape (n,)
        X_val, y_val : like X and y, optional
            Validation data for early stopping, pruning and fine-tuning; a part of X is held out otherwise.
        sample_weight, sample_weight_val : array-like of shape (n,), optional

        Returns
        -------
        self
        """
        return self._fit(X, y, X_val, y_val, sample_weight, sample_weight_val)

    def predict(self, X):
        """Predicted values of shape (n,)."""
        return self._margins(X)[:, 0]

    def _check_y(self, y, *, reset):
        return _check_numbers(y)

    def _loss(self):
        return SquaredLoss()


class CSTCClassifier(ClassifierMixin, _CSTCBase):
    __doc__ = f"""Cost-sensitive tree of classifiers: logistic risk for two classes, softmax risk for more.

    Each input takes its own path through the tree and buys only the features that this path needs.
    {_document(class_weight=True)}
    {_ATTRIBUTES}
    classes_ : ndarray of shape (n_classes,)

    References
    ----------
    Xu, Kusner, Weinberger, Chen: Cost-Sensitive Tree of Classifiers. ICML 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from cstc import CSTCClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = CSTCClassifier(cost_weight=0.01, random_state=0).fit(X[:400], y[:400])
    >>> bool(model.score(X[400:], y[400:]) > 0.9), bool(model.predict_cost(X[400:]).mean() < 10)
    (True, True)
    """

    def __init__(
        self,
        *,
        costs=None,
        cost_weight=0.01,
        l1_weight=0.0,
        method="refined",
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
        max_iter=200,
        tol=1e-6,
        pruning=True,
        fine_tuning=True,
        validation_fraction=0.2,
        categorical_features=None,
        dtype="float64",
        class_weight=None,
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        super().__init__(
            costs=costs,
            cost_weight=cost_weight,
            l1_weight=l1_weight,
            method=method,
            depth=depth,
            max_nodes=max_nodes,
            weak_learners=weak_learners,
            n_weak_learners=n_weak_learners,
            weak_learner_depth=weak_learner_depth,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            cost_strengths=cost_strengths,
            cross_fit=cross_fit,
            solver=solver,
            max_iter=max_iter,
            tol=tol,
            pruning=pruning,
            fine_tuning=fine_tuning,
            validation_fraction=validation_fraction,
            categorical_features=categorical_features,
            dtype=dtype,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(self, X, y, *, X_val=None, y_val=None, sample_weight=None, sample_weight_val=None):
        """Fit the tree.

        Parameters
        ----------
        X : array-like or table of shape (n, n_features)
        y : array-like of shape (n,)
            Two or more classes.
        X_val, y_val : like X and y, optional
            Validation data for early stopping, pruning and fine-tuning; a part of X is held out otherwise.
        sample_weight, sample_weight_val : array-like of shape (n,), optional

        Returns
        -------
        self
        """
        return self._fit(X, y, X_val, y_val, sample_weight, sample_weight_val)

    def decision_function(self, X):
        """Margins: shape (n,) for two classes, (n, n_classes) for more."""
        margins = self._margins(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict_proba(self, X):
        """Probabilities of shape (n, n_classes), in the order of `classes_`."""
        check_is_fitted(self)
        return self.model_.predict_proba(self._check_X(X, reset=False))

    def predict(self, X):
        """Predicted classes of shape (n,)."""
        margins = self._margins(X)
        return self.model_.answers(margins)

    def _class_weights(self, y):
        weights = compute_sample_weight(self.class_weight, self.classes_[y])
        if (weights < 0).any():
            raise ValueError(f"class_weight is {self.class_weight!r}; weights must be 0 or more")
        return weights

    def _check_y(self, y, *, reset):
        y = column_or_1d(y, warn=reset)
        _check_labels(y)
        check_classification_targets(y)
        if reset:
            self.classes_, codes = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise ValueError(f"y holds one class, {self.classes_.tolist()}; a classifier needs at least 2 classes")
            return codes
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            found = y[unknown].tolist()[0]
            raise ValueError(f"y_val holds {found!r}, a class that y does not have; y has {self.classes_.tolist()}")
        return np.searchsorted(self.classes_, y)

    def _strata(self, y):
        """The classes, where each is large enough to stand on both sides."""
        counts = np.bincount(y)
        n_held = int(np.ceil(self.validation_fraction * len(y)))
        enough = counts.min() >= 2 and min(n_held, len(y) - n_held) >= len(counts)
        return y if enough else None

    def _loss(self):
        return LogisticLoss() if len(self.classes_) == 2 else SoftmaxLoss(len(self.classes_))


class CSTCRanker(_CSTCBase):
    __doc__ = f"""Cost-sensitive tree for ranking: squared risk on the grades, judged by NDCG@5.

    Each document takes its own path through the tree and buys only the features that this path needs.
    {_document(queries=True)}
    {_ATTRIBUTES}

    References
    ----------
    Xu, Kusner, Weinberger, Chen: Cost-Sensitive Tree of Classifiers. ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc import CSTCRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 5)), np.repeat(np.arange(60), 10)
    >>> grades = np.clip(np.round(X[:, 0] + 1), 0, 4)
    >>> model = CSTCRanker(costs=[1, 5, 5, 5, 5], random_state=0).fit(X, grades, qid=qid)
    >>> bool(model.score(X, grades, qid=qid) > 0.9), float(model.predict_cost(X).mean())
    (True, 1.0)
    """

    _needs_queries = True

    def fit(self, X, y, *, qid=None, X_val=None, y_val=None, qid_val=None, sample_weight=None, sample_weight_val=None):
        """Fit the tree.

        Parameters
        ----------
        X : array-like or table of shape (n, n_features)
        y : array-like of shape (n,)
            Grades, 0 or more; 0 is not relevant.
        qid : array-like of shape (n,)
            The query of each row; the rows of a query stand together.
        X_val, y_val, qid_val : like X, y and qid, optional
            Validation data for early stopping, pruning and fine-tuning; whole queries are held out otherwise.
        sample_weight, sample_weight_val : array-like of shape (n,), optional

        Returns
        -------
        self
        """
        return self._fit(X, y, X_val, y_val, sample_weight, sample_weight_val, qid, qid_val)

    def predict(self, X):
        """Scores of shape (n,); within a query, higher is better."""
        return self._margins(X)[:, 0]

    def score(self, X, y, *, qid, k=5):
        """Mean NDCG@k over the queries that have a relevant document, gain ``2^grade - 1``."""
        y = self._check_y(y, reset=False)
        return ndcg(y, self.predict(X), _check_queries(qid, y, "qid"), k)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

    def _check_y(self, y, *, reset):
        y = _check_numbers(y)
        if (y < 0).any() or (y > 30).any():
            raise ValueError(f"grades range from {y.min():g} to {y.max():g}; they must be from 0 to 30")
        return y

    def _hold_out(self, sample, seed):
        if len(np.unique(sample.qid)) < 2:
            raise ValueError("qid holds one query; at least 2 are needed to hold one out for validation")
        splitter = GroupShuffleSplit(n_splits=1, test_size=self.validation_fraction, random_state=seed)
        return next(splitter.split(sample.X, groups=sample.qid))[1]

    def _loss(self):
        return SquaredLoss()


def _check_numbers(y) -> np.ndarray:
    y = column_or_1d(y, warn=True)
    _check_labels(y)
    return check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")


def _check_labels(y: np.ndarray) -> None:
    """A label for every row."""
    try:
        if y.dtype == object and any(value is None for value in y):
            raise ValueError("Input y contains None.")
        assert_all_finite(y, input_name="y")
    except ValueError as error:
        raise ValueError(f"{error} Every row needs a label: leave out the rows without one") from None


def _check_queries(qid, y, name: str) -> np.ndarray:
    """Query ids as numbers, rows of a query together, at least one query with a relevant document."""
    if qid is None:
        raise ValueError(f"{name} is missing; a ranker needs the query of each row: {name}=...")
    qid = np.asarray(qid)
    if qid.ndim != 1 or len(qid) != len(y):
        raise ValueError(f"{name} has shape {qid.shape}, y has {len(y)} rows; give one query id per row")
    starts = np.flatnonzero(np.concatenate([[True], qid[1:] != qid[:-1]]))
    seen, counts = np.unique(qid[starts], return_counts=True)
    if (counts > 1).any():
        query = seen[counts > 1].tolist()[0]
        raise ValueError(f"query {query!r} comes back after other queries; sort the rows by {name}")
    if not (y > 0).any():
        raise ValueError("no query has a relevant document: all grades are 0; at least one must be above 0")
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(qid))))
