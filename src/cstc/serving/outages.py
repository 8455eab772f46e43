"""What is not to be had for one row: what failed, what it takes with it, and the model that does without.

A source that fails is lost with all features that come from it.  The row then goes on with the model that does without
them (`FittedTree.without`), as if that had been known from the start; what it has paid stays paid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .compiled import CompiledTree

__all__ = ["Outages"]


class Outages:
    """The features that one row goes on without, and why.

    Attributes
    ----------
    whole : CompiledTree
        The model without outages.
    failed : dict of int to str
        Why a feature could not be had.  The row goes on without it when its path needs it.
    gone : frozenset of int
        Features that the row goes on without.
    losses : list of str
        Why they are not to be had, where that came as a surprise.
    """

    __slots__ = ("failed", "gone", "losses", "whole")

    def __init__(self, whole: CompiledTree) -> None:
        self.whole = whole
        self.failed: dict[int, str] = {}
        self.gone: frozenset[int] = frozenset()
        self.losses: list[str] = []

    def take_out(self, features: Iterable[int]) -> CompiledTree:
        """Go on without some more features; the model that does."""
        self.gone = self.gone.union(features)
        return self.whole.without(self.gone)

    def lost_with(self, features: Iterable[int], known: Collection[int]) -> list[int]:
        """What goes with some features that are lost: whatever else their sources have, and all that failed."""
        down = {other for f in features for other in self.whole.source_of(f)} | self.failed.keys()
        return [f for f in down if f not in known]

    def why_failed(self, features: Iterable[int]) -> str:
        """The reasons of features that failed, each once."""
        return "; ".join(dict.fromkeys(self.failed[f] for f in features))

    def are_felt_at(self, node: int) -> bool:
        """Whether a row that is answered at a node might have been asked for what is gone."""
        return bool(self.gone) and self.whole.asks(node, self.gone)

    def describe(self) -> str:
        """All that is gone, in words."""
        return f"{self.whole.describe(self.gone)} unavailable"

    def describe_at(self, node: int) -> str | None:
        """What of that a node might have asked for, or all if it asks for nothing of it; None if nothing is gone."""
        if not self.gone:
            return None
        felt = [f for f in self.gone if self.whole.asks(node, (f,))] or self.gone
        return f"{self.whole.describe(felt)} {'unavailable' if self.gone.isdisjoint(self.failed) else 'failed'}"
