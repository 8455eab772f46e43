"""Quality and cost in numbers: NDCG for rankings, summaries of cost, and what models are compared by.

A frontier chooses by a quality, and a picture of quality against cost measures with it; higher is better.  For
searches of scikit-learn there is a scorer that knows costs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import get_scorer, r2_score, roc_auc_score
from sklearn.utils.metadata_routing import UNUSED

from .model import probabilities
from .resampling import Resamples, auc_draws, r2_draws
from .rows import Rows, check_queries

__all__ = ["ERROR_COST", "CostScorer", "Quality", "cost_summary", "make_cost_scorer", "ndcg", "ndcg_by_query"]
__all__ += ["places_of", "quality_named", "quality_of"]

SCORED_DRAWS = 20  # samples on which a scorer is called: each call answers all rows again
ERROR_COST, NDCG_AT = "error cost, negative", "NDCG@"
LOWEST = -1e6  # no quality of interest is below it


def ndcg(grades: np.ndarray, scores: np.ndarray, qid: np.ndarray, k: int = 5) -> float:
    """Mean NDCG@k over the queries that have a relevant document, with gain ``2^grade - 1``.

    Equal to the mean of scikit-learn's ``ndcg_score(2**grades - 1, scores, k=k)`` over those queries, ties
    included (documents with equal scores share the gain of their places), in one pass over all queries.
    Without any relevant document the result is NaN.  Scores must be finite or infinite, not NaN.

    Examples
    --------
    >>> ndcg(np.array([2, 0, 1, 0]), np.array([0.9, 0.8, 0.1, 0.3]), np.array([1, 1, 1, 2]))
    0.963...
    """
    return _mean_of_known(ndcg_by_query(grades, scores, qid, k))


def ndcg_by_query(grades: np.ndarray, scores: np.ndarray, qid: np.ndarray, k: int = 5) -> np.ndarray:
    """NDCG@k of each query, in the order of their ids; NaN for those without a relevant document."""
    if not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k is {k!r}; it must be a whole number, 1 or more")
    scores = np.asarray(scores, dtype=float)
    if np.isnan(scores).any():  # sorting would put these documents anywhere
        raise ValueError(
            f"scores holds NaN, first in row {int(np.isnan(scores).argmax())}; every document needs a score"
        )
    grades, qid = np.asarray(grades, dtype=float), np.asarray(qid)
    if not len(grades) == len(scores) == len(qid) or not len(grades):
        raise ValueError(
            f"there are {len(grades)} grades, {len(scores)} scores and {len(qid)} query ids; "
            "each document needs one of each, and at least one document is needed"
        )
    if np.isnan(grades).any():
        raise ValueError(
            f"grades holds NaN, first in row {int(np.isnan(grades).argmax())}; every document needs a grade"
        )
    gains = 2.0**grades - 1.0
    _, query = np.unique(qid, return_inverse=True)
    n_queries = int(query.max()) + 1
    start = np.concatenate([[0], np.cumsum(np.bincount(query))])
    discounts = np.zeros(len(gains) + 1)
    discounts[1 : k + 1] = 1.0 / np.log2(np.arange(2, min(k, len(gains)) + 2))
    cumulated = np.cumsum(discounts)  # sum of the discounts of the first places

    def dcg(order_by: np.ndarray) -> np.ndarray:
        order = np.lexsort((-order_by, query))
        sorted_query, sorted_score = query[order], order_by[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (sorted_query[1:] != sorted_query[:-1]) | (sorted_score[1:] != sorted_score[:-1])
        group = np.cumsum(new) - 1
        first = np.flatnonzero(new)
        size = np.diff(np.append(first, len(order)))
        place = first - start[sorted_query[first]]
        mean_gain = np.bincount(group, gains[order]) / size
        value = mean_gain * (cumulated[place + size] - cumulated[place])
        return np.bincount(sorted_query[first], value, n_queries)

    ideal = dcg(gains)
    return np.divide(dcg(scores), ideal, out=np.full(n_queries, np.nan), where=ideal > 0)


def cost_summary(cost: np.ndarray, weights: np.ndarray | None = None) -> dict[str, float]:
    """Mean, 95th percentile and maximum of the cost of a set of rows; rows of weight 0 do not count."""
    if weights is None:
        return {"mean": float(np.mean(cost)), "p95": float(np.percentile(cost, 95)), "max": float(np.max(cost))}
    p95 = np.percentile(cost, 95, weights=weights, method="inverted_cdf")  # numpy weighs rows in this one only
    return {
        "mean": float(np.average(cost, weights=weights)),
        "p95": float(p95),
        "max": float(np.max(cost[weights > 0])),
    }


class Quality:
    """What models are compared by; higher is better."""

    #: Whether it can be told from margins and targets alone, as it must be for rows that are answered out of fold.
    from_margins = True
    #: Whether it is what errors cost, in the currency of the features, with a minus.
    in_money = False

    def __call__(self, model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
        """Of a fitted model at rows as the user gave them, with the model's margins there if they are known."""
        raise NotImplementedError

    def draws(self, model: Any, rows: Rows, margins: np.ndarray, resamples: Resamples) -> np.ndarray:
        """The same for samples of these rows; NaN for those that it cannot judge."""
        raise NotImplementedError


