"""Models of other libraries as fitted trees: predict, count cost and serve on demand what a user already has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lightgbm
import numpy as np

from .costs import as_cost_model
from .lightgbm_trees import flatten_booster
from .model import FittedTree, Schema, TreeShape
from .model.build import Score, build_tree

__all__ = ["from_lightgbm"]

#: Objectives whose prediction is the sum of the trees itself.
PLAIN_OBJECTIVES = (
    "regression",
    "regression_l1",
    "huber",
    "fair",
    "quantile",
    "mape",
    "lambdarank",
    "rank_xendcg",
    "custom",
)


def from_lightgbm(
    booster: Any,
    costs: Any = None,
    *,
    categories: Mapping[str, Sequence[Any]] | None = None,
    classes: Sequence[Any] | None = None,
    raw_score: bool = False,
) -> FittedTree:
    """A LightGBM model as a tree of one node, which buys along the branches of its trees.

    Margins equal ``booster.predict(..., raw_score=True)``, probabilities equal ``booster.predict(...)``; for ranking,
    the answer is the raw score, and the margins of a random forest are averages.  As in LightGBM, trees up to the best
    iteration are used.  The constant prediction, the answer before anything was bought, is the mean raw score of the
    training rows.

    Parameters
    ----------
    booster : lightgbm.Booster or a fitted LGBMModel
        Regression, binary or multiclass classification, or ranking.
    costs : CostModel, array-like, mapping, path or None, default=None
        What features cost, as for the estimators.  None: 1 for each feature.
    categories : mapping of str to sequence, optional
        For columns that were pandas categories in training, their values in the order of their codes.  They are taken
        from the booster where it is clear which columns it means.
    classes : sequence, optional
        What to answer for each class; 0, 1, ... by default, and `classes_` of a fitted LGBMClassifier.
    raw_score : bool, default=False
        Answer raw scores.  Needed for objectives that transform them in another way than the logistic function and
        softmax (Poisson, gamma, ...).

    Returns
    -------
    FittedTree

    Examples
    --------
    >>> import lightgbm, numpy as np, cstc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3))
    >>> data = lightgbm.Dataset(X, X[:, 0] + (X[:, 1] > 0), feature_name=["a", "b", "c"])
    >>> booster = lightgbm.train({"objective": "regression", "max_depth": 2, "verbosity": -1}, data, 20)
    >>> model = cstc.from_lightgbm(booster, costs={"a": 1.0, "b": 2.0, "c": 50.0})
    >>> bool(np.allclose(model.predict(X), booster.predict(X), rtol=1e-12))
    True
    >>> float(model.predict_cost(X).max())
    3.0
    """
    if classes is None:
        classes = getattr(booster, "classes_", None)
    booster = getattr(booster, "booster_", booster)
    if not isinstance(booster, lightgbm.Booster):
        raise TypeError(f"booster is a {type(booster).__name__}; give a lightgbm.Booster or a fitted LGBMModel")
    best = booster.best_iteration if booster.best_iteration and booster.best_iteration > 0 else None
    dump = booster.dump_model(num_iteration=best)
    trees = [tree["tree_structure"] for tree in dump["tree_info"]]
    link, factor, n_outputs = _link(dump, raw_score)
    if dump.get("average_output") and not raw_score:  # a random forest, whose raw scores are sums
        factor /= max(1, len(trees) // n_outputs)
    if any("leaf_coeff" in node for tree in trees for node in _nodes(tree)):
        raise ValueError("linear trees (linear_tree=True) are not supported: their leaves are no constants")
    pool = flatten_booster(booster, unseen_is_zero=True)

    # a tree of one leaf buys nothing: its value is part of the intercept
    grown = np.flatnonzero(pool.feature[pool.roots] >= 0)
    leaves = np.setdiff1d(np.arange(pool.n_learners), grown)
    intercepts = factor * np.bincount(leaves % n_outputs, pool.value[pool.roots[leaves]], minlength=n_outputs)
    constant = factor * np.bincount(np.arange(len(trees)) % n_outputs, list(map(_mean, trees)), minlength=n_outputs)
    weights = np.zeros((len(grown), n_outputs))
    weights[np.arange(len(grown)), grown % n_outputs] = factor

    names = [str(name) for name in booster.feature_name()]
    return build_tree(
        TreeShape.full(1),
        [Score(pool.subset(grown), weights, intercepts)],
        [None],
        constant=constant,
        costs=as_cost_model(costs, len(names)).resolve(names),
        link=link,
        schema=Schema(
            feature_names=names,
            categories=_categories(booster, dump, names, categories),
            may_miss=_may_miss(trees, len(names)),
            classes=_classes(link, n_outputs, classes),
        ),
    )


def _link(dump: dict[str, Any], raw_score: bool) -> tuple[str, float, int]:
    """Link, factor on the raw scores, and number of outputs."""
    name, *settings = str(dump.get("objective", "custom")).split()
    n_outputs = int(dump["num_tree_per_iteration"])
    if raw_score or (name in PLAIN_OBJECTIVES and "sqrt" not in settings):
        if n_outputs > 1:
            raise ValueError(f"the booster has {n_outputs} raw scores for each row; only one can be the answer")
        return "identity", 1.0, 1
    if name == "binary":
        steepness = [float(setting.removeprefix("sigmoid:")) for setting in settings if setting.startswith("sigmoid:")]
        return "logistic", steepness[0] if steepness else 1.0, 1
    if name == "multiclass":
        return "softmax", 1.0, n_outputs
    if n_outputs > 1:
        raise ValueError(
            f"the objective {dump['objective']!r} gives {n_outputs} scores; of those, cstc knows 'multiclass'"
        )
    raise ValueError(
        f"the objective {dump['objective']!r} transforms raw scores in a way that cstc does not know; "
        "pass raw_score=True to answer the raw scores"
    )


def _classes(link: str, n_outputs: int, classes: Sequence[Any] | None) -> np.ndarray | None:
    if link == "identity":
        return None
    expected = 2 if link == "logistic" else n_outputs
    found = np.arange(expected) if classes is None else np.asarray(classes)
    if found.shape != (expected,):
        raise ValueError(f"classes has {len(found)} entries, the booster has {expected} classes")
    return found


def _nodes(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a dumped tree, each before its children."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if "split_feature" in node:
            waiting += [node["right_child"], node["left_child"]]


def _may_miss(trees: list[dict[str, Any]], n_features: int) -> np.ndarray:
    """Which features missed values in training, as their splits tell; of one that nobody looks at nothing is known."""
    may_miss, used = np.zeros((2, n_features), dtype=bool)
    for tree in trees:
        for node in _nodes(tree):
            if "split_feature" in node:
                may_miss[node["split_feature"]] |= node["missing_type"] != "None"
                used[node["split_feature"]] = True
    return may_miss | ~used


def _mean(tree: dict[str, Any]) -> float:
    """Mean output over the training rows."""
    leaves = [node for node in _nodes(tree) if "split_feature" not in node]
    counts = np.array([leaf.get("leaf_count", 0) for leaf in leaves], dtype=float)
    values = np.array([leaf["leaf_value"] for leaf in leaves])
    return float(np.average(values, weights=counts if counts.sum() > 0 else None))


def _categories(
    booster: lightgbm.Booster, dump: dict[str, Any], names: list[str], given: Mapping[str, Sequence[Any]] | None
) -> dict[str, list[str]]:
    if given is not None:
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(f"categories names {unknown[0]!r}, which is no feature of the booster: {names[:8]}")
        return {name: [str(value) for value in values] for name, values in given.items()}
    values = booster.pandas_categorical or []
    if not values:
        return {}
    parameters = booster.params
    columns = parameters.get("categorical_column", parameters.get("categorical_feature", []))
    if not columns:  # LightGBM 4.6 reads the parameters of a model that is a text, but does not show them
        line = re.search(r"^\[categorical_feature: ([\d,]+)\]$", booster.model_to_string(), re.MULTILINE)
        columns = [int(column) for column in line[1].split(",")] if line else []
    fits = isinstance(columns, list) and len(columns) == len(values)
    if fits:
        # the booster keeps the values, but not of which columns: a code beyond them shows that these are others
        highest = [dump["feature_infos"].get(names[column], {}).get("max_value", -1) for column in columns]
        fits = all(code < len(codes) for code, codes in zip(highest, values, strict=True))
    if not fits:
        raise ValueError(
            f"the booster was trained with {len(values)} pandas columns of categories, and does not say which "
            "they are; pass categories={name: values in the order of their codes}"
        )
    return {names[column]: [str(value) for value in codes] for column, codes in zip(columns, values, strict=True)}
