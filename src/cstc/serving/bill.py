"""The bill of one row: what is paid, what was bought, and whether the budget reaches for more.

Asking for a feature buys all items that it requires and that are not paid yet, each once.  The budget is a promise:
before anything is bought, its price and the evaluation of the learners that wait for it are added up here.

Items are bits of a number (bit r is item r), and features are column numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..costs import shorten
from ..model.fitted import least_of
from .compiled import CompiledTree, bits

__all__ = ["Bill"]


class Bill:
    """What one row has paid.

    Attributes
    ----------
    budget : float or None
        The cost is never above this.
    charges : sequence of int
        For each feature, the items that asking for it buys.
    paid : int
        Items that need not be paid any more: those that were paid before, and those that were bought.
    bought : int
        Items that were bought for this row.
    on_its_way : tuple of int
        Features of a wave in which something failed: perhaps they were fetched all the same, and are to be paid then.
    """

    __slots__ = ("_compiled", "bought", "budget", "charges", "on_its_way", "paid")

    def __init__(self, compiled: CompiledTree, paid: Iterable[str], budget: float | None) -> None:
        self._compiled = compiled  # its prices are also those of the models that do without some features
        self.budget = least_of(budget, compiled.limit)
        self.charges: Sequence[int] = compiled.feature_items
        self.paid = 0 if paid == () else compiled.items_named(paid)
        self.bought = 0
        self.on_its_way: tuple[int, ...] = ()

    def items_for(self, features: Iterable[int]) -> int:
        """Items that these features require and that are not paid yet."""
        items = 0
        charges = self.charges
        for f in features:
            items |= charges[f]
        return items & ~self.paid

    def buy(self, features: Iterable[int]) -> int:
        """Pay for these features; the items that were not paid before."""
        items = self.items_for(features)
        self.paid |= items
        self.bought |= items
        return items

    def cost(self, n_evaluated: int) -> float:
        """What is spent, with so many learners evaluated."""
        return self._compiled.price_of(self.bought) + self._compiled.evaluation * n_evaluated

    def cost_with(self, items: int, n_evaluated: int) -> float:
        """The cost once these items, and what is on its way, are bought and so many learners are evaluated."""
        compiled = self._compiled
        if self.on_its_way:
            items |= self.items_for(self.on_its_way)
        return compiled.price_of(self.bought | items) + compiled.evaluation * n_evaluated

    def reaches(self, items: int, n_evaluated: int) -> bool:
        """Whether the budget allows for that."""
        return self.budget is None or self.cost_with(items, n_evaluated) <= self.budget

    def over_budget(self, items: int, n_evaluated: int) -> str:
        """Why these items are not bought, in a sentence."""
        names = [self._compiled.item_names[r] for r in bits(items)]
        wanted = shorten(names) if names else "the next weak learners"
        cost = self.cost_with(items, n_evaluated)
        return f"with {wanted} the cost would be {cost:g}, above the budget of {self.budget:g}"
