"""What the systems share: validation, prediction and cost by the fitted model, and a frontier of their own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_n_features, check_is_fitted

from ..estimators._base import CSTCBase, all_or_nothing
from ..estimators._parameters import BOOSTED_ONLY, check_parameters
from ..frontier._parts import part_rows, with_checked_weights
from ..matrix import is_sparse
from ..metrics import ndcg
from ..model import FittedTree
from ..parallel import apart
from ..rows import Rows, check_queries
from ._frontier import SystemFrontier, frontier_of
from ._setting import TASKS, Setting, set_up

__all__ = ["COMMON", "Baseline", "documented"]

PARAMETERS = {
    "task": """task : {"regression", "classification", "ranking"}, default="regression"
        Squared risk; logistic risk for two classes; squared risk on grades, judged by NDCG@5 (`fit` then needs
        `qid`).""",
    "costs": """costs : CostModel, array-like, mapping, path or None, default=None
        What features cost, as for the estimators of `cstc`.""",
    "n_weak_learners": """n_weak_learners : int, default=200
        Rounds of boosting at most.""",
    "weak_learner_depth": "weak_learner_depth : int, default=4",
    "learning_rate": "learning_rate : float, default=0.1",
    "early_stopping": """early_stopping : int or None, default=20
        Stop boosting after so many rounds without a better score on the validation rows.""",
    "validation_fraction": """validation_fraction : float, default=0.2
        Part of the rows that is held out when `fit` is given no validation data (whole queries for ranking).""",
    "random_state": "random_state : int, RandomState or None, default=None",
    "n_jobs": """n_jobs : int or None, default=None
        Threads of boosting.""",
}
ATTRIBUTES = """
    Attributes
    ----------
    model_ : FittedTree
        What predicts and counts cost.
    mean_cost_ : float
        Mean of `predict_cost` on the training rows.
    costs_ : ResolvedCosts
    n_features_in_, feature_names_in_, classes_
        As in scikit-learn."""


def documented(*without: str) -> str:
    """What the docstrings of all systems say, less the parameters that a system does not have."""
    lines = [text for name, text in PARAMETERS.items() if name not in without]
    return "\n    ".join(["", *lines]) + "\n" + ATTRIBUTES


COMMON = documented()


def _tells_classes_apart(system: Baseline) -> bool:
    """Whether it has probabilities."""
    if system.task != "classification":
        raise AttributeError(f"task is {system.task!r}, and predict_proba needs task='classification'; use predict")
    return True


class Baseline(BaseEstimator):
    """A system to compare with.

    A system says what all its models share (`_share`: the boosted ensemble), what one model is (`_fit_model`), and
    which parameter its frontier varies (`_varied`).
    """

    _varied = "cost_weight"
    _several_classes = False  # whether it can tell more than two classes apart

    def __init__(
        self,
        *,
        task="regression",
        costs=None,
        n_weak_learners=200,
        weak_learner_depth=4,
        learning_rate=0.1,
        early_stopping=20,
        validation_fraction=0.2,
        random_state=None,
        n_jobs=None,
    ):
        self.task = task
        self.costs = costs
        self.n_weak_learners = n_weak_learners
        self.weak_learner_depth = weak_learner_depth
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.n_jobs = n_jobs

    # -- what a system is --------------------------------------------------------------------------------------

    def _check_own_parameters(self) -> None:
        """Every parameter that only this system has."""

    def _share(self, setting: Setting) -> Any:
        """What all models of a frontier have in common."""
        raise NotImplementedError

    def _fit_model(self, setting: Setting, shared: Any) -> FittedTree:
        """The model for the parameters as they are."""
        raise NotImplementedError

    def _values(self, setting: Setting, shared: Any, n_points: int) -> Iterable[Any] | None:
        """Values of the varied parameter for a frontier; None: search for them by cost and quality."""
        return None

    # -- fitting -----------------------------------------------------------------------------------------------

    def fit(self, X, y, *, qid=None, X_val=None, y_val=None, qid_val=None, sample_weight=None, sample_weight_val=None):
        """Fit one model.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, n_features)
        y : array-like of shape (n,)
        qid : array-like of shape (n,)
            The query of each row, for ranking.
        X_val, y_val, qid_val : like X, y and qid, optional
            The rows that stop boosting and choose inside of the fit; a part of X is held out otherwise.
        sample_weight, sample_weight_val : array-like of shape (n,), optional

        Returns
        -------
        self
        """
        setting = self._set_up(X, y, X_val, y_val, sample_weight, sample_weight_val, qid, qid_val)
        return self._become(setting, apart(lambda: self._share(setting)))

    def _set_up(self, X, y, X_val, y_val, sample_weight, sample_weight_val, qid, qid_val) -> Setting:
        self._check_own_parameters()
        face = self._new_face()
        if qid is not None and not face._needs_queries:
            raise ValueError(f"qid is given, and task={self.task!r} has no use for it; leave it out, or task='ranking'")
        given = X, y, X_val, y_val, sample_weight, sample_weight_val, qid, qid_val
        return set_up(face, self.validation_fraction, *given, several_classes=self._several_classes)

    def _new_face(self) -> CSTCBase:
        if self.task not in TASKS:
            raise ValueError(f"task is {self.task!r}; it must be one of {tuple(TASKS)}")
        names = ["costs", "n_weak_learners", "weak_learner_depth", "learning_rate", "early_stopping"]
        names += ["random_state", "n_jobs"]
        names += ["weak_learners"]
        given = {name: getattr(self, name) for name in names if hasattr(self, name)}
        if given.get("weak_learners") == "identity":  # nothing is boosted, and defaults of our own say nothing of it
            defaults = inspect.signature(type(self)).parameters
            unsaid = [name for name in BOOSTED_ONLY if name in given and given[name] == defaults[name].default]
            given = {name: value for name, value in given.items() if name not in unsaid}
        face = TASKS[self.task](**given)
        check_parameters(face)
        fraction = self.validation_fraction
        if not isinstance(fraction, Real) or not 0 < float(fraction) < 1:
            raise ValueError(f"validation_fraction is {fraction!r}; it must be above 0 and below 1")
        return face

    def _become(self, setting: Setting, shared: Any):
        """The fitted model for the parameters as they are."""
        with all_or_nothing(self):
            self._fit_to(setting, shared)
        return self

    def _fit_to(self, setting: Setting, shared: Any) -> None:
        self._face = setting.face
        self.costs_ = setting.costs
        self.n_features_in_ = len(setting.schema.feature_names)
        for name in ("feature_names_in_", "classes_"):
            if hasattr(setting.face, name):
                setattr(self, name, getattr(setting.face, name))
        self.model_ = apart(lambda: self._fit_model(setting, shared), setting.boosting.progress.draw)
        rows = setting.train if setting.everything is None else setting.everything
        self.mean_cost_ = float(np.average(self._cost(rows.X, "branch", rows.qid), weights=rows.weights))

    def frontier(
        self,
        X,
        y,
        *,
        qid=None,
        X_val=None,
        y_val=None,
        qid_val=None,
        sample_weight=None,
        sample_weight_val=None,
        values=None,
        n_points=16,
        quality=None,
        verbose=0,
    ) -> SystemFrontier:
        """Models from cheap to expensive, which share one boosted ensemble where the system allows it.

        Parameters
        ----------
        X, y, qid : as in `fit`
        X_val, y_val, qid_val : like X, y and qid, optional
            The rows that choose, and teach nothing: each fit holds out rows of its own.  A part of X is held out
            otherwise.
        sample_weight, sample_weight_val : array-like of shape (n,), optional
            As in `fit`; those of the rows that choose weigh cost and quality, except for NDCG.
        values : sequence, optional
            Values of the parameter that is varied; the system's own otherwise.
        n_points : int, default=16
            At most so many models, without `values`.
        quality : callable, str or None, default=None
            What to compare models by, as in `cstc.Frontier`.
        verbose : int, default=0
            1 shows how many models are done and the time left, in one line that moves (in a log, a line every 10
            seconds); 2 a line for each model.

        Returns
        -------
        SystemFrontier
        """
        values = None if values is None else self._checked_values(values)
        checker = self._new_face()
        # all errors of the rows come first; weights are checked below, since rows without weight leave a sample
        checked = X, y, X_val, y_val, None, None, qid, qid_val
        sample = set_up(checker, self.validation_fraction, *checked, several_classes=self._several_classes)
        whole = sample.train if sample.everything is None else sample.everything
        given = with_checked_weights(Rows(X, y, sample_weight, qid), whole.X)
        if X_val is not None:
            chosen_by = with_checked_weights(Rows(X_val, y_val, sample_weight_val, qid_val), sample.validation.X)
        elif sample_weight_val is not None:
            raise ValueError("sample_weight_val belongs to X_val and y_val, which are missing")
        else:
            given, chosen_by = part_rows(
                checker, whole, given, self.validation_fraction, sample.seed, needs_classes=quality is None
            )
        if chosen_by.weights is not None and not chosen_by.weights.sum() > 0:
            raise ValueError("all validation rows have weight zero; at least one must count")
        setting = self._set_up(given.X, given.y, None, None, given.weights, None, given.qid, None)
        return frontier_of(self, setting, chosen_by, values, n_points, quality, verbose)

    def _checked_values(self, values: Any) -> list[Any]:
        """Each value must be one that the constructor's parameter may have."""
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ValueError(f"values is {values!r}; give a list of values of {self._varied}")
        found = list(values)
        if not found:
            raise ValueError("values is empty; give at least one, or None")
        for value in found:
            self._with(value)._check_own_parameters()
        return found

    def _with(self, value: Any):
        """A copy with another value of the varied parameter."""
        return clone(self).set_params(**{self._varied: value})

    def _at(self, setting: Setting, shared: Any, value: Any):
        """A fitted copy for one value of the varied parameter."""
        return self._with(value)._become(setting, shared)

    # -- using -------------------------------------------------------------------------------------------------

    @property
    def _needs_queries(self) -> bool:
        return self.task == "ranking"

    def _check_X(self, X, *, reset=False) -> np.ndarray:
        check_is_fitted(self)
        # here and not by the face, so that the error names this class
        if (isinstance(X, np.ndarray) or is_sparse(X)) and len(X.shape) == 2:
            _check_n_features(self, X, reset=False)
        return self._face._check_X(X, reset=False)

    def _check_y(self, y, *, reset=False) -> np.ndarray:
        return self._face._check_y(y, reset=False)

    def _queries(self, qid, X) -> np.ndarray | None:
        return None if qid is None else check_queries(qid, np.ones(X.shape[0]), "qid")

    def _margins(self, X: np.ndarray, qid: np.ndarray | None) -> np.ndarray:
        margins = self.model_.decision_function(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def _cost(self, X: np.ndarray, counting: str, qid: np.ndarray | None) -> np.ndarray:
        return self.model_.predict_cost(X, counting)

    def decision_function(self, X, *, qid=None):
        """Margins or scores of shape (n,); of several classes, one for each: (n, n_classes)."""
        X = self._check_X(X)
        return self._margins(X, self._queries(qid, X))

    def predict(self, X, *, qid=None):
        """Predicted values, classes or scores of shape (n,).

        `qid`, the query of each row, is needed by early exit only.
        """
        margins = self.decision_function(X, qid=qid)
        return self.model_.answers(margins.reshape(len(margins), -1))

    @available_if(_tells_classes_apart)
    def predict_proba(self, X):
        """Probabilities of the classes."""
        X = self._check_X(X)
        return self.model_.predict_proba(X)

    def predict_cost(self, X, counting="branch", *, qid=None):
        """Exact cost of each row, by the branches taken or, as in the paper, by all items of every used learner.

        `qid`, the query of each row, is needed by early exit only.
        """
        X = self._check_X(X)
        return self._cost(X, counting, self._queries(qid, X))

    def with_costs(self, costs):
        """The same model under new prices, without refitting; it predicts as before."""
        check_is_fitted(self)
        other = copy.copy(self)
        other.costs = costs
        other.costs_ = self._face._resolve_costs(costs)
        other.model_ = self.model_.with_costs(other.costs_)
        # the training rows are gone: predict_cost gives the mean for any rows at hand
        other.__dict__.pop("mean_cost_", None)
        return other

    def with_limit(self, limit):
        """The same model with a hard budget for each row: where the next purchase does not fit, the row stops.

        None takes it off.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other.model_ = self.model_.with_limit(limit)
        other.__dict__.pop("mean_cost_", None)
        return other

    def score(self, X, y, *, qid=None):
        """R², accuracy, or NDCG@5."""
        if self.task == "ranking":
            checked = self._check_y(y)
            return ndcg(checked, self.predict(X, qid=qid), check_queries(qid, checked, "qid"))
        if self.task == "classification":
            return float(accuracy_score(y, self.predict(X)))
        return float(r2_score(self._check_y(y), self.predict(X)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.estimator_type = {"regression": "regressor", "classification": "classifier"}.get(self.task)
        if tags.estimator_type == "regressor":
            tags.regressor_tags = RegressorTags()
        elif tags.estimator_type == "classifier":
            tags.classifier_tags = ClassifierTags(multi_class=self._several_classes)
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = getattr(self, "weak_learners", "boosted") == "boosted"
        return tags
