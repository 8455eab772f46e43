"""The parameters that the estimators share: what they mean, and what is wrong with bad ones."""

from __future__ import annotations

import inspect
from numbers import Integral, Real

import numpy as np

from ..on_device import DEVICES

__all__ = ["ATTRIBUTES", "BOOSTED_ONLY", "check_parameters", "cost_weight_of", "document_parameters"]

PARAMETERS = """
    Parameters
    ----------
    costs : CostModel, array-like, mapping, path or None, default=None
        What features cost: one price per column, a mapping from column names or column numbers to prices, the
        path of a CSV file, or a `CostModel` with shared items.  None: 1 for each feature.
    cost_weight : float or None, default=None
        The paper's lambda: how much risk one unit of cost is worth.  None: 0.01{or_one}, or whatever meets
        `mean_cost`.
    mean_cost : float or None, default=None
        What a row may cost on average, instead of a cost weight: the fit looks for the weight whose mean cost is at
        most that, out of fold for `Experts` and on rows that are held out for `Paper` and `Exact`.  Where no weight
        comes near, the model is a `Mixture` of the two neighbours that meets the mean.  (The hard limit of a single
        row is `budget=` of `predict`, or `with_limit`.)
    method : {{"auto", "experts", "paper", "exact"}}, Experts, Paper or Exact, default="auto"
        `Experts`: a chain of boosted experts on growing sets of features, with gates that stop each row in time, and
        branches for groups of rows that need different features.  `Paper`: the paper's procedure, letter by letter.
        `Exact`: the paper's loss, carried on to what is paid and predicted in the end, for plain inputs.  A name means
        the method with its defaults; "auto" is `Experts()` with boosted trees and `Exact()` with plain inputs.{ranking}
    weak_learners : {{"boosted", "identity"}}, default="boosted"
        Boosted trees of limited depth, or the inputs themselves, unscaled.
    n_weak_learners : int or None, default=None
        Rounds of boosting at most.  None: 200; `Experts` takes 200 for each 10,000 rows from 10,000 rows on, at most
        3,000.
    weak_learner_depth : int or None, default=None
        Depth of a weak learner.  None: 4; `Experts` grows trees of 31 leaves, at most 8 splits deep, from 10,000 rows
        on.
    learning_rate : float, default=0.1
        Shrinkage of boosting.
    early_stopping : int or None, default=20
        Stop boosting after so many rounds without a better score on rows left out (folds, or the validation
        data where nothing is cross-fitted); None: never.
    categorical_features : sequence of int or str, or None, default=None
        Columns whose numbers are categories.  Text and categorical columns of a table always are.{class_weight}
    random_state : int, RandomState or None, default=None
        Seed of the folds, of rows that are held out and of boosting.
    n_jobs : int or None, default=None
        Fits that run side by side, each with one thread.  None or -1: as many as the cores that this process may use.
        The model does not depend on it.
    device : {{"cpu", "cuda"}}, default="cpu"
        Where boosted trees grow: with "cuda" on an NVIDIA GPU, by XGBoost (the extra `gpu`); see docs/gpu.md.  The
        fitted model needs no GPU.
    verbose : int, default=0
        1 shows how much is done and the time left, in one line that moves (in a log, a line every 10 seconds); 2 every
        step as a line of its own."""

ATTRIBUTES = """
    Attributes
    ----------
    model_ : FittedTree, Mixture or QueryTree
        The fitted model as flat arrays; a `Mixture` only where `mean_cost` needs one, and a `QueryTree` only of a
        ranker with `whole_queries`.
    cost_weight_ : float or tuple of two floats
        The cost weight of the model; of a mixture that of the cheaper model and that of the other.
    costs_ : ResolvedCosts
        Items, prices and which feature requires which item.
    expected_cost_ : float
        Sum of traversal probability times exact path cost on the training data (counting="learner").  Probabilities are
        soft for `Paper` and `Exact`; for `Experts` they are the shares of rows that gates stop, out of fold.
    mean_cost_ : float
        Mean of `predict_cost` on the training data (on 2,000 rows of it, evenly spaced, if there are more), weighted by
        `sample_weight`.
    candidates_ : list of (name, expected_loss, mean_cost, verdict)
        What `Experts` had to choose from, "taken" or why not; empty for the other methods.
    loss_history_ : list of ndarray
        For each stage of training (one, in the paper's method), the loss after every step.  For `Experts`, the expected
        loss after each gate, the last one first (the observed risk alone for a cost weight of 0).
    n_iter_ : int
        Steps of the solver, all stages together; for `Experts`, gates that were considered.
    n_features_in_, feature_names_in_
        As in scikit-learn."""

OBJECTIVES = ("auto", "regression", "lambdarank")  # of a ranker
USUAL_COST_WEIGHT = 0.01  # where nobody gives one

#: How trees are boosted: of no use where there are none.
BOOSTED_ONLY = ("n_weak_learners", "weak_learner_depth", "learning_rate", "early_stopping", "device")


