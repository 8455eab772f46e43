"""What a page is made of: models with their table, and how they were made; from a folder or from a fitted frontier."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..frontier import Frontier
from ..model import FittedTree
from ..model.mixture import Mixture
from ..model.queries import QueryTree

__all__ = ["Contents", "Reference", "contents_of"]

PACKAGES = ("cstc", "numpy", "scipy", "scikit-learn", "lightgbm")


@dataclass(frozen=True)
class Reference:
    """Another system beside the models: its points on the validation rows, from cheap to expensive."""

    name: str
    points: list[tuple[float, float]]  # mean cost and quality


@dataclass(frozen=True, eq=False)
class Contents:
    """What a page is made of.

    Attributes
    ----------
    models : list of FittedTree or Mixture
        From cheap to expensive.
    table : list of dict
        The row of each in `Frontier.table_`.
    quality_name : str
    made : dict
        How they were made: whatever is known of it.
    references : list of Reference
    """

    models: list[FittedTree | Mixture]
    table: list[dict[str, Any]]
    quality_name: str
    made: dict[str, Any] = field(default_factory=dict)
    references: list[Reference] = field(default_factory=list)

    @property
    def in_money(self) -> bool:
        """Whether errors have prices: then what tests and errors cost together decides."""
        return "total_cost" in self.table[0]


def contents_of(saved: Any) -> Contents:
    """Of a fitted `Frontier`, or of anything that has `models`, `table`, `quality_name` and `made`."""
    if isinstance(saved, Frontier):
        saved._check_fitted()
        _refuse_queries([model.model_ for model in saved.models_])
        return Contents(
            [model.model_ for model in saved.models_], list(saved.table_), saved.quality_name_, _made_of(saved)
        )
    lost = [name for name in ("models", "table", "quality_name") if not hasattr(saved, name)]
    if lost:
        raise TypeError(
            f"saved is a {type(saved).__name__} without {' and '.join(lost)}; give a fitted Frontier, or what was "
            "loaded from the folder of one"
        )
    models, table = list(saved.models), list(saved.table)
    if not models or len(models) != len(table):
        raise ValueError(f"saved has {len(models)} models and {len(table)} rows in its table; each model needs one")
    _refuse_queries(models)
    for model in models:
        if not isinstance(model, FittedTree | Mixture):
            raise TypeError(
                f"saved.models holds a {type(model).__name__}; a page shows models as cstc.load gives them, or model_ "
                "of fitted estimators"
            )
    made = dict(getattr(saved, "made", None) or {})
    return Contents(models, table, str(saved.quality_name), made, _references(getattr(saved, "references", None)))


def _refuse_queries(models: Sequence[Any]) -> None:
    """A page tells what each row buys and why, as if it was alone."""
    if any(isinstance(model, QueryTree) for model in models):
        raise ValueError(
            "these models look at whole queries, and a page is about rows that go their way alone; table_ and plot of "
            "the Frontier, or table.csv and frontier.png in its folder, show their cost and quality"
        )


def _references(given: Any) -> list[Reference]:
    found = []
    for entry in given or []:
        try:
            name, points = entry
            places = [_point(point) for point in points]
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(
                "a reference is a name and its points, each with mean_cost and quality, such as "
                f"('CEGB', [{{'mean_cost': 3.0, 'quality': 0.8}}]); this is none: {entry!r}"
            ) from error
        found.append(Reference(str(name), sorted(places)))
    return found


def _point(point: Any) -> tuple[float, float]:
    if isinstance(point, Mapping):
        return float(point["mean_cost"]), float(point["quality"])
    if isinstance(point, Sequence) and not isinstance(point, str):
        cost, quality = point
        return float(cost), float(quality)
    return float(point.mean_cost), float(point.quality)


def _made_of(frontier: Frontier) -> dict[str, Any]:
    """What a fitted frontier knows of its making: its parameters, and the versions that are at work."""
    estimator = frontier.estimator
    given = {key: value for key, value in estimator.get_params(deep=False).items() if value is not None}
    plain = {key: value for key, value in given.items() if isinstance(value, str | int | float | bool)}
    method = given.get("method")
    if method is not None and not isinstance(method, str):
        plain["method"] = type(method).__name__
    return {
        "estimator": type(estimator).__name__,
        "parameters": plain,
        "random_state": estimator.random_state,
        "versions": {"Python": platform.python_version()} | _versions(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # such as cstc itself, where it runs from its sources
            continue
    return found
