"""The parameters that the estimators share: what they mean, and what is wrong with bad ones."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np

from ..solver import SOLVERS
from ..training import METHODS

__all__ = ["ATTRIBUTES", "PARAMETERS", "check_parameters", "document_parameters"]

PARAMETERS = """
    Parameters
    ----------
    costs : CostModel, array-like, mapping, path or None, default=None
        What features cost: one price per column, a mapping from column names to prices, the path of a
        CSV file, or a `CostModel` with shared items.  None: 1 for each feature.
    cost_weight : float, default=0.01
        The paper's lambda: how much risk one unit of cost is worth.
    l1_weight : float, default=0.0
        The paper's rho: strength of the l1 penalty on the weights of every node.
    method : {{"auto", "experts", "refined", "paper"}}, default="auto"
        "experts": a chain of boosted experts on growing sets of features, with gates that stop each row in time, and
        branches for groups of rows that need different features.
        "refined": the paper's loss, carried on to what is paid and predicted in the end.  "paper": the paper's
        procedure, letter by letter.  "auto": "experts" with boosted trees, "refined" with `weak_learners="identity"`.
    depth : int, default=3
        Levels of classifiers in the tree (not of "experts", whose chains are as long as it pays).
    max_nodes : int or None, default=10
        At most so many classifiers, counted by breadth (likewise).
    weak_learners : {{"boosted", "identity"}}, default="boosted"
        Boosted trees of limited depth, or the inputs themselves, unscaled.
    n_weak_learners : int, default=200
        Rounds of boosting at most.
    weak_learner_depth : int, default=4
        Depth of a weak learner.
    learning_rate : float, default=0.1
        Shrinkage of boosting.
    early_stopping : int or None, default=20
        Stop boosting after so many rounds without a better score on rows left out (folds, or the validation
        data where nothing is cross-fitted); None: never.
    cost_strengths : tuple of float or None, default=None
        Grow one ensemble of weak learners for each entry, with a split paying `entry * cost_weight * price` per
        row for what the row has not bought yet; 0 is blind to cost.  None: {strengths}
        (Method "refined" and "paper".)
    cross_fit : int or None, default=None
        Number of folds: training rows see ensembles that were grown without their own fold.
        None: {cross_fit}
    solver : {{"joint", "cyclic"}} or None, default=None
        All nodes at once, or the paper's one node at a time.  None: the one that the method names.
    max_iter : int, default=1000
        Steps (joint) or sweeps (cyclic) at most, in every stage.
    tol : float, default=1e-5
        Stop when a step lowers the loss by less than this part of it.
    pruning : bool, default=True
        Prune the tree on validation data (method "paper"; "refined" always does).
    fine_tuning : bool, default=True
        Fine-tune the predictive classifiers (method "paper"; "refined" always does).
    validation_fraction : float, default=0.2
        Part of the training data that is held out when `fit` is given no validation data{queries}; not by "experts".
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

ATTRIBUTES = """
    Attributes
    ----------
    model_ : FittedTree
        The fitted model as flat arrays.
    costs_ : ResolvedCosts
        Items, prices and which feature requires which item.
    expected_cost_ : float
        Sum of traversal probability times exact path cost on the training data (counting="learner").  Probabilities are
        soft for "paper" and "refined"; for "experts" they are the shares of rows that gates stop, out of fold.
    mean_cost_ : float
        Mean of `predict_cost` on the training data (on 2,000 rows of it, evenly spaced, if there are more), weighted by
        `sample_weight`.
    loss_history_ : list of ndarray
        For each stage of training (one, in the paper's method), the loss after every step.  For "experts", the expected
        loss after each gate, the last one first (the observed risk alone for a cost weight of 0).
    n_iter_ : int
        Steps of the solver, all stages together; for "experts", gates that were considered.
    n_features_in_, feature_names_in_
        As in scikit-learn."""


def document_parameters(*, queries: bool = False, class_weight: bool = False) -> str:
    """The parameters of one estimator: the three differ in few words."""
    weight = """
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with the sample weights."""
    return PARAMETERS.format(
        strengths="(0,) for the paper, (64, 16, 4, 1) otherwise.",
        cross_fit="5 for experts, 3 for the refined method, off for the paper.",
        queries=" (whole queries)" if queries else "",
        class_weight=weight if class_weight else "",
    )


def check_parameters(estimator) -> None:
    """Every parameter that can be wrong, with what would be right."""
    for name in ("cost_weight", "l1_weight", "tol"):
        value = getattr(estimator, name)
        if not isinstance(value, Real) or not np.isfinite(float(value)) or value < 0:
            raise ValueError(f"{name} is {value!r}; it must be a finite number, 0 or more")
    for name in ("depth", "n_weak_learners", "weak_learner_depth", "max_iter"):
        value = getattr(estimator, name)
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} is {value!r}; it must be a whole number, 1 or more")
    for name in ("max_nodes", "early_stopping"):
        value = getattr(estimator, name)
        if value is not None and (not isinstance(value, Integral) or value < 1):
            raise ValueError(f"{name} is {value!r}; it must be None or a whole number, 1 or more")
    folds = estimator.cross_fit
    if folds is not None and (not isinstance(folds, Integral) or folds < 0 or folds == 1):
        raise ValueError(f"cross_fit is {folds!r}; it must be None, 0 (off) or a number of folds, 2 or more")
    if folds and estimator.method == "paper":
        raise ValueError("cross_fit belongs to the other methods; leave it out for method='paper'")
    if estimator.weak_learners == "identity" and estimator.method == "experts":
        raise ValueError("experts are boosted trees; take method='auto' or 'refined' for weak_learners='identity'")
    boosted = estimator.weak_learners == "boosted" and estimator.method in ("auto", "experts")
    if boosted and folds is not None and folds < 2:
        raise ValueError(f"cross_fit is {folds!r}; experts need 2 folds or more (method='refined' can do without)")
    for name in ("learning_rate", "validation_fraction"):
        value = getattr(estimator, name)
        if not isinstance(value, Real) or not 0 < float(value) < (1 if name == "validation_fraction" else np.inf):
            raise ValueError(f"{name} is {value!r}; it must be above 0 and, for a fraction, below 1")
    choices = {
        "method": METHODS,
        "weak_learners": ("boosted", "identity"),
        "solver": (None, *SOLVERS),
        "dtype": ("float64", "float32"),
    }
    for name, allowed in choices.items():
        if getattr(estimator, name) not in allowed:
            raise ValueError(f"{name} is {getattr(estimator, name)!r}; it must be one of {allowed}")
    for name in ("pruning", "fine_tuning"):
        if not isinstance(getattr(estimator, name), bool | np.bool_):
            raise ValueError(f"{name} is {getattr(estimator, name)!r}; it must be True or False")
    if not isinstance(estimator.verbose, Integral) or estimator.verbose < 0:
        raise ValueError(f"verbose is {estimator.verbose!r}; it must be 0, 1 or 2")
    if estimator.n_jobs is not None and (not isinstance(estimator.n_jobs, Integral) or estimator.n_jobs == 0):
        raise ValueError(f"n_jobs is {estimator.n_jobs!r}; it must be None, -1 (all cores) or a number of threads")
    if estimator.cost_strengths is not None:
        strengths = estimator.cost_strengths
        numbers = not np.isscalar(strengths) and all(isinstance(strength, Real) for strength in strengths)
        if not numbers or not len(strengths) or not np.isfinite(strengths).all() or np.min(strengths) < 0:
            raise ValueError(f"cost_strengths is {strengths!r}; give a list of finite numbers, 0 or more")