def quality_of(given: Any, estimator: Any) -> tuple[str, Quality]:
    """The name of the quality and the function."""
    if given is None:
        if estimator._needs_queries:
            name = f"{NDCG_AT}{getattr(estimator, 'at', 5)}"
        elif getattr(estimator, "error_costs", None) is not None:
            name = ERROR_COST
        else:
            name = "AUC" if is_classifier(estimator) else "R²"
        own = quality_named(name)
        assert own is not None
        return name, own
    name = given if isinstance(given, str) else getattr(given, "__name__", "quality")
    return name, _Scored(get_scorer(given) if isinstance(given, str) else given, estimator._needs_queries)


class _NDCG(Quality):
    """NDCG@`at`."""

    def __init__(self, at: int):
        self._at = at

    def __call__(self, model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
        if margins is None:
            k = {"k": self._at} if hasattr(model, "at") else {}  # systems of `baselines` are judged by five places
            return model.score(rows.X, rows.y, qid=rows.qid, **k)
        return _mean_of_known(self._by_query(model, rows, margins))

    def draws(self, model: Any, rows: Rows, margins: np.ndarray, resamples: Resamples) -> np.ndarray:
        return resamples.means(self._by_query(model, rows, margins))

    def _by_query(self, model: Any, rows: Rows, margins: np.ndarray) -> np.ndarray:
        y = model._check_y(rows.y, reset=False)
        check_queries(rows.qid, y, "qid")
        return ndcg_by_query(y, margins[:, 0], np.asarray(rows.qid), self._at)


class _R2(Quality):
    def __call__(self, model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
        y = model._check_y(rows.y, reset=False)
        if len(y) < 2:
            raise ValueError(f"R² needs at least 2 validation rows; there is {len(y)}")
        predicted = model.predict(rows.X) if margins is None else margins[:, 0]
        return float(r2_score(y, predicted, sample_weight=rows.weights))

    def draws(self, model: Any, rows: Rows, margins: np.ndarray, resamples: Resamples) -> np.ndarray:
        return r2_draws(model._check_y(rows.y, reset=False), margins[:, 0], resamples)


class _AUC(Quality):
    """AUC for two classes; for more, the mean of one class against all others, over those that the rows have."""

    def __call__(self, model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
        y = model._check_y(rows.y, reset=False)
        present = np.unique(y if rows.weights is None else y[rows.weights > 0])
        if len(present) < 2:
            raise ValueError(f"the validation rows hold one class, {model.classes_[present].tolist()}; AUC needs two")
        shares = model.predict_proba(rows.X) if margins is None else probabilities(margins, model.model_.link)
        if len(model.classes_) == 2:
            return float(roc_auc_score(y, shares[:, 1], sample_weight=rows.weights))
        return float(np.mean([roc_auc_score(y == k, shares[:, k], sample_weight=rows.weights) for k in present]))

    def draws(self, model: Any, rows: Rows, margins: np.ndarray, resamples: Resamples) -> np.ndarray:
        y = model._check_y(rows.y, reset=False)
        shares = probabilities(margins, model.model_.link)
        if len(model.classes_) == 2:
            return auc_draws(shares[:, 1], y == 1, resamples)
        each = np.array([auc_draws(shares[:, k], y == k, resamples) for k in np.unique(y)])
        known = np.isfinite(each)  # a sample may lack a class
        with np.errstate(invalid="ignore"):
            return np.where(known, each, 0.0).sum(axis=0) / known.sum(axis=0)


class _ErrorCost(Quality):
    """What errors cost, as a quality: less is better, so it is negative.  Of models whose errors have prices."""

    in_money = True

    def __call__(self, model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
        if margins is None:
            margins = model.model_.decision_function(model._rows(rows.X))
        return float(np.average(self._by_row(model, rows, margins), weights=rows.weights))

    def draws(self, model: Any, rows: Rows, margins: np.ndarray, resamples: Resamples) -> np.ndarray:
        found, values = np.empty(resamples.n_draws), self._by_row(model, rows, margins)
        for which, counts in resamples.blocks():
            found[which] = values @ counts / counts.sum(axis=0)
        return found

    def _by_row(self, model: Any, rows: Rows, margins: np.ndarray) -> np.ndarray:
        y = model._check_y(rows.y, reset=False)
        return -model.model_.priced_decisions.observed(y, probabilities(margins, model.model_.link))


class _Scored(Quality):
    """A scorer of scikit-learn, or a function of the user: what it does with rows is its own affair.

    So samples are real rows here, answered anew, and they are few.
    """

    from_margins = False

    def __init__(self, scorer: Callable[..., float], needs_queries: bool):
        self._scorer = scorer
        # scikit-learn's own know no queries
        self._tells_queries = needs_queries and not hasattr(scorer, "_score_func")

    def __call__(self, model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
        options = {} if rows.weights is None else {"sample_weight": rows.weights}
        if self._tells_queries:
            options["qid"] = rows.qid
        return float(self._scorer(model, rows.X, rows.y, **options))

    def draws(self, model: Any, rows: Rows, margins: np.ndarray, resamples: Resamples) -> np.ndarray:
        found = np.full(SCORED_DRAWS, np.nan)
        for draw in range(SCORED_DRAWS):
            at = resamples.rows(draw)
            sample = rows.take(at)
            if rows.qid is not None:  # a query that is drawn twice is two queries
                first = np.concatenate([[True], (sample.qid[1:] != sample.qid[:-1]) | (at[1:] <= at[:-1])])
                sample = replace(sample, qid=np.cumsum(first))
            with warnings.catch_warnings(), suppress(Exception):  # such as AUC where a sample has one class
                warnings.simplefilter("ignore")
                found[draw] = self(model, sample)
        return found


_OWN: dict[str, type[Quality]] = {"AUC": _AUC, "R²": _R2, ERROR_COST: _ErrorCost}


def quality_named(name: str) -> Quality | None:
    """The library's own quality of a name, which can be told of a loaded model too; None for a user's own."""
    at = places_of(name)
    if at is not None:
        return _NDCG(at)
    return _OWN[name]() if name in _OWN else None


def places_of(name: str) -> int | None:
    """Of the name of an NDCG, the places that it looks at; None for all other names."""
    found = re.fullmatch(f"{NDCG_AT}([1-9][0-9]*)", name)
    return None if found is None else int(found[1])


def _mean_of_known(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.mean(known)) if len(known) else float("nan")


# -- for searches of scikit-learn ------------------------------------------------------------------------------------


def make_cost_scorer(quality: Any = None, *, cost_weight: Any = None, mean_cost: Any = None) -> CostScorer:
    """A scorer that knows costs, for ``GridSearchCV``, ``cross_val_score`` and the like.

    Scikit-learn's own scorers see quality alone, and a search by them buys whatever helps.  This one weighs both, for
    an estimator of `cstc` or of `cstc.baselines`, or for a ``Pipeline`` that ends with one: cost is then what the last
    step pays for its columns.

    Parameters
    ----------
    quality : callable, str or None, default=None
        As in `cstc.Frontier`.  None: R² for regression, AUC for classes, NDCG at the places that a ranker is asked
        for; where errors have prices, what they cost, with a minus, so that with ``cost_weight=1`` the score is minus
        the total cost.
    cost_weight : float, optional
        The score is the quality less `cost_weight` times the mean cost of the rows.  (This is quality for one unit of
        cost, while `cost_weight` of the estimators is risk for one unit.)
    mean_cost : float, optional
        The score is the quality where the mean cost of the rows is at most that.  Otherwise it is below all of these:
        -1,000,000 less the cost in excess, so that a search that finds nothing within it takes what is nearest.

    Returns
    -------
    CostScorer
        A function ``(estimator, X, y, sample_weight=None, qid=None)``.

    Notes
    -----
    Each fold is judged by itself: with `mean_cost`, by the mean cost of its own rows.

    Queries and weights reach a scorer by scikit-learn's metadata routing only.  A ranker therefore needs
    ``sklearn.set_config(enable_metadata_routing=True)``, ``make_cost_scorer(...).set_score_request(qid=True)``,
    ``CSTCRanker(...).set_fit_request(qid=True)``, and folds of whole queries: ``GroupKFold``, given ``groups=qid``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.model_selection import GridSearchCV
    >>> from cstc import CSTCClassifier
    >>> from cstc.metrics import make_cost_scorer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> weights = {"cost_weight": [0.1, 0.01, 0.001]}
    >>> model = CSTCClassifier(n_weak_learners=20, random_state=0)
    >>> search = GridSearchCV(model, weights, scoring=make_cost_scorer(mean_cost=3), cv=2).fit(X, y)
    >>> search.best_params_, bool(search.best_score_ > 0.9)
    ({'cost_weight': 0.01}, True)
    """
    if (cost_weight is None) == (mean_cost is None):
        raise ValueError("give either cost_weight= or mean_cost=, to weigh cost or to limit it")
    for name, value in (("cost_weight", cost_weight), ("mean_cost", mean_cost)):
        is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        if value is not None and not (is_number and 0 <= float(value) < np.inf):
            raise ValueError(f"{name} is {value!r}; it must be a finite number, 0 or more")
    if quality is not None and not callable(quality):
        if not isinstance(quality, str):
            raise ValueError(f"quality is {quality!r}; give None, a name of scikit-learn's scorers or a function")
        get_scorer(quality)  # an error for a name that it does not know
    return CostScorer(quality, cost_weight=cost_weight, mean_cost=mean_cost)


class CostScorer(BaseEstimator):
    """What `make_cost_scorer` makes; an estimator only in that scikit-learn can clone it and route queries to it."""

    __metadata_request__score = {"estimator": UNUSED}  # of what `score` takes, this is not routed

    def __init__(self, quality=None, *, cost_weight=None, mean_cost=None):
        self.quality = quality
        self.cost_weight = cost_weight
        self.mean_cost = mean_cost

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None, qid: Any = None) -> float:
        return self.score(estimator, X, y, sample_weight, qid)

    def score(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None, qid: Any = None) -> float:
        """The same as a call; by this name scikit-learn finds what can be routed."""
        steps = getattr(estimator, "steps", [(None, estimator)])
        model = steps[-1][1]
        if not hasattr(model, "predict_cost") or not hasattr(model, "_needs_queries"):
            raise ValueError(
                f"{type(model).__name__} has no costs to know of; give an estimator of cstc, or a Pipeline that ends "
                "with one"
            )
        if model._needs_queries and qid is None:
            raise ValueError(
                "a ranking is judged by its queries, which scikit-learn hands on by metadata routing only: "
                "sklearn.set_config(enable_metadata_routing=True), make_cost_scorer(...).set_score_request(qid=True), "
                "set_fit_request(qid=True) of the ranker, and qid= for the search"
            )
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        judged = quality_of(self.quality, model)[1]
        inputs = estimator[:-1].transform(X) if len(steps) > 1 else X
        # a function of the user is given what it would be given without this one
        asked = (model, inputs) if judged.from_margins else (estimator, X)
        quality = judged(asked[0], Rows(asked[1], y, weights, qid))
        queries = {"qid": qid} if "qid" in signature(model.predict_cost).parameters else {}
        cost = float(np.average(model.predict_cost(inputs, **queries), weights=weights))
        if self.mean_cost is None:
            return quality - float(self.cost_weight) * cost
        excess = cost - float(self.mean_cost)
        return max(quality, LOWEST) if excess <= 0 else LOWEST - excess
