"""Which columns a model looks at: a table that it answers need not have the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..model import FittedTree
from ..model.file import Model
from ..model.queries import QueryTree

__all__ = ["Lacking", "features_used", "lacking", "trees_of"]


class Lacking(NamedTuple):
    """What a table need not have, and what is not missed in it."""

    names: list[str]  # columns that need not be there
    gone: np.ndarray | None  # the columns that `--unavailable` takes away, by number
    ignored: np.ndarray | None  # these, and the columns that nobody looks at and that are not there


def features_used(tree: FittedTree) -> tuple[np.ndarray, np.ndarray]:
    """Bool (n_features,) each: those that some path looks at, and those that a fallback looks at."""
    everything = np.eye(len(tree.schema.feature_names), dtype=bool)
    needed = tree.terminal_learners.any(axis=0)
    return np.asarray(tree.pool.learner_uses(everything)[needed].any(axis=0)), np.asarray(
        tree.expert_features.any(axis=0)
    )


def trees_of(model: Model) -> list[FittedTree]:
    """The trees that a model is made of."""
    if isinstance(model, QueryTree):
        return [model.tree]
    return [model] if isinstance(model, FittedTree) else list(model.trees)


def lacking(model: Model, unavailable: Sequence[str], there: Sequence[str]) -> Lacking:
    """Of a model and a table with the columns `there`."""
    gone = model.columns_named(unavailable) if unavailable else None
    names = model.schema.feature_names
    spare = np.ones(len(names), dtype=bool)
    for tree in trees_of(model):
        used, by_fallbacks = features_used(tree)
        # a plain input is computed with, whatever its weight is
        looked_at = used | by_fallbacks | tree.plain_features
        spare &= ~looked_at[: len(names)]  # made columns come after the features
    lost = {j for j in np.flatnonzero(spare).tolist() if names[j] not in there}
    lost |= set() if gone is None else set(gone.tolist())
    found = np.array(sorted(lost), dtype=int)
    return Lacking([names[j] for j in found.tolist()], gone, found if len(found) else None)
