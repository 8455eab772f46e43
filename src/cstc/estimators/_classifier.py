"""Classification: logistic risk for two classes, softmax risk for more."""

from __future__ import annotations

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_is_fitted,
    column_or_1d,
)

from ..losses import LogisticLoss, SoftmaxLoss
from ._base import CSTCBase
from ._error_costs import check_error_costs, decisions_of
from ._labels import check_labels
from ._parameters import ATTRIBUTES, document_parameters

__all__ = ["CSTCClassifier"]


class CSTCClassifier(ClassifierMixin, CSTCBase):
    __doc__ = f"""Cost-sensitive tree of classifiers: logistic risk for two classes, softmax risk for more.

    Each input takes its own path through the tree and buys only the features that this path needs.
    {document_parameters(class_weight=True)}
    {ATTRIBUTES}
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
        cost_weight=None,
        mean_cost=None,
        method="auto",
        weak_learners="boosted",
        n_weak_learners=None,
        weak_learner_depth=None,
        learning_rate=0.1,
        early_stopping=20,
        categorical_features=None,
        class_weight=None,
        error_costs=None,
        random_state=None,
        n_jobs=None,
        device="cpu",
        verbose=0,
    ):
        super().__init__(
            costs=costs,
            cost_weight=cost_weight,
            mean_cost=mean_cost,
            method=method,
            weak_learners=weak_learners,
            n_weak_learners=n_weak_learners,
            weak_learner_depth=weak_learner_depth,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            categorical_features=categorical_features,
            random_state=random_state,
            n_jobs=n_jobs,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight
        self.error_costs = error_costs

    def fit(
        self,
        X,
        y=None,
        *,
        target=None,
        X_val=None,
        y_val=None,
        sample_weight=None,
        sample_weight_val=None,
        executor=None,
        scratch=None,
    ):
        """Fit the tree.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, n_features), or path
            A path is that of a folder of Parquet files, or of one file; see docs/folders.md.
        y : array-like of shape (n,), optional
            Two or more classes.
        target : str, optional
            The column of X that holds the targets, where X is a table or a path and y is left out.
        X_val, y_val : like X and y, optional
            Validation data, which `Paper` and `Exact` prune by; they hold out a part of X otherwise.  `Experts`, the
            default with boosted trees, is cross-fitted and takes none.  A table or a path has the targets and weights
            in columns of the same names, where nothing else is given.
        sample_weight, sample_weight_val : array-like of shape (n,) or str, optional
            Weights of rows, or the name of their column.
        executor : distributed.Client or concurrent.futures.Executor, optional
            Who grows the large ensembles of `Experts`; without one, threads of this process do.  The model is the same.
        scratch : path, optional
            A folder that all workers see.  Rows that are in memory are written there, and removed at the end; without
            it into a temporary folder, where workers see that.

        Returns
        -------
        self
        """
        return self._fit(
            X,
            y,
            target=target,
            X_val=X_val,
            y_val=y_val,
            sample_weight=sample_weight,
            sample_weight_val=sample_weight_val,
            executor=executor,
            scratch=scratch,
        )

    def decision_function(self, X, *, ids=None):
        """Margins: shape (n,) for two classes, (n, n_classes) for more; `ids` as in `predict`."""
        margins = self._margins(X, ids)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict_proba(self, X, *, return_cost=False, budget=None, unavailable=(), ids=None):
        """Probabilities of shape (n, n_classes), in the order of `classes_`.

        With `return_cost=True` also what each row pays (`predict_cost`), from the same walk.  With a `budget` no row
        pays more, and nothing of what is named in `unavailable` (sources, items, features) is bought: rows that would
        need it are answered with what there is.  Where the model is a `Mixture`, `ids`, one for each row, decide which
        of its two models answers a row; without ids the number of the row does.
        """
        check_is_fitted(self)
        options = {"return_cost": return_cost, "budget": budget, "unavailable": unavailable, "ids": ids}
        return self.model_.predict_proba(self._rows(X), **options)

    def predict(self, X, *, return_cost=False, budget=None, unavailable=(), ids=None):
        """Predicted classes of shape (n,).

        The most likely class of each row; with `error_costs`, the decision of least expected cost, and None where the
        row is to be referred to a person.

        With `return_cost=True` also what each row pays (`predict_cost`), from the same walk.  With a `budget` no row
        pays more, and nothing of what is named in `unavailable` (sources, items, features) is bought: rows that would
        need it are answered with what there is.  Where the model is a `Mixture`, `ids`, one for each row, decide which
        of its two models answers a row; without ids the number of the row does.
        """
        return self._predict(X, ids, return_cost=return_cost, budget=budget, unavailable=unavailable)

    def score(self, X, y, sample_weight=None):
        """The share of rows that `predict` is right about; a row that is referred to a person is no hit."""
        check_is_fitted(self)
        if self.model_.decisions is None:
            return super().score(X, y, sample_weight)
        y = column_or_1d(y)
        hits = np.array([answer == truth for answer, truth in zip(self.predict(X).tolist(), y.tolist(), strict=True)])
        return float(np.average(hits, weights=sample_weight))

    def total_cost(self, X, y, *, budget=None, unavailable=(), ids=None):
        """What each row costs in all: its features, and its decision, where `y` are the true classes.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, n_features)
        y : array-like of shape (n,)
        budget, unavailable, ids : optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n,)
            In the currency of `costs` and `error_costs`, which are needed for it.
        """
        check_is_fitted(self)
        options = {"budget": budget, "unavailable": unavailable, "ids": ids}
        return self.model_.total_cost(self._rows(X), column_or_1d(y), **options)

    def expected_total_cost(self, X, *, budget=None, unavailable=(), ids=None):
        """What each row is expected to cost in all, by its own probabilities; everything else as in `total_cost`."""
        check_is_fitted(self)
        options = {"budget": budget, "unavailable": unavailable, "ids": ids}
        return self.model_.expected_total_cost(self._rows(X), **options)

    def _check_method(self, method):
        check_error_costs(self, method)

    def _decisions(self):
        return None if self.error_costs is None else decisions_of(self.error_costs, self.classes_)

    def _class_weights(self, y):
        weights = compute_sample_weight(self.class_weight, self.classes_[y])
        if (weights < 0).any():
            raise ValueError(f"class_weight is {self.class_weight!r}; weights must be 0 or more")
        return weights

    def _check_y(self, y, *, reset):
        y = column_or_1d(y, warn=reset)
        check_labels(y)
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

    def _check_weighted(self, y):
        if len(np.unique(y)) < 2:
            raise ValueError(
                f"only class {self.classes_[y[0]].item()!r} has rows of positive weight; at least 2 classes must count"
            )

    def _loss(self):
        return LogisticLoss() if len(self.classes_) == 2 else SoftmaxLoss(len(self.classes_))
