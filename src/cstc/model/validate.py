"""What a model must be so that it can predict, count and be served: every check, in one place.

A file may be damaged or made by somebody else, and a model may be built by hand.  `validate_model` asks of
both the same: that whatever `FittedTree` does later ends, stays inside its arrays and gives finite numbers.
It runs when a file is read, before the model is handed out, and before one is written.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from ..costs import ResolvedCosts
from .fallbacks import UNKNOWN
from .fitted import FittedTree
from .links import LINKS
from .pool import STEPS, TreePool, in_steps
from .schema import Schema
from .shape import TreeShape
from .training import Training, as_iso_date

__all__ = ["ModelFileError", "check_memory", "validate_model"]

#: A weak learner is walked level by level; grown ones have a few levels.
DEEPEST_LEARNER = 1000
#: The largest margin that a node may be able to reach; beyond it sums and differences overflow.
LARGEST_MARGIN = 1e300
#: Rows that a training may claim: what a JSON number holds to the last digit.
LARGEST_COUNT = 2**53

_KINDS = {"b": "true or false", "i": "whole numbers", "f": "numbers"}
_POSITION_ARRAYS = {
    "feature": "i",
    "threshold": "f",
    "left": "i",
    "right": "i",
    "missing_left": "b",
    "zero_is_missing": "b",
    "category_start": "i",
    "category_count": "i",
    "value": "f",
    "linear_feature": "i",
    "share_left": "f",
}


class ModelFileError(ValueError):
    """A model file, or the model that should become one, is not valid; the message says what is wrong.

    Examples
    --------
    >>> import cstc, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.cstc"
    >>> _ = path.write_bytes(b"nonsense")
    >>> cstc.load(path)
    Traceback (most recent call last):
        ...
    cstc.model.validate.ModelFileError: ...model.cstc: it does not end as a model file does: ...
    """


def fail(message: str) -> NoReturn:
    raise ModelFileError(message)


def validate_model(model: FittedTree) -> None:
    """Raise `ModelFileError`, saying what is wrong and where, unless the model is whole."""
    _check_schema(model.schema)
    n_features = len(model.schema.feature_names)
    _check_costs(model.costs, n_features)
    _check_pool(model.pool, n_features)
    _check_shape(model.shape)
    _check_classifiers(model)
    _check_link(model)
    _check_fallbacks(model)
    _check_sums(model)
    _check_training(model.training, model.shape.n_terminals)
    _check_limit(model.limit)
    _check_decisions(model)


def check_memory(sizes: dict[str, int], stored: int, max_bytes: int) -> None:
    """Refuse a model whose full arrays, and what prediction derives from them, would not fit into `max_bytes`.

    Weights and bills are stored sparsely: a small file may ask for arrays of any size.
    """
    nodes, items = sizes["nodes"], sizes["items"]
    experts = nodes + sizes.get("fallbacks", 0)
    weights = 8 * sizes["learners"] * (experts * sizes["outputs"] + nodes)
    weights *= 2 if "fallbacks" in sizes else 1  # all experts side by side
    bills = (sizes["features"] + sizes["positions"]) * items
    paths = 8 * nodes * nodes
    sources = (sizes.get("sources", 0) + sizes.get("sets", 0)) * (sizes["features"] + 8 * experts)
    needed = stored + weights + bills + paths + sources
    if needed > max_bytes:
        counts = ", ".join(f"{count} {name}" for name, count in sizes.items())
        fail(f"a model of {counts} needs {needed} bytes and the limit is {max_bytes}; a larger max_bytes allows it")


def shown(value: object, most: int = 80) -> str:
    """A value for a message: what comes from a file may be of any length."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


# -- the pieces that every check is made of ----------------------------------------------------------------------


