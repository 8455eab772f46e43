"""What a tree is in a file: a document of names and what is known, and arrays; and the tree that these make.

Trees are written in the latest version that they have, and read from every one: what a version did not have yet is
left to the defaults of `FittedTree`.  Whole numbers are stored in 32 bits, weights and bills as the places and values
of what is not zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ..costs import ResolvedCosts
from .decisions import Decisions
from .fallbacks import Estimates
from .file_encoding import check_keys, dense, json_of, npy_of, read_json, read_npy, sparse
from .file_versions import DOCUMENT, LATEST_OF_TREES, VERSIONS, member_of
from .fitted import FittedTree
from .pool import STEPS, TreePool
from .schema import Schema
from .shape import TreeShape
from .training import Training
from .validate import check_memory, fail, shown, validate_model

__all__ = ["members_of", "tree_of"]

_POOL_ARRAYS = tuple(field.name for field in fields(TreePool))


def members_of(model: FittedTree) -> dict[str, bytes]:
    """All members but the manifest, in the order of `LATEST_OF_TREES`."""
    schema, costs = model.schema, model.costs
    document = {
        "features": schema.feature_names,
        "categories": schema.categories,
        "classes": None if schema.classes is None else _describe_classes(schema.classes),
        "link": model.link,
        "items": costs.item_names,
        "evaluation": float(costs.evaluation),
        "booleans": [name for name in schema.feature_names if name in schema.booleans],
        "training": _describe_training(model.training),
        "estimates": _describe_estimates(model.estimates),
        "limit": model.limit,
    }
    arrays = {name: getattr(model.pool, name) for name in _POOL_ARRAYS}
    arrays["share_left"] = np.round(STEPS * model.pool.share_left)
    arrays |= {"upper": model.shape.upper, "lower": model.shape.lower}
    for name in ("predict_intercepts", "thresholds", "constant", "fallback_intercepts"):
        arrays[name] = getattr(model, name)
    arrays |= {"prices": costs.prices, "may_miss": schema.may_miss, "means": schema.means}
    arrays["error_costs"] = np.zeros((0, 0)) if model.decisions is None else model.decisions.costs
    arrays["fallback_places"], arrays["fallback_values"] = sparse(model.fallback_weights)
    arrays |= _arrays_of_estimates(model.estimates)
    arrays["predict_places"], arrays["predict_values"] = sparse(model.predict_weights)
    arrays["route_places"], arrays["route_values"] = sparse(model.route_weights)
    arrays["feature_item_places"], _ = sparse(costs.feature_items)
    kinds = {name: kind for name, (kind, _) in VERSIONS[LATEST_OF_TREES].arrays.items()}
    stored = {member_of(name): npy_of(name, arrays[name], kind) for name, kind in kinds.items()}
    return {DOCUMENT: json_of(document)} | stored


def tree_of(version: int, members: dict[str, bytearray], max_bytes: int) -> FittedTree:
    """The tree of a file of a version, once all of it is found right; its members are used up."""
    stored, holds = sum(map(len, members.values())), VERSIONS[version]
    document = read_json(DOCUMENT, members.pop(DOCUMENT))
    check_keys(DOCUMENT, document, holds.entries)
    arrays = {name: read_npy(name, members.pop(member_of(name)), *spec) for name, spec in holds.arrays.items()}
    sizes = _sizes(document, arrays)
    check_memory(sizes, stored, max_bytes)
    fallbacks = _read_fallbacks(document, arrays, sizes)
    nodes, n_outputs = (sizes["learners"], sizes["nodes"]), sizes["outputs"]
    model = FittedTree(
        pool=_read_pool(arrays),
        shape=TreeShape(arrays["upper"], arrays["lower"]),
        predict_weights=dense("predict", arrays["predict_places"], arrays["predict_values"], (*nodes, n_outputs)),
        predict_intercepts=arrays["predict_intercepts"],
        route_weights=dense("route", arrays["route_places"], arrays["route_values"], nodes),
        thresholds=arrays["thresholds"],
        constant=arrays["constant"],
        costs=_read_costs(document, arrays),
        link=document["link"],
        schema=_read_schema(document, arrays, max_bytes),
        training=_read_training(document["training"]) if "training" in document else Training(),
        limit=document.get("limit"),
        decisions=Decisions(arrays["error_costs"]) if "error_costs" in arrays and arrays["error_costs"].size else None,
        **fallbacks,
    )
    validate_model(model)
    return model


def _sizes(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """How many there are of everything that a model counts, for `check_memory`."""
    n_nodes, n_outputs = arrays["predict_intercepts"].shape
    found = {
        "nodes": n_nodes,
        "outputs": n_outputs,
        "learners": len(arrays["roots"]),
        "positions": len(arrays["feature"]),
        "features": len(arrays["may_miss"]),
        "items": len(arrays["prices"]),
    }
    if "fallback_intercepts" in arrays:
        found["fallbacks"] = len(arrays["fallback_intercepts"])
        if document["estimates"] is not None:
            found["sources"], found["sets"] = arrays["harm"].shape[1], arrays["set_harm"].shape[1]
    return found


# -- parts of the tree ---------------------------------------------------------------------------------------------


def _read_pool(arrays: Mapping[str, np.ndarray]) -> TreePool:
    found = {name: arrays[name] for name in _POOL_ARRAYS if name in arrays}
    if "share_left" in found:
        found["share_left"] = found["share_left"] / STEPS
    return TreePool(**found)


def _read_costs(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ResolvedCosts:
    places, shape = arrays["feature_item_places"], (len(arrays["may_miss"]), len(arrays["prices"]))
    return ResolvedCosts(
        item_names=document["items"],
        prices=arrays["prices"],
        feature_items=dense("feature_item", places, np.ones(len(places), dtype=bool), shape),
        evaluation=document["evaluation"],
    )


def _read_schema(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray], max_bytes: int) -> Schema:
    return Schema(
        feature_names=document["features"],
        categories=document["categories"],
        may_miss=arrays["may_miss"],
        classes=None if document["classes"] is None else _read_classes(document["classes"], max_bytes),
        booleans=_read_booleans(document.get("booleans", [])),
        means=arrays.get("means"),
    )


def _read_fallbacks(
    document: Mapping[str, Any], arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Arguments of `FittedTree`; none where the version had no fallbacks yet."""
    if "fallbacks" not in sizes:
        return {}
    shape = (sizes["learners"], sizes["fallbacks"], sizes["outputs"])
    return {
        "fallback_weights": dense("fallback", arrays["fallback_places"], arrays["fallback_values"], shape),
        "fallback_intercepts": arrays["fallback_intercepts"],
        "estimates": _read_estimates(document["estimates"], arrays, sizes["features"]),
    }


