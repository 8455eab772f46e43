"""The estimator: fit along the cost weight, keep what is not beaten, choose, draw."""

from __future__ import annotations

import os
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state

from ..costs import shorten
from ..estimators._base import CSTCBase, all_or_nothing, watched
from ..estimators._given import given_rows
from ..metrics import quality_of
from ..progress import Progress
from ..rows import Rows
from ._budgets import asked_for
from ._checkpoint import Checkpoint
from ._choice import Choice
from ._evidence import Evidence, Point, kept_of
from ._fits import Fits
from ._grid import fit_given, search
from ._identity import costs_identity, data_identity, differences, settings_identity
from ._parts import part_rows, with_checked_weights
from ._refine import MOST_FITS, bisect, hole_around, mixture_of
from ._table import FrontierTable

__all__ = ["Frontier"]

LONGEST_LINE = 120  # of a repr


class Frontier(Choice, MetaEstimatorMixin, BaseEstimator):
    """Models from free to full, and the best one for a budget or for a quality.

    Parameters
    ----------
    estimator : CSTCRegressor, CSTCClassifier or CSTCRanker
        What to fit; its `cost_weight` is not used.  It is not changed.
    cost_weights : sequence of float or None, default=None
        The values of the paper's lambda; the free model is added if none of them gives it.  None: powers of two
        from the free model to the full one, more of them where cost and quality change, and parts of the power last.
    n_weights : int, default=24
        At most so many fits, where `cost_weights` is None.
    quality : callable, str or None, default=None
        What to compare models by; higher is better.  None: R² for regression, AUC for two classes, the mean of
        each class's AUC against the others for more, NDCG at the first `at` places (5, if the ranker is not told
        otherwise) for ranking, and for an estimator with `error_costs` what errors cost, with a minus.  A name of
        scikit-learn's scorers, or a function ``(estimator, X, y)``; a ranker's function also gets ``qid=``, and where
        rows have weights it gets ``sample_weight=``.
    validation_fraction : float, default=0.2
        Part of the rows that is held out for choosing when `fit` is given no validation data (whole queries for a
        ranker, stratified for classes).
    checkpoint : path or None, default=None
        A folder for finished models.  A fit that was killed or interrupted goes on from them and ends with the same
        frontier.
    verbose : int, default=0
        1 shows how many models are done, what the current fit does and the time left for all, in one line that moves
        (in a log, a line every 10 seconds); 2 a line for each model.  With 0 and 2 each fit also shows what `verbose`
        of the estimator says.

    Attributes
    ----------
    models_ : list of fitted estimators
        From cheap to expensive and from bad to good: no model that a cheaper one matches.  The full model (of the least
        cost weight) may look worse than cheaper ones, by no more than a standard error of the difference.
    table_ : FrontierTable
        For each of `models_`: cost_weight; mean_cost, p95_cost and max_cost of the validation rows (counting "branch");
        quality by validation rows and out-of-fold rows together, and validation_quality by the first alone; where
        errors have prices, total_cost, what tests and errors of the validation rows cost; nodes; items in use.  The
        standard error of a figure is in the column with ``_error`` after its name, None where it is not known.
    tried_ : FrontierTable
        The same for all fits, those that were beaten too.
    tried_models_ : list of fitted estimators
        One for each row of `tried_`.  The `cost_weight` of a mixture (`refine`) is None there.
    quality_name_ : str
    n_ensembles_ : int
        Ensembles that were grown in this fit and that its models share: experts for `Experts`, one for `Paper`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Validation rows only choose: they are never given to a fit.  `Experts` is cross-fitted, so that its training rows
    say something of its models too, out of fold; how that is weighed is in docs/frontier.md.  Other methods hold out a
    part of their own training rows for pruning, the same part for all fits.  Weights of validation rows weigh cost and
    quality; of a ranker the cost only, since NDCG counts every query once.  With the paper's method, whose weak
    learners do not depend on the cost weight, a fit starts from the solution of the next larger one.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from cstc import CSTCClassifier, Frontier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> estimator = CSTCClassifier(n_weak_learners=20, random_state=0)
    >>> frontier = Frontier(estimator, n_weights=6).fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:])
    >>> model = frontier.best(mean_cost=3)
    >>> bool(model.predict_cost(X[400:]).mean() <= 3)
    True
    """

    _refines = True

    def __init__(
        self,
        estimator,
        *,
        cost_weights=None,
        n_weights=24,
        quality=None,
        validation_fraction=0.2,
        checkpoint=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.cost_weights = cost_weights
        self.n_weights = n_weights
        self.quality = quality
        self.validation_fraction = validation_fraction
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(
        self,
        X,
        y=None,
        *,
        target=None,
        qid=None,
        X_val=None,
        y_val=None,
        qid_val=None,
        sample_weight=None,
        sample_weight_val=None,
        executor=None,
        scratch=None,
    ):
        """Fit models along the cost weight.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, n_features), or path
            A path is that of a folder of Parquet files, or of one file; see docs/folders.md.
        y : array-like of shape (n,), optional
        target : str, optional
            The column of X that holds the targets, where X is a table or a path and y is left out.
        qid : array-like of shape (n,) or str
            The query of each row, for a ranker, or the name of its column in X.
        X_val, y_val, qid_val : like X, y and qid, optional
            The rows that choose; a part of X is held out otherwise.  A table or a path has the targets, queries and
            weights in columns of the same names, where nothing else is given.
        sample_weight, sample_weight_val : array-like of shape (n,) or str, optional
            Weights of rows, or the name of their column.
        executor : distributed.Client or concurrent.futures.Executor, optional
            Who grows the large ensembles of `Experts`; without one, threads of this process do.  The models are the
            same.
        scratch : path, optional
            A folder that all workers see.  Rows that are in memory are written there, and removed at the end; without
            it into a temporary folder, where workers see that.

        Returns
        -------
        self
        """
        self._check_parameters()
        n_most = self.n_weights if self.cost_weights is None else len(set(self.cost_weights)) + 1
        given = given_rows(
            self.estimator,
            X,
            y,
            target=target,
            qid=qid,
            sample_weight=sample_weight,
            X_val=X_val,
            y_val=y_val,
            qid_val=qid_val,
            sample_weight_val=sample_weight_val,
        )
        fits, identity = self._set_up(*given, n_most, None)
        with fits.working(executor, scratch), watched(fits.progress):
            if self.cost_weights is None:
                search(fits, n_most)
            else:
                fit_given(fits, sorted({float(weight) for weight in self.cost_weights}, reverse=True))
        with all_or_nothing(self):
            self._take(fits, [])
            self.n_ensembles_ = fits.estimator._resolved_method().n_ensembles(fits.shared)
            self._fitted_to = identity
        return self

    def refine(
        self,
        X,
        y=None,
        *,
        mean_cost,
        target=None,
        qid=None,
        X_val=None,
        y_val=None,
        qid_val=None,
        sample_weight=None,
        sample_weight_val=None,
        executor=None,
        scratch=None,
    ):
        """Fit more weights where no model is near a mean cost; where there is none between, add a mixture.

        Up to ten weights between those of the two neighbours are fitted, until a model costs 85 to 100% of `mean_cost`.
        Where that finds none, a `cstc.Mixture` of the neighbours is added, whose mean cost on the validation rows is
        `mean_cost` (none of models that look at whole queries).

        Parameters
        ----------
        X, y, target, qid, X_val, y_val, qid_val, sample_weight, sample_weight_val : as in `fit`
            The rows that `fit` was given; others are refused.
        mean_cost : float
            Where to fit more.
        executor, scratch : optional
            As in `fit`.

        Returns
        -------
        self
        """
        self._check_fitted()
        self._check_parameters()
        _, wanted = asked_for({"mean_cost": mean_cost})
        given = given_rows(
            self.estimator,
            X,
            y,
            target=target,
            qid=qid,
            sample_weight=sample_weight,
            X_val=X_val,
            y_val=y_val,
            qid_val=qid_val,
            sample_weight_val=sample_weight_val,
        )
        fits, identity = self._set_up(*given, MOST_FITS, int(self._fitted_to["random_state"]))
        other = list(differences(identity, self._fitted_to))
        if other:
            raise ValueError(
                f"refine takes the rows that fit was given, with the same prices and parameters; here {shorten(other)} "
                "is not the same. Call fit for these"
            )
        fits.points |= {point.cost_weight: point for point in self._points if point.cost_weight is not None}
        mixtures = [point for point in self._points if point.cost_weight is None]
        if hole_around([*fits.points.values(), *mixtures], wanted):
            with fits.working(executor, scratch), watched(fits.progress):
                bisect(fits, wanted)
            hole = hole_around(fits.points.values(), wanted)
            if hole is not None and fits.estimator._whole_queries() is None:
                mixtures.append(mixture_of(fits, *hole, wanted))
        with all_or_nothing(self):
            self._take(fits, mixtures)
        if hole_around([*fits.points.values(), *mixtures], wanted):
            even = ", not even a mixture of the two neighbours,"
            if fits.estimator._whole_queries() is not None:
                even = " (whole queries take no mixtures)"
            warnings.warn(
                f"nothing that was found around a mean cost of {wanted:g}{even} is better on the validation rows than "
                "what costs less; tried_ has it all",
                stacklevel=2,
            )
        return self

    def _set_up(self, given: Rows, chosen_by: Rows, n_most: int, seed: int | None) -> tuple[Fits, dict[str, Any]]:
        """What fits models to some rows, and what identifies the rows, the bill and the settings."""
        store = None if self.checkpoint is None else Checkpoint(self.checkpoint)
        estimator = clone(self.estimator)
        estimator.set_params(random_state=self._seed(estimator, store) if seed is None else seed)
        train, validation, identity = self._prepare(estimator, given, chosen_by)
        identity |= settings_identity(self, estimator)
        if store is not None:
            store.bind(identity)
        name, quality = quality_of(self.quality, estimator)
        progress = Progress("cstc frontier", self.verbose, speaker="Frontier", n_models=n_most)
        return Fits(estimator, train, validation, quality, store, progress, name), identity

    def _take(self, fits: Fits, mixtures: list[Point]) -> None:
        """Become the fitted frontier of these fits, and of mixtures of them."""
        name = fits.quality_name
        self._points = [*fits.points.values(), *mixtures]  # as the validation rows alone see them, for `refine`
        points, chosen, full = kept_of(self._points)
        self._evidence = Evidence.of(chosen, full)
        self.models_ = [point.model for point in chosen]
        self.table_ = FrontierTable([point.row for point in chosen], name)
        self.tried_ = FrontierTable([point.row for point in points], name)
        self.tried_models_ = [point.model for point in points]
        self.quality_name_ = name
        self._judges = fits.validation
        self.n_features_in_ = self.models_[0].n_features_in_
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(self.models_[0], "feature_names_in_"):
            self.feature_names_in_ = self.models_[0].feature_names_in_

    def _judge(self, model) -> tuple[np.ndarray, float]:
        margins, costs = model.model_.decide(model._check_X(self._judges.X, reset=False), qid=self._judges.qid)
        return costs, quality_of(self.quality, model)[1](model, self._judges, margins)

    # -- showing -----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if hasattr(self, "models_"):
            return self._summary()
        text = " ".join(super().__repr__().split())
        return text if len(text) < LONGEST_LINE else text[: LONGEST_LINE - 5] + "...)"

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._html_table()

    def _repr_mimebundle_(self, **kwargs) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:  # not where scikit-learn is told to show text
            bundle["text/html"] += self._html_table()
        return bundle

    def _html_table(self) -> str:
        return self.table_._repr_html_() if hasattr(self, "table_") else ""

    # -- preparing ---------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if not isinstance(self.estimator, CSTCBase):
            raise TypeError(
                f"estimator is {self.estimator!r}; give a CSTCRegressor, a CSTCClassifier or a CSTCRanker, "
                "such as Frontier(CSTCClassifier(costs=costs))"
            )
        if self.estimator.mean_cost is not None:
            raise ValueError(
                f"mean_cost of the estimator is {self.estimator.mean_cost!r}, and a Frontier fits all cost weights "
                "itself; leave it out there, and choose with best(mean_cost=...)"
            )
        if not isinstance(self.n_weights, Integral) or self.n_weights < 2:
            raise ValueError(f"n_weights is {self.n_weights!r}; it must be a whole number, 2 or more")
        weights = self.cost_weights
        if weights is not None:
            numbers = np.ndim(weights) == 1 and len(weights) and all(isinstance(weight, Real) for weight in weights)
            if not numbers or not np.isfinite(weights).all() or np.min(weights) < 0:
                raise ValueError(f"cost_weights is {weights!r}; give None or a list of finite numbers, 0 or more")
        fraction = self.validation_fraction
        if not isinstance(fraction, Real) or not 0 < float(fraction) < 1:
            raise ValueError(f"validation_fraction is {fraction!r}; it must be above 0 and below 1")
        if self.quality is not None and not isinstance(self.quality, str) and not callable(self.quality):
            raise ValueError(f"quality is {self.quality!r}; give None, a name of scikit-learn's scorers or a function")
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise ValueError(f"checkpoint is {self.checkpoint!r}; give None or the path of a folder")
        if not isinstance(self.verbose, Integral) or self.verbose < 0:
            raise ValueError(f"verbose is {self.verbose!r}; it must be 0, 1 or 2")

    def _seed(self, estimator: CSTCBase, store: Checkpoint | None) -> int:
        """One number for all fits: they must share rows and ensembles."""
        if isinstance(estimator.random_state, Integral):
            return int(estimator.random_state)
        if estimator.random_state is None and store is not None and store.settings is not None:
            return int(store.settings.get("random_state", 0))  # a number that was drawn stays drawn
        return int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))

    def _judges_by_auc(self) -> bool:
        return self.quality is None and getattr(self.estimator, "error_costs", None) is None

    def _prepare(self, estimator, given: Rows, chosen_by: Rows) -> tuple[Rows, Rows, dict[str, Any]]:
        """Rows that teach, rows that choose, and what identifies both together with the bill."""
        checker = clone(estimator)
        if "class_weight" in checker.get_params():
            checker.set_params(class_weight=None)  # rows of a class of weight 0 would leave
        rows = checker._check_rows(Rows(given.X, given.y, None, given.qid), reset=True)
        given = with_checked_weights(given, rows.X)
        costs = checker._resolve_costs(estimator.costs)
        missing = (chosen_by.X is None) or (chosen_by.y is None)
        validation = checker._check_validation(Rows(chosen_by.X, chosen_by.y, None, chosen_by.qid))
        if missing and chosen_by.weights is not None:
            raise ValueError("sample_weight_val belongs to X_val and y_val, which are missing")
        identity: dict[str, Any] = {"data": data_identity(rows, given.weights, checker)}
        if given.more is not None:
            identity["further rows"] = given.more.identity()
        if validation is None:
            fraction, seed = float(self.validation_fraction), estimator.random_state
            given, chosen_by = part_rows(checker, rows, given, fraction, seed, needs_classes=self._judges_by_auc())
            identity["validation data"] = "held out"
        else:
            chosen_by = with_checked_weights(chosen_by, validation.X)
            identity["validation data"] = data_identity(validation, chosen_by.weights, None)
        if chosen_by.weights is not None and not chosen_by.weights.sum() > 0:
            raise ValueError("all validation rows have weight zero; at least one must count")
        return given, chosen_by, identity | {"costs": costs_identity(costs)}