def _check_array(name: str, array: Any, kind: str, shape: tuple[int | None, ...]) -> None:
    """`shape` has None where any length will do."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != kind:
        found = f"dtype {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        fail(f"{name} has {found}; it must be an array of {_KINDS[kind]}")
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        fail(f"{name} has shape {array.shape}; it must be ({wanted})")
    if kind == "f" and not np.isfinite(array).all():
        at = np.argwhere(~np.isfinite(array))[0]
        fail(f"{name}{at.tolist()} is {array[tuple(at)]}; it must be a finite number")


def _check_range(name: str, array: np.ndarray, lowest: int, end: int) -> None:
    wrong = (array < lowest) | (array >= end)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        fail(f"{name}[{at}] is {array[at]}; it must be from {lowest} to {end - 1}")


def _refuse(wrong: np.ndarray, name: str, message: str) -> None:
    """Fail if any entry is wrong, naming the first one."""
    if wrong.any():
        fail(f"{name}[{int(np.flatnonzero(wrong)[0])}] {message}")


def _check_names(what: str, names: Any) -> None:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        fail(f"{what} must be a list of texts")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            fail(f"{what} hold {shown(name)} twice; each must appear once")
        try:
            name.encode()
        except UnicodeEncodeError:
            fail(f"{what} hold {shown(name)}, which has half of a character in it")
        seen.add(name)


# -- columns, classes, bills -------------------------------------------------------------------------------------


def _check_schema(schema: Schema) -> None:
    _check_names("feature names", schema.feature_names)
    if not schema.feature_names:
        fail("there are no feature names; a model has at least one feature")
    _check_array("may_miss", schema.may_miss, "b", (len(schema.feature_names),))
    _check_array("means", schema.means, "f", (len(schema.feature_names),))
    if not isinstance(schema.categories, dict):
        fail("categories must map feature names to lists of texts")
    known = set(schema.feature_names)
    for name, values in schema.categories.items():
        if name not in known:
            fail(f"categories are given for {shown(name)}, which is not one of the {len(known)} features")
        _check_names(f"categories of {shown(name)}", values)
    if not isinstance(schema.booleans, frozenset):
        fail("booleans must be a frozenset of feature names")
    for name in schema.booleans:
        if name not in known or name in schema.categories:
            fail(f"booleans name {shown(name)}, which is not one of the features that are numbers")
    if schema.classes is not None:
        _check_classes(schema.classes)


def _check_classes(classes: Any) -> None:
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or classes.dtype.kind not in "biufUOT":
        fail("classes must be an array of texts, of numbers or of true and false")
    values = classes.tolist()
    if classes.dtype.kind in "UOT":
        _check_names("classes", values)
    elif classes.dtype.kind == "f" and (classes.dtype.itemsize > 8 or not np.isfinite(classes).all()):
        fail(f"classes are {shown(values)} of type {classes.dtype}; they must be finite numbers of at most 64 bits")
    elif len(set(values)) != len(values):
        fail(f"classes are {shown(values)}; each must appear once")


def _check_costs(costs: ResolvedCosts, n_features: int) -> None:
    _check_names("item names", costs.item_names)
    n_items = len(costs.item_names)
    _check_array("prices", costs.prices, "f", (n_items,))
    _refuse(costs.prices < 0, "prices", "is negative; a price is 0 or more")
    _check_array("feature_items", costs.feature_items, "b", (n_features, n_items))
    evaluation = costs.evaluation
    if isinstance(evaluation, bool) or not isinstance(evaluation, int | float):
        fail(f"the price of an evaluation is {shown(evaluation)}; it must be a number")
    if not 0 <= evaluation <= LARGEST_MARGIN:
        fail(f"the price of an evaluation is {evaluation!r}; it must be finite and 0 or more")


# -- training ----------------------------------------------------------------------------------------------------


def _check_training(training: Training, n_terminals: int) -> None:
    """What is known of it must be possible; a service divides by it."""
    rows, cost = training.rows, training.mean_cost
    if rows is not None and not (type(rows) is int and 1 <= rows <= LARGEST_COUNT):
        fail(f"the number of training rows is {shown(rows)}; it must be a whole number from 1 to {LARGEST_COUNT}")
    if cost is not None and not (isinstance(cost, float) and 0 <= cost <= LARGEST_MARGIN):
        fail(f"the mean cost in training is {shown(cost)}; it must be a finite number, 0 or more")
    reached = training.reached
    if reached is not None:
        _check_array("reached", reached, "f", (n_terminals,))
        _refuse((reached < 0) | (reached > 1), "reached", "is no share; it must be from 0 to 1")
        if not abs(reached.sum() - 1) <= 1e-6:
            fail(f"the shares in reached sum to {reached.sum():g}; they must sum to 1")
    trained = training.trained
    if trained is not None:
        try:
            known = as_iso_date(trained)
        except ValueError:
            known = None
        if known != trained:
            fail(f"the date of training is {shown(trained)}; it must be a text as ISO 8601 writes dates")


# -- weak learners -----------------------------------------------------------------------------------------------


def _check_pool(pool: TreePool, n_features: int) -> None:
    _check_array("feature", pool.feature, "i", (None,))
    n = pool.n_positions
    for name, kind in _POSITION_ARRAYS.items():
        _check_array(name, getattr(pool, name), kind, (n,))
    _check_array("roots", pool.roots, "i", (None,))
    _check_array("category_left", pool.category_left, "b", (None,))
    for name in ("feature", "linear_feature"):
        _check_range(name, getattr(pool, name), -1, n_features)
    for name in ("roots", "left", "right"):
        _check_range(name, getattr(pool, name), 0, n)
    is_split = pool.feature >= 0
    for name in ("left", "right"):
        astray = ~is_split & (getattr(pool, name) != np.arange(n))
        _refuse(astray, name, "leads on from a leaf; a leaf must point to itself")
    _refuse(is_split & (pool.linear_feature >= 0), "linear_feature", "is set at a split; only a leaf may have one")
    share = pool.share_left
    _refuse((share < 0) | (share > 1), "share_left", "is no share; it must be from 0 to 1")
    _refuse(in_steps(share) != share, "share_left", f"must be a whole number of steps of 1/{STEPS}")
    _check_category_pieces(pool, is_split)
    _check_forest(pool, is_split)


def _check_category_pieces(pool: TreePool, is_split: np.ndarray) -> None:
    start, count, length = pool.category_start, pool.category_count, len(pool.category_left)
    _check_range("category_start", start, -1, length)
    _check_range("category_count", count, 0, length + 1)
    has_piece = start >= 0
    _refuse(has_piece & ~is_split, "category_start", "is set at a leaf; only a split may have categories")
    _refuse(has_piece != (count > 0), "category_count", "must be above 0 exactly where category_start is not -1")
    _refuse(has_piece & (count > length - start), "category_count", f"reaches beyond the {length} of category_left")


def _check_forest(pool: TreePool, is_split: np.ndarray) -> None:
    """Every position belongs to exactly one learner, and every way down ends."""
    n = pool.n_positions
    arrivals = np.bincount(pool.roots, minlength=n)
    for child in (pool.left, pool.right):
        arrivals += np.bincount(child[is_split], minlength=n)
    if (arrivals != 1).any():
        at = int(np.flatnonzero(arrivals != 1)[0])
        fail(f"position {at} of the weak learners is reached {arrivals[at]} times; each must be reached once")
    # Each position now is a root or has one parent, so that going down from the roots never comes to one twice.
    # What is left out lies on a circle.
    level, reached, depth = pool.roots, 0, 0
    while len(level):
        if depth > DEEPEST_LEARNER:
            fail(f"a weak learner has more than {DEEPEST_LEARNER} levels")
        reached += len(level)
        level = level[is_split[level]]
        level = np.concatenate([pool.left[level], pool.right[level]])
        depth += 1
    if reached != n:
        fail(f"{n - reached} positions of the weak learners lie on a circle; each must be reached from a root")


# -- the tree of classifiers -------------------------------------------------------------------------------------


def _check_shape(shape: TreeShape) -> None:
    _check_array("upper", shape.upper, "i", (None,))
    n_nodes = shape.n_nodes
    if not n_nodes:
        fail("the tree has no classifier; it needs at least one")
    _check_array("lower", shape.lower, "i", (n_nodes,))
    nodes = np.arange(n_nodes)
    for name, side in (("upper", shape.upper), ("lower", shape.lower)):
        _refuse(side >= n_nodes, name, f"names a classifier that is not there; there are {n_nodes}")
        _refuse((side >= 0) & (side <= nodes), name, "leads back; a parent comes before its children")
    upper, lower = shape.upper, shape.lower
    is_leaf = (upper == lower) & (upper < 0)
    split_end = (upper < 0) & (lower < 0) & ~is_leaf
    _refuse(split_end, "upper", "and lower are two terminals; a leaf classifier has one terminal for both")
    children = np.concatenate([upper[upper >= 0], lower[lower >= 0]])
    arrivals = np.bincount(children, minlength=n_nodes)
    arrivals[0] += 1
    if (arrivals != 1).any():
        at = int(np.flatnonzero(arrivals != 1)[0])
        fail(f"classifier {at} is reached {arrivals[at]} times; each must be reached once")
    terminals = -1 - np.concatenate([upper[upper < 0], lower[(lower < 0) & ~is_leaf]])
    if not np.array_equal(np.sort(terminals), np.arange(len(terminals))):
        fail(f"the {len(terminals)} terminals must be numbered 0 to {len(terminals) - 1}, each once")


def _check_classifiers(model: FittedTree) -> None:
    n_learners, n_nodes = model.pool.n_learners, model.shape.n_nodes
    _check_array("predict_intercepts", model.predict_intercepts, "f", (n_nodes, None))
    n_outputs = model.predict_intercepts.shape[1]
    _check_array("predict_weights", model.predict_weights, "f", (n_learners, n_nodes, n_outputs))
    _check_array("route_weights", model.route_weights, "f", (n_learners, n_nodes))
    _check_array("thresholds", model.thresholds, "f", (n_nodes,))
    _check_array("constant", model.constant, "f", (n_outputs,))
    routes_nowhere = model.shape.is_leaf & (model.route_weights != 0).any(axis=0)
    if routes_nowhere.any():
        fail(f"classifier {int(np.flatnonzero(routes_nowhere)[0])} is a leaf and routes nowhere, but has route weights")


def _check_fallbacks(model: FittedTree) -> None:
    n_learners, n_nodes, n_outputs = model.predict_weights.shape
    _check_array("fallback_intercepts", model.fallback_intercepts, "f", (None, n_outputs))
    n_experts = n_nodes + len(model.fallback_intercepts)
    _check_array("fallback_weights", model.fallback_weights, "f", (n_learners, n_experts - n_nodes, n_outputs))
    estimates = model.estimates
    if estimates is None:
        if n_experts > n_nodes:
            fail("there are fallbacks, and nothing is known of what they lose")
        return
    _check_names("source names", estimates.source_names)
    n_sources = len(estimates.source_names)
    _check_array("losses", estimates.losses, "f", (n_nodes, n_experts))
    _check_array("sets", estimates.sets, "b", (None, len(model.schema.feature_names)))
    _check_array("set_harm", estimates.set_harm, "f", (n_experts, len(estimates.sets)))
    for name in ("losses", "set_harm"):
        found = getattr(estimates, name)
        known = (found >= 0) | (found == UNKNOWN)
        if not known.all():
            fail(f"{name} holds {found[~known][0]}; each must be 0 or more, or {UNKNOWN:g} where none is known")
    _check_array("path_losses", estimates.path_losses, "f", (n_nodes,))
    _check_array("harm", estimates.harm, "f", (n_experts, n_sources))
    for name in ("path_losses", "harm"):
        _refuse(getattr(estimates, name).ravel() < 0, name, "is negative; it must be 0 or more")
    _check_array("source_features", estimates.source_features, "b", (n_sources, len(model.schema.feature_names)))
    weight = estimates.cost_weight
    if type(weight) is not float or not 0 <= weight <= LARGEST_MARGIN:
        fail(f"the cost weight is {shown(weight)}; it must be a finite number, 0 or more")


def _check_limit(limit: Any) -> None:
    if limit is not None and (type(limit) is not float or not 0 <= limit < math.inf):
        fail(f"the limit is {shown(limit)}; it must be a finite number, 0 or more, or none")


def _check_decisions(model: FittedTree) -> None:
    if model.decisions is None:
        return
    costs = model.decisions.costs
    n = 0 if model.schema.classes is None else len(model.schema.classes)
    if costs.shape not in ((n, n), (n, n + 1)) or not n:
        fail(f"the prices of errors have the shape {costs.shape}; {n} classes need {(n, n)} or {(n, n + 1)}")
    if not np.isfinite(costs).all() or (costs < 0).any() or not costs.any():
        fail("the prices of errors must be finite, 0 or more, and not all 0")


def _check_link(model: FittedTree) -> None:
    """What the margins mean must fit their number, and that of the classes."""
    if model.link not in LINKS:
        fail(f"link is {shown(model.link)}; it must be one of {LINKS}")
    n_outputs = model.predict_intercepts.shape[1]
    n_classes = None if model.schema.classes is None else len(model.schema.classes)
    fits = {
        "identity": n_outputs == 1 and n_classes is None,
        "logistic": n_outputs == 1 and n_classes == 2,
        "softmax": n_outputs >= 2 and n_outputs == n_classes,
    }
    if not fits[model.link]:
        wanted = {
            "identity": "1 output and no classes",
            "logistic": "1 output and 2 classes",
            "softmax": "as many outputs as classes, 2 or more",
        }
        classes = "no classes" if n_classes is None else f"{n_classes} classes"
        fail(f"link {model.link!r} needs {wanted[model.link]}; the model has {n_outputs} outputs and {classes}")


def _check_sums(model: FittedTree) -> None:
    """Margins and bills must stay finite whatever branches a row takes."""
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.abs(model.pool.value).max(initial=0.0)
        largest = max(largest, float(np.abs(np.append(model.schema.means, 0.0)).max() * largest))
        predicted = np.abs(model.expert_weights).sum(axis=0) * largest + np.abs(model.expert_intercepts)
        routed = np.abs(model.route_weights).sum(axis=0) * largest
        bill = model.costs.prices.sum() + model.costs.evaluation * model.pool.n_learners
    for what, reach in (("margins", predicted), ("routing margins", routed), ("constant", np.abs(model.constant))):
        if not (reach <= LARGEST_MARGIN).all():
            fail(f"the {what} may exceed {LARGEST_MARGIN:g}; weights or values are too large")
    if not np.isfinite(bill):
        fail("all prices together are more than a number can hold")
    if model.estimates is not None:
        known = model.estimates
        with np.errstate(over="ignore", invalid="ignore"):
            value = known.losses.max(initial=0.0) + known.harm.sum(axis=1).max(initial=0.0) + known.cost_weight * bill
            value = value + known.set_harm.max(initial=0.0)
        if not value <= LARGEST_MARGIN:
            fail(f"losses, harm and the cost weight may exceed {LARGEST_MARGIN:g} together")