def _describe_estimates(estimates: Estimates | None) -> dict[str, Any] | None:
    if estimates is None:
        return None
    return {"sources": estimates.source_names, "cost_weight": float(estimates.cost_weight)}


def _arrays_of_estimates(estimates: Estimates | None) -> dict[str, np.ndarray]:
    if estimates is None:
        flat, square = np.zeros(0), np.zeros((0, 0))
        nothing = {"losses": square, "path_losses": flat, "harm": square, "set_harm": square}
        return nothing | {"source_places": flat, "set_places": flat}
    found = {name: getattr(estimates, name) for name in ("losses", "path_losses", "harm", "set_harm")}
    places = {"source_places": estimates.source_features, "set_places": estimates.sets}
    return found | {name: sparse(array)[0] for name, array in places.items()}


def _read_estimates(
    description: dict[str, Any] | None, arrays: Mapping[str, np.ndarray], n_features: int
) -> Estimates | None:
    if description is None:
        for name in ("losses", "path_losses", "harm", "set_harm", "source_places", "set_places"):
            if arrays[name].size:
                fail(f"the array {name} holds something, and there are no estimates")
        return None
    check_keys("estimates", description, {"sources": (list,), "cost_weight": (float,)})

    def columns(name: str, n: int) -> np.ndarray:
        places = arrays[f"{name}_places"]
        return dense(name, places, np.ones(len(places), dtype=bool), (n, n_features))

    return Estimates(
        losses=arrays["losses"],
        path_losses=arrays["path_losses"],
        harm=arrays["harm"],
        sets=columns("set", arrays["set_harm"].shape[1]),
        set_harm=arrays["set_harm"],
        source_names=description["sources"],
        source_features=columns("source", arrays["harm"].shape[1]),
        cost_weight=description["cost_weight"],
    )


def _read_booleans(names: list[Any]) -> frozenset[str]:
    """Each name once: a file says what it says in one way only."""
    if not all(type(name) is str for name in names) or len(set(names)) != len(names):
        fail("booleans must be a list of feature names, each of them once")
    return frozenset(names)


def _describe_training(training: Training) -> dict[str, Any]:
    """Everything under its name, null where it is not known: one form, and so the same bytes."""
    cost, reached = training.mean_cost, training.reached
    return {
        "rows": training.rows,
        "mean_cost": None if cost is None else float(cost),
        "reached": None if reached is None else reached.tolist(),
        "trained": training.trained,
    }


def _read_training(description: dict[str, Any]) -> Training:
    none = type(None)
    kinds = {"rows": (int, none), "mean_cost": (float, none), "reached": (list, none), "trained": (str, none)}
    check_keys("training", description, kinds)
    reached = description["reached"]
    if reached is not None:
        if not all(type(share) is float for share in reached):
            fail("'reached' in training must be a list of numbers with a decimal point")
        reached = np.array(reached, dtype=np.float64)
    return Training(description["rows"], description["mean_cost"], reached, description["trained"])


def _describe_classes(classes: np.ndarray) -> dict[str, Any]:
    """Classes keep their type, so that a loaded model answers with what the estimator would."""
    kind = {"U": "str", "O": "object", "T": "object"}.get(classes.dtype.kind, classes.dtype.name)
    return {"type": kind, "values": classes.tolist()}


def _read_classes(description: dict[str, Any], max_bytes: int) -> np.ndarray:
    check_keys("classes", description, {"type": (str,), "values": (list,)})
    kind, values = description["type"], description["values"]
    if kind in ("str", "object"):
        if not all(type(value) is str for value in values):
            fail("classes must all be texts")
        if kind == "str" and 4 * len(values) * max(map(len, values), default=0) > max_bytes:
            fail(f"the names of the {len(values)} classes are too long")
        return np.array(values, dtype=kind)
    match = re.fullmatch(r"bool|(?:(?P<sign>u?)int(?P<bits>8|16|32|64))|float(?:16|32|64)", kind)
    if match is None:
        fail(f"classes are of type {shown(kind)}; it must be str, object, bool, int8 to uint64 or float16 to float64")
    python = float if kind.startswith("float") else bool if kind == "bool" else int
    if not all(type(value) is python for value in values):
        fail(f"classes must all be of type {python.__name__}, as {kind!r} says")
    if python is int:
        bounds = np.iinfo(kind)
        if not all(bounds.min <= value <= bounds.max for value in values):
            fail(f"a class is outside of what {kind} holds")
    with np.errstate(over="ignore"):  # what is too large for a short float becomes infinite, and is refused for that
        return np.array(values, dtype=kind)
