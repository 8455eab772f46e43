"""A mixture prepared for serving: each row is sent to one of two compiled models, by the coin of its id."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

from ..model.mixture import Mixture
from .compiled import CompiledTree, compile_tree

__all__ = ["CompiledMixture", "Taken", "compile_model", "id_of"]


class Taken(NamedTuple):
    """Which of the two models of a mixture a row takes.

    Attributes
    ----------
    why : str
        In a sentence; empty for a model that is no mixture.
    first_node, first_terminal : int
        Where its nodes and terminals begin, counted over both models.
    """

    why: str = ""
    first_node: int = 0
    first_terminal: int = 0


class CompiledMixture:
    """A `Mixture`, compiled; use `compile_model`, which keeps what it has compiled.

    What both models have in common (features, items, prices, classes) is that of the more expensive one.
    """

    def __init__(self, model: Mixture) -> None:
        self.model = model
        self.trees = tuple(map(compile_tree, model.trees))
        first, second = self.trees
        self.feature_names, self.index, self.codes = second.feature_names, second.index, second.codes
        self.item_names, self.prices, self.feature_items = second.item_names, second.prices, second.feature_items
        self.may_miss, self.is_boolean, self.classes = second.may_miss, second.is_boolean, second.classes
        self.decisions = second.decisions
        self.is_plain = [a or b for a, b in zip(first.is_plain, second.is_plain, strict=True)]
        self.features_needed = sorted({*first.features_needed, *second.features_needed})
        self.highest_cost = max(first.highest_cost, second.highest_cost)
        self.training, self.n_terminals = model.training, model.n_terminals
        self._numbers = count()  # of rows without an id; counting up is safe from many threads

    def take(self, identity: Any) -> tuple[CompiledTree, Taken]:
        """The model for the row of an id; None: for the next row."""
        which, why = self.model.tree_for(identity, next(self._numbers) if identity is None else 0)
        cheaper = self.model.cheaper
        return self.trees[which], Taken(why, which * cheaper.n_nodes, which * cheaper.n_terminals)

    def feature(self, name: Any) -> int:
        """The column of a feature's name."""
        return self.trees[1].feature(name)

    def items_named(self, names: Iterable[str]) -> int:
        """The set of items of these names."""
        return self.trees[1].items_named(names)

    def describe(self, features: Iterable[int]) -> str:
        """Some features by their names, or by those of their sources."""
        return self.trees[1].describe(features)

    def encode(self, feature: int, raw: Any) -> float:
        """The number that the models see; `Fault` if one of them cannot use it."""
        for tree in self.trees:
            value = tree.encode(feature, raw)
        return value

    @property
    def names_of_outages(self) -> list[str]:
        """What may be said to be down: sources, items and features."""
        return self.trees[1].names_of_outages


def compile_model(model: Any) -> CompiledTree | CompiledMixture:
    """Compile a fitted model or a mixture, once for all who ask."""
    if isinstance(model, CompiledMixture):
        return model
    inner = getattr(model, "model_", model)
    if not isinstance(inner, Mixture):
        return compile_tree(model)
    compiled = inner.__dict__.get("_compiled")
    if compiled is None:
        compiled = CompiledMixture(inner)
        object.__setattr__(inner, "_compiled", compiled)  # lives as long as the model, and does not travel with it
    return compiled


def id_of(row: Any, given: Any) -> Any:
    """The id of a row on demand: the one that was given, or the row itself where it is a key; else None."""
    if given is not None:
        return given
    return row if isinstance(row, str | int) and not isinstance(row, bool) else None
