"""What a frontier depends on, for the checkpoint: digests of the rows, the bill, the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from ..costs import ResolvedCosts
from ..rows import Rows
from ._checkpoint import digest

__all__ = ["costs_identity", "data_identity", "differences", "settings_identity"]

#: Parameters that do not change what is fitted, or that the frontier sets itself.
_FREE_PARAMETERS = ("costs", "cost_weight", "mean_cost", "random_state", "n_jobs", "verbose")
#: Where an object lies in memory: different in every process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def data_identity(rows: Rows, weights: np.ndarray | None, checker: Any) -> dict[str, Any]:
    identity: dict[str, Any] = {
        "X": digest(rows.X),
        "y": digest(rows.y),
        "sample_weight": digest(weights),
        "qid": digest(rows.qid),
    }
    if checker is not None:
        identity["columns"] = checker._feature_names()
        identity["categories"] = checker._categories
        identity["classes"] = [_as_text(name) for name in getattr(checker, "classes_", [])]
    return identity


def costs_identity(costs: ResolvedCosts) -> dict[str, Any]:
    return {
        "prices": dict(zip(costs.item_names, costs.prices.tolist(), strict=True)),
        "required items": digest(costs.feature_items),
        "evaluation": float(costs.evaluation),
    }


def settings_identity(frontier: Any, estimator: Any) -> dict[str, Any]:
    """What the models and the grid depend on, beside the data and the bill."""
    method = estimator._resolved_method()  # by its own parameters, however it was named
    parameters = estimator.get_params(deep=False) | {"method": {type(method).__name__: method.get_params()}}
    own = {name: getattr(frontier, name) for name in ("n_weights", "quality", "validation_fraction")}
    if frontier.cost_weights is not None:
        own = own | {"n_weights": None, "cost_weights": sorted(float(weight) for weight in frontier.cost_weights)}
    return {
        "estimator": type(estimator).__name__,
        "random_state": estimator.random_state,
        "parameters": {
            name: _as_text(value) for name, value in sorted(parameters.items()) if name not in _FREE_PARAMETERS
        },
        "frontier": {name: _as_text(value) for name, value in own.items()},
        "versions": {name: version(name) for name in ("cstc", "lightgbm", "scikit-learn")},
    }


def _as_text(value: Any) -> Any:
    """A parameter in a form that is the same in every process and that JSON keeps."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | np.ndarray):
        return [_as_text(entry) for entry in value]
    if isinstance(value, dict):
        return {str(name): _as_text(entry) for name, entry in value.items()}
    if isinstance(value, partial):
        return {"partial": _as_text(value.func), "args": _as_text(value.args), "keywords": _as_text(value.keywords)}
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    try:
        text = repr(value)
    except AttributeError:  # scikit-learn 1.6 cannot print a scorer of a partial
        return _as_text(vars(value))
    return _ADDRESS.sub("", text)  # of an object that says no more of itself: module and name of its class


def differences(here: Any, there: Any, name: str = "") -> Iterator[str]:
    """The names of the entries that are not the same in two nested dictionaries."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in dict.fromkeys([*here, *there]):
            yield from differences(here.get(key), there.get(key), f"{name}.{key}" if name else str(key))
    elif here != there:
        yield name
