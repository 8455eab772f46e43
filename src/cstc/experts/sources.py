"""Sources: features that come, and fail, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..costs import ResolvedCosts, shorten

__all__ = ["Sources", "sources_of"]


@dataclass(frozen=True, eq=False)
class Sources:
    """Columns that come, and fail, together."""

    names: list[str]
    columns: np.ndarray  # bool (n_sources, n_features)


def sources_of(given: Mapping[str, Sequence[Any]] | None, names: Sequence[str], costs: ResolvedCosts) -> Sources:
    """The sources that the user names, and every other column by its items: those that share one are one source."""
    columns: dict[str, np.ndarray] = {}
    free = np.full(len(names), True)
    for source, features in (given or {}).items():
        if not isinstance(source, str):
            raise ValueError(f"sources has the name {source!r}; names of sources are texts: {str(source)!r}")
        at = [_column(source, each, names) for each in features]
        twice = [names[column] for column in at if not free[column]]
        if twice:
            raise ValueError(f"sources has {twice[0]!r} twice; a feature comes from one source")
        if (source in names and at != [list(names).index(source)]) or source in set(costs.item_names) - set(names):
            raise ValueError(f"sources has {source!r}, which is a feature or an item; give the source another name")
        free[at] = False
        columns[source] = np.isin(np.arange(len(names)), at)
    priced = costs.feature_items
    left = np.flatnonzero(free)
    while len(left):
        # all that is linked by shared items
        group = left[:1]
        while True:
            items = np.asarray(priced[group].any(axis=0))
            larger = left[np.isin(left, group) | (priced[left] & items).any(axis=1)]
            if len(larger) == len(group):
                break
            group = larger
        shared = [costs.item_names[item] for item in np.flatnonzero(priced[group].all(axis=0))]
        name = str(names[group[0]]) if len(group) == 1 or not shared else shared[0]
        while name in columns:
            name += "'"
        columns[name] = np.isin(np.arange(len(names)), group)
        left = np.setdiff1d(left, group)
    return Sources(list(columns), np.array(list(columns.values())).reshape(len(columns), len(names)))


def _column(source: str, feature: Any, names: Sequence[str]) -> int:
    if isinstance(feature, str) and feature in names:
        return list(names).index(feature)
    if isinstance(feature, int | np.integer) and not isinstance(feature, bool) and 0 <= feature < len(names):
        return int(feature)
    raise ValueError(f"sources[{source!r}] names {feature!r}, which is no feature: the features are {shorten(names)}")