def document_parameters(*, class_weight: bool = False, ranking: bool = False) -> str:
    """The parameters of one estimator: the three differ in few words."""
    weight = """
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with the sample weights."""
    errors = """
    error_costs : array-like of shape (n_classes, n_classes), mapping or None, default=None
        What errors cost, in the currency of `costs`: rows are the truth, columns the decision, in the order of
        `classes_`; or ``{{truth: {{decision: price}}}}`` by the names of the classes.  A further column (in a mapping,
        the decision None) is the price of referring the row to a person: `predict` then answers None.  Tests plus
        errors are minimised, and `predict` takes the decision of least expected cost.  For `Experts`."""
    more = (weight + errors.replace("{{", "{").replace("}}", "}")) if class_weight else ""
    order = """
    objective : {"auto", "regression", "lambdarank"}, default="auto"
        What the experts of `Experts` are boosted for: squared risk on the grades, or the order of documents within
        queries (LightGBM's lambdarank, whose scores are put back into the units of grades).  "auto": the expert on all
        features is grown for both, and lambdarank is taken for all experts where its NDCG@`at` out of fold is higher
        by more than two standard errors.  Lambdarank needs grades that are whole numbers, and LightGBM; it cannot learn
        from the samples of ``Experts(rows_per_fit=...)``.  Where it cannot be had, and for the other methods, "auto" is
        "regression".
    at : int, default=5
        Places of a query that count: NDCG@`at` is what `score` and a `Frontier` measure, what `Paper` prunes by, and
        what "auto" and lambdarank look at.  With `whole_queries`, gaps are measured from this place.
    whole_queries : bool, default=False
        Whether gates of `Experts` also see the place of a document among the current scores of its query: one far
        behind the best may stop, however unsure its score is.  The model is a `QueryTree`; whatever predicts with it
        needs `qid` and answers whole queries at a time, with no budget for a single row."""
    return PARAMETERS.format(
        class_weight=more,
        or_one="; 1 with `error_costs`" if class_weight else "",
        ranking=order if ranking else "",
    )


def check_parameters(estimator) -> None:
    """Every parameter that can be wrong, with what would be right; the method checks its own."""
    for name in ("cost_weight", "mean_cost"):
        value = getattr(estimator, name)
        is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        if value is not None and (not is_number or not np.isfinite(float(value)) or value < 0):
            raise ValueError(f"{name} is {value!r}; it must be a finite number, 0 or more, or None")
    if estimator.cost_weight is not None and estimator.mean_cost is not None:
        raise ValueError(
            f"cost_weight is {estimator.cost_weight!r} and mean_cost is {estimator.mean_cost!r}; give one of them: the "
            "fit finds the cost weight for a mean cost"
        )
    for name in ("n_weak_learners", "weak_learner_depth"):
        value = getattr(estimator, name)
        if value is not None and (not isinstance(value, Integral) or value < 1):
            raise ValueError(f"{name} is {value!r}; it must be None or a whole number, 1 or more")
    value = estimator.early_stopping
    if value is not None and (not isinstance(value, Integral) or value < 1):
        raise ValueError(f"early_stopping is {value!r}; it must be None or a whole number, 1 or more")
    value = getattr(estimator, "at", 1)
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"at is {value!r}; it must be a whole number, 1 or more")
    value = getattr(estimator, "objective", OBJECTIVES[0])
    if not isinstance(value, str) or value not in OBJECTIVES:
        raise ValueError(f"objective is {value!r}; it must be one of {OBJECTIVES}")
    value = estimator.learning_rate
    if not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f"learning_rate is {value!r}; it must be a finite number above 0")
    if not isinstance(estimator.device, str) or estimator.device not in DEVICES:
        raise ValueError(f"device is {estimator.device!r}; it must be one of {DEVICES}")
    whole = getattr(estimator, "whole_queries", False)
    if not isinstance(whole, bool | np.bool_):
        raise ValueError(f"whole_queries is {whole!r}; it must be True or False")
    check_weak_learners(estimator)
    if not isinstance(estimator.verbose, Integral) or estimator.verbose < 0:
        raise ValueError(f"verbose is {estimator.verbose!r}; it must be 0, 1 or 2")
    if estimator.n_jobs is not None and (not isinstance(estimator.n_jobs, Integral) or estimator.n_jobs == 0):
        raise ValueError(f"n_jobs is {estimator.n_jobs!r}; it must be None, -1 (all cores) or a number of threads")


def cost_weight_of(estimator) -> float:
    """The cost weight of an estimator that was given no mean cost; errors in money are weighed as they are."""
    if estimator.cost_weight is not None:
        return float(estimator.cost_weight)
    return USUAL_COST_WEIGHT if getattr(estimator, "error_costs", None) is None else 1.0


def check_weak_learners(estimator) -> None:
    """A known kind; and where nothing is boosted, nothing is said of boosting."""
    kinds = ("boosted", "identity")
    if estimator.weak_learners not in kinds:
        raise ValueError(f"weak_learners is {estimator.weak_learners!r}; it must be one of {kinds}")
    if estimator.weak_learners == "identity":
        defaults = inspect.signature(type(estimator)).parameters
        changed = [name for name in BOOSTED_ONLY if getattr(estimator, name) != defaults[name].default]
        if changed:
            raise ValueError(
                f"{changed[0]} is {getattr(estimator, changed[0])!r}, and with weak_learners='identity' nothing is "
                "boosted; leave it out, or take weak_learners='boosted'"
            )
