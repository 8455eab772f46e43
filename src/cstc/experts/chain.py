"""Chains: an order of buying, cut into stages, each with its expert and what stopping there is expected to lose.

All rows make one family of chains (`method`), and so does each group of rows that has a branch of its own
(`branches`).  A chain knows nothing of cost weights: what rows do on it is decided by gates (`gates`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..boosting import GATE_ROUNDS, Boosting, Lambdarank, work_of
from ..cluster import Samples
from ..costs import ResolvedCosts
from ..engines import Shared, bin_for_all, regression
from ..losses import Loss
from ..metrics import ndcg_by_query
from ..rows import Rows, some_of
from .calibration import calibrated_expert, graded_expert
from .expectation import Expectation, agreed, stacked
from .expert import Expert, constant_expert, grow_experts, grow_on_samples_of, work_of_expert
from .leaves import with_leaves
from .order import SHARE, OrderLoss
from .places import Places
from .purchases import EXPONENTS, FINER, FIRST_STAGES, LEVELS, Order, Stage, orders_of
from .queries import Queries, WholeQueries, regression_on_places, whole_queries_of

__all__ = ["Chain", "ChainGrower", "Chains", "gate_members"]

HASTE = 8  # so many times fewer and larger steps
MOST_TEACHERS = 40_000  # rows that teach gates; with noisy targets, fewer cost quality
CLEARLY = 2.0  # standard errors of a difference, over queries
OTHERS = 5  # rows of the whole sample that a group's constant is mixed with


@dataclass(frozen=True, eq=False)
class Chain:
    """Stages with their experts, and what gates on them learn from; made once for all cost weights.

    Attributes
    ----------
    name : str
        Of the order of buying.
    stages : sequence of Stage
    experts : sequence of Expert
        One for each stage.
    losses : ndarray of shape (n, n_stages)
        What stopping at a stage is expected to lose at each row that teaches gates.
    shifts : ndarray of shape (n_stages,)
        What `losses` lack of what was observed, on average (`expectation`).
    prices : ndarray of shape (n_stages,)
        What a row pays that stops there: all items of the stage, and the trees of its expert.
    gate_price : float
        What a row pays for the trees of a gate, at each one that it meets.
    rows : Rows
        The training rows.
    half : bool ndarray
        Which half of each gate a training row teaches.
    boosting : Boosting
        Whose columns of categories, seed and threads gates take.
    blocks : Shared or None
        The columns of all stages, as its engine keeps them for all ensembles.
    teaches : int ndarray of shape (n,) or None
        The training rows that teach gates; None: all of them.
    learned : dict
        For each stage the gain that its last gate was learned from, the gate, and what it says (`gates`).
    queries : Queries or None
        Theirs, where gates see places; None: gates see rows alone.
    """

    name: str
    stages: Sequence[Stage]
    experts: Sequence[Expert]
    losses: np.ndarray
    shifts: np.ndarray
    prices: np.ndarray
    gate_price: float
    rows: Rows
    half: np.ndarray
    boosting: Boosting
    blocks: Shared | None = None
    teaches: np.ndarray | None = None
    queries: Queries | None = None
    learned: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _regressions: dict[tuple[int, int], Any] = field(default_factory=dict)

    @cached_property
    def at(self) -> np.ndarray:
        """The numbers of the training rows that teach gates."""
        return np.arange(len(self.rows)) if self.teaches is None else self.teaches

    @cached_property
    def weights(self) -> np.ndarray:
        """Weights of the rows that teach gates; their mean is 1."""
        weights = self.rows.weights[self.at]
        return weights * (len(weights) / weights.sum())

    @cached_property
    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """Which of them teach each half of a gate."""
        half = self.half[self.at]
        return np.flatnonzero(half), np.flatnonzero(~half)

    def mean(self, values: np.ndarray) -> float:
        """Over the rows, by their weights."""
        return float(np.mean(self.weights * values))

    def best_stage(self, cost_weight: float, *, shifted: bool = True) -> np.ndarray:
        """What every row loses if all stop at the stage that is best for that; gates can only lose less."""
        losses = self.losses + cost_weight * self.prices
        best = np.argmin(self.weights @ losses)
        return losses[:, best] + (self.shifts[best] if shifted else 0.0)

    def least_loss(self, cost_weight: float) -> float:
        """What would be lost if every row stopped where it is best for it: gates cannot lose less."""
        return self.mean((self.losses + cost_weight * self.prices).min(axis=1))

    def shifted(self) -> Chain:
        """The same chain with the shifts in its losses."""
        return replace(self, losses=self.losses + self.shifts, shifts=np.zeros(len(self.shifts)))

    def can_gate(self, stage: int) -> bool:
        """Whether a gate can save anything: it needs features, and an expert that knows more after it."""
        own = self.stages[stage].columns
        following = self.stages[stage + 1].columns if stage + 1 < len(self.stages) else None
        return len(own) > 0 and (following is None or len(following) > len(own))

    def work_of_gates(self) -> tuple[float, int]:
        """What they take to learn, and of how many regressions they are."""
        stages = [self.stages[stage] for stage in range(len(self.stages)) if self.can_gate(stage)]
        work = sum(work_of(len(self.at) // 2, len(stage.columns), GATE_ROUNDS) for stage in stages)
        return 2 * work, 2 * len(stages)

    def passing_price(self, stage: int) -> float:
        """What a row pays for trees at a node that it passes: the gate's and, where others look at its score, its own.

        Features are all paid for at the stage where it stops.
        """
        own = 0.0 if self.queries is None else self.experts[stage].price(self.boosting.costs)
        return self.gate_price + own

    def regression(self, stage: int, half: int) -> Any:
        """What learns one half of a gate; features are binned once for all cost weights."""
        key = stage, half
        if key not in self._regressions and self.queries is not None:
            for number, found in enumerate(regression_on_places(self, stage)):
                self._regressions[stage, number] = found
        if key not in self._regressions:
            weights = self.rows.weights * (len(self.rows) / self.rows.weights.sum())
            rows, at = replace(self.rows, weights=weights), self.at[self.halves[half]]
            columns = self.stages[stage].columns
            self._regressions[key] = regression(self.boosting, rows, at, columns, self.blocks)
        return self._regressions[key]


@dataclass(frozen=True, eq=False)
class Chains:
    """Chains over the same rows, one for each order of buying.

    Attributes
    ----------
    chains : list of Chain
    everything : Expert
        On all columns that they may buy.
    expected : Expectation
        Of losses at these rows.
    best : ndarray of shape (n, n_outputs)
        The best margins that are known of them, out of fold.
    """

    chains: list[Chain]
    everything: Expert
    expected: Expectation
    best: np.ndarray


class ChainGrower:
    """Grows chains for any rows, all with the same folds, halves and parameters.

    Parameters
    ----------
    rows : Rows
        All training rows, targets in standard units.
    boosting : Boosting
        How experts are grown.
    folds : int ndarray of shape (n,)
    half : bool ndarray of shape (n,)
    report : callable
    stakes : Loss or None
        What is weighed against cost, where that is not the loss that is boosted: errors in money.  Experts then are
        calibrated, since their probabilities decide.
    more : Samples or None
        Further rows that experts for all rows learn from instead.
    places : Places or None
        What places in a ranking are worth; None: errors at all rows count alike.
    objective : {"auto", "regression", "lambdarank"}
        What experts of a ranking are grown for; "auto": the order, where that is clearly better out of fold.
    whole_queries : WholeQueries or None
        How gates see the places of documents; None: they see rows alone.

    Attributes
    ----------
    factor : ndarray of shape (n,)
        What errors at each row are multiplied by; known when the chains for all rows are grown, 1 until then.
    of_experts : Boosting
        How experts for all rows are grown: for the loss, or for the order within queries.  Those of groups always are
        grown for the loss: documents of one query may lie in several groups, and their scores must be comparable.
    best : ndarray of shape (n, n_outputs)
        The best margins that are known of each row out of fold; known when the chains for all rows are grown.
    teachers : int ndarray
        The rows that teach gates, and at which the values of chains and groups are known.
    """

    def __init__(
        self,
        rows: Rows,
        boosting: Boosting,
        folds: np.ndarray,
        half: np.ndarray,
        report: Callable[[str], None],
        stakes: Loss | None = None,
        more: Samples | None = None,
        places: Places | None = None,
        objective: str = "regression",
        whole_queries: WholeQueries | None = None,
    ):
        self.more, self.places, self.objective, self.of_experts = more, places, objective, boosting
        self.whole_queries = whole_queries
        self.factor, self.best = np.ones(len(rows)), np.tile(boosting.constant, (len(rows), 1))
        self.rows, self.boosting, self.folds, self.half, self.report = rows, boosting, folds, half, report
        self.loss = boosting.loss
        self.stakes = self.loss if stakes is None else stakes
        if whole_queries is None:
            self.teachers = some_of(np.arange(len(rows)), MOST_TEACHERS)
        else:
            self.teachers = whole_queries_of(rows.qid, MOST_TEACHERS)
        self.n_grown = 0  # experts

    @property
    def calibrates(self) -> bool:
        return self.stakes is not self.loss

    def risk(self, margins: np.ndarray, rows: Rows | None = None) -> float:
        """Observed mean of the loss that is boosted, over some rows, or over all."""
        rows = self.rows if rows is None else rows
        return self.loss.risk(margins, rows.y, rows.weights)

    def observed(self, margins: np.ndarray, at: Any = slice(None)) -> np.ndarray:
        """What is weighed against cost, as it was observed at some of the rows."""
        return self.factor[at] * self.stakes.value(margins, self.rows.y[at])

    def lost(self, margins: np.ndarray, at: Any = slice(None)) -> float:
        """The mean of that."""
        return float(np.average(self.observed(margins, at), weights=self.rows.weights[at]))

    def boosted_weight(self, cost_weight: float) -> float:
        """A cost weight in the loss that is boosted, where errors in money are weighed."""
        if not self.calibrates:
            return cost_weight
        constant = np.tile(self.boosting.constant, (len(self.rows), 1))
        return cost_weight * self.risk(constant) / self.lost(constant)

    def grow(self, at: np.ndarray, columns: np.ndarray, paid: np.ndarray) -> Chains:
        """Chains for the rows `at` that may buy `columns` and have the items in `paid`.

        Those of a group have shifted losses: its few rows make the best expert err more.
        """
        # 1. the rows, and the constant that they start from
        whole = len(at) == len(self.rows)
        rows, folds, half, boosting = self.rows, self.folds, self.half, self.boosting
        if not whole:
            rows, folds, half = rows.take(at), folds[at], half[at]
            boosting = replace(boosting, constant=self.constant_of(rows))
            boosting = with_leaves(boosting, rows, folds, columns)
        more = self.more if whole else None
        experts = _ExpertStore(rows, folds, self.in_units, more)
        # 2. orders of buying, cut into stages, and an expert for each stage
        if whole:
            self.report("orders of buying")
        progress, of_whom = boosting.progress, "" if whole else " of groups"
        work = len(EXPONENTS) * work_of(len(rows), len(columns), len(LEVELS))
        progress.begin(f"orders of buying{of_whom}", work, once=whole)
        risk = self.risk(np.tile(boosting.constant, (len(rows), 1)), rows)
        orders = orders_of(boosting, rows, columns, paid, risk)
        cuts = [order.cut(FIRST_STAGES) for order in orders]
        sets = [columns, *(order.steps[step].columns for order, cut in zip(orders, cuts, strict=True) for step in cut)]
        blocks = bin_for_all(boosting, rows, [each for each in sets if len(each)], ahead=boosting.workers is None)
        name = f"the expert on all features{of_whom}"
        if whole:
            self.report(f"experts on up to {len(columns)} features")
            boosting = self.of_experts = self._for_objective(experts, columns, name, blocks)
        staged = self._staged(orders, cuts, experts, boosting, blocks, [(columns, boosting, name)], of_whom)
        self.n_grown += len(experts)
        everything = experts[columns, boosting]
        if boosting.costs.evaluation:
            staged = [_with_hasty_experts(stages, boosting, experts) for stages in staged]
        # 3. what each of them is expected to lose, if all of them together are right
        margins = [each.margins for each in experts]
        if self.calibrates:
            best = agreed(self.loss, margins, rows)
        else:
            best = stacked(self.loss, boosting.constant, margins, rows)
        if whole:
            self.best = best
        if whole and self.places is not None:
            self.factor = self.places.weights(best, rows)
        expected = Expectation(self.stakes, best, rows, self.factor[at])
        if whole and self.whole_queries is not None:
            of_order = self.order_loss(best, expected(np.tile(boosting.constant, (len(rows), 1))))
            expected = Expectation(self.stakes, best, rows, self.factor[at], of_order)
        teaches = np.flatnonzero(np.isin(at, self.teachers)) if len(self.teachers) < len(self.rows) else None
        seen = self.whole_queries if whole else None  # of groups, when all are known
        chains = [
            _chain(order, stages, expected, rows, half, boosting, blocks, teaches, seen)
            for order, stages in zip(orders, staged, strict=True)
        ]
        return Chains(chains if whole else [chain.shifted() for chain in chains], everything, expected, best)

    def order_shift(self, best: np.ndarray, squared: np.ndarray) -> float:
        """What other best margins lose more in the order of queries than those of the chains for all rows, as observed.

        `OrderLoss` measures from the best margins, whatever they are worth themselves.  In its unit, in which the
        constant loses `squared` on average: by the part of the lift of NDCG over the constant that is lost.
        """
        if self.places is None:
            return 0.0
        grades, at = np.rint(self.places.units.margins(self.rows.y)), self.places.at
        scores = (self.best[:, 0], best[:, 0], np.zeros(len(grades)))
        found = np.array([ndcg_by_query(grades, each, self.rows.qid, at) for each in scores])
        known, other, constant = np.nansum(found, axis=1)  # a query without a relevant document has none
        part = (known - other) / (known - constant) if known > constant else 0.0
        return float(SHARE * part * np.average(squared, weights=self.rows.weights))

    def order_loss(self, best: np.ndarray, squared: np.ndarray) -> OrderLoss | None:
        """What margins lose by the order of whole queries, of which these are the best margins of all rows.

        `squared` is what the constant is expected to lose at each row otherwise.
        """
        if self.places is None:
            return None
        return OrderLoss(best, self.boosting.constant, squared, self.rows, self.places.at, self.places.units)

    def _staged(
        self,
        orders: Sequence[Order],
        cuts: list[list[int]],
        experts: _ExpertStore,
        boosting: Boosting,
        blocks: Shared | None,
        first: list[tuple[np.ndarray, Boosting, str]],
        of_whom: str,
    ) -> list[list[tuple[Stage, Expert]]]:
        """The stages of each order, with their experts; those that are wanted `first` grow beside them.

        An order is cut where prices have grown by a factor (`cuts`), and then finer where what experts lose falls most
        from one to the next: between those, rows have something to choose.
        """

        def lost(order: Order, step: int) -> float:
            return self.risk(experts[order.steps[step].columns, boosting].margins, experts.rows)

        wanted, new = list(first), cuts
        for n_more in (*FINER, 0):
            for order, steps in zip(orders, new, strict=True):
                for stage in (order.steps[step] for step in steps):
                    name = f"the expert of the stage at {stage.price:g}, {order.name}{of_whom},"
                    wanted.append((stage.columns, boosting, name))
                    if boosting.costs.evaluation and len(stage.columns):
                        wanted.append((stage.columns, _hasty(boosting), name))
            asked = [(columns, how) for columns, how, _ in wanted]
            boosting.progress.begin(f"experts{of_whom}", *experts.work(asked), once=not of_whom)
            experts.grow(asked, [name for *_, name in wanted], blocks)
            new = [
                order.cut_finer({step: lost(order, step) for step in cut}, n_more)
                for order, cut in zip(orders, cuts, strict=True)
            ]
            wanted, cuts = [], [sorted(cut + more) for cut, more in zip(cuts, new, strict=True)]
            if not any(new):
                break
        return [
            [(order.steps[step], experts[order.steps[step].columns, boosting]) for step in cut]
            for order, cut in zip(orders, cuts, strict=True)
        ]

    def _for_objective(
        self, experts: _ExpertStore, columns: np.ndarray, name: str, blocks: Shared | None
    ) -> Boosting:
        """How experts for all rows are grown; where that is left open, both experts on all columns are compared.

        For the order of documents, where that is clearly better than the loss out of fold.  Where it is not, chains of
        it were worse: what cheap experts say is less comparable between documents.
        """
        if self.objective == "regression" or not len(columns):
            return self.boosting
        assert self.places is not None
        at, units = self.places.at, self.places.units
        for_order = replace(self.boosting, lambdarank=Lambdarank.of(self.rows, at, units))
        if self.objective == "lambdarank":
            return for_order
        tried = [(columns, self.boosting), (columns, for_order)]
        self.boosting.progress.begin("objectives", *experts.work(tried), once=True)
        experts.grow(tried, [name, f"{name} for the order of documents,"], blocks)
        grades = np.rint(units.margins(self.rows.y))
        by_loss, by_order = (
            ndcg_by_query(grades, experts[columns, each].margins[:, 0], self.rows.qid, at) for _, each in tried
        )
        gain = (by_order - by_loss)[np.isfinite(by_loss)]
        is_better = gain.mean() > CLEARLY * gain.std() / np.sqrt(len(gain))
        experts.forget(columns, self.boosting if is_better else for_order)
        return for_order if is_better else self.boosting

    def in_units(
        self, expert: Expert, boosting: Boosting, heard: Any = slice(None), rows: Rows | None = None
    ) -> Expert:
        """An expert whose answers can be compared with those of all others, by the rows at which it was heard."""
        rows = self.rows if rows is None else rows
        if boosting.lambdarank is not None:
            return graded_expert(expert, rows, heard)
        return calibrated_expert(expert, self.loss, rows, heard) if self.calibrates else expert

    def cheapest(self, at: np.ndarray, free: Expert) -> Expert:
        """The better answer at some rows for which nothing more is bought: that of `free`, or their own constant."""
        group = Rows(None, self.rows.y[at], self.rows.weights[at])
        own = constant_expert(self.constant_of(group), len(self.rows))
        return free if self.lost(free.margins[at], at) <= self.lost(own.margins[at], at) else own

    def constant_of(self, group: Rows) -> np.ndarray:
        """What a group starts from: its own constant, with a few rows of all others, so that no class is impossible."""
        y = np.concatenate([group.y, self.rows.y])
        own, others = (part.weights / part.weights.sum() for part in (group, self.rows))
        return self.loss.constant(y, np.concatenate([own * len(group), others * OTHERS]))


class _ExpertStore:
    """Experts on some rows, each grown once for its columns and its number of rounds."""

    def __init__(self, rows: Rows, folds: np.ndarray, in_units: Callable[..., Expert], more: Samples | None):
        self.rows, self._folds, self._in_units, self._more = rows, folds, in_units, more
        self._grown: dict[tuple[bytes, int, bool], Expert] = {}

    def grow(
        self, wanted: Sequence[tuple[np.ndarray, Boosting]], names: Sequence[str], blocks: Shared | None
    ) -> None:
        distinct = {self._key(*each): each for each in wanted if self._key(*each) not in self._grown}
        called = {self._key(*each): name for each, name in reversed(list(zip(wanted, names, strict=True)))}
        of_whom = [called[key] for key in distinct]
        if self._more is None:
            found = grow_experts(list(distinct.values()), self.rows, self._folds, blocks, names=of_whom)
        else:
            found = grow_on_samples_of(list(distinct.values()), self.rows, self._more, self._n_members, of_whom)
        for (key, (_, boosting)), expert in zip(distinct.items(), found, strict=True):
            self._grown[key] = self._in_units(expert, boosting, rows=self.rows)

    def forget(self, columns: np.ndarray, boosting: Boosting) -> None:
        del self._grown[self._key(columns, boosting)]

    def work(self, wanted: Sequence[tuple[np.ndarray, Boosting]]) -> tuple[float, int]:
        """What growing them takes, and how many boosters that is."""
        distinct = {self._key(*each): each for each in wanted if len(each[0])}
        distinct = {key: each for key, each in distinct.items() if key not in self._grown}
        if self._more is not None:
            n_rows, n = self._more.n_per_fit, self._n_members
            work = sum(n * work_of(n_rows, len(columns), each.n_rounds) for columns, each in distinct.values())
            return work, n * len(distinct)
        n_folds = len(np.unique(self._folds))
        work = sum(work_of_expert(boosting, columns, self.rows, n_folds) for columns, boosting in distinct.values())
        members = [n_folds + bool(boosting.costs.evaluation) for _, boosting in distinct.values()]
        return work, sum(members)

    @property
    def _n_members(self) -> int:
        """Of samples, as many as there are folds."""
        return len(np.unique(self._folds))

    def __getitem__(self, wanted: tuple[np.ndarray, Boosting]) -> Expert:
        return self._grown[self._key(*wanted)]

    def __iter__(self) -> Iterator[Expert]:
        return iter(self._grown.values())

    def __len__(self) -> int:
        return len(self._grown)

    @staticmethod
    def _key(columns: np.ndarray, boosting: Boosting) -> tuple[bytes, int, bool]:
        return columns.tobytes(), boosting.n_rounds, boosting.lambdarank is not None


def _hasty(boosting: Boosting) -> Boosting:
    """Few large steps."""
    return replace(
        boosting,
        n_rounds=max(1, boosting.n_rounds // HASTE),
        learning_rate=min(0.5, boosting.learning_rate * HASTE),
    )


def _with_hasty_experts(
    stages: list[tuple[Stage, Expert]], boosting: Boosting, experts: _ExpertStore
) -> list[tuple[Stage, Expert]]:
    """Where a tree has a price, a stage may also stop with few large steps."""
    found = []
    for stage, member in stages:
        if len(stage.columns):
            found.append((stage, experts[stage.columns, _hasty(boosting)]))
        found.append((stage, member))
    return found


def _chain(
    order: Order,
    stages: list[tuple[Stage, Expert]],
    expected: Expectation,
    rows: Rows,
    half: np.ndarray,
    boosting: Boosting,
    blocks: Shared | None,
    teaches: np.ndarray | None,
    whole_queries: WholeQueries | None,
) -> Chain:
    valued = slice(None) if teaches is None else teaches
    queries = None if whole_queries is None else whole_queries.of(rows.qid[valued])
    costs, experts = boosting.costs, [expert for _, expert in stages]
    prices = np.array([stage.price for stage, _ in stages])
    return Chain(
        name=order.name,
        stages=[stage for stage, _ in stages],
        experts=experts,
        losses=np.column_stack([expected(expert.margins[valued], valued) for expert in experts]),
        shifts=np.array([expected.shift(expert.margins) for expert in experts]),
        prices=prices + np.array([expert.price(costs) for expert in experts]),
        gate_price=costs.evaluation * GATE_ROUNDS * gate_members(costs),
        rows=rows,
        half=half,
        boosting=boosting,
        blocks=blocks,
        teaches=teaches,
        queries=queries,
    )


def gate_members(costs: ResolvedCosts) -> int:
    """Both regressions of a gate, or one where evaluating a tree has a price."""
    return 1 if costs.evaluation else 2
