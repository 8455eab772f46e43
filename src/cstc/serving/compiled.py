"""A fitted tree prepared for serving one row at a time: plain Python values instead of arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ..costs import shorten
from ..model import FittedTree
from ..model.averaging import averaged_sums
from ..model.queries import QueryTree
from ..model.schema import category_code, is_missing
from ..model.unseen import missing, plain_missing, unknown
from .walk.choice import plan_for
from .walk.native import NativePlan

__all__ = ["Classifier", "CompiledExpert", "CompiledTree", "Fault", "Option", "Step", "compile_tree", "fitted_tree"]

PRICES_KEPT = 4096


class Fault(Exception):
    """What a source returned cannot be used; the text says why."""


class Step:
    """The learners that a node needs for one purpose and that no node above it has evaluated."""

    __slots__ = ("features", "first", "learners", "numbers", "size")

    def __init__(self, learners: Any, numbers: np.ndarray, features: tuple[int, ...], first: tuple[int, ...]) -> None:
        self.learners = learners  # in the form of the plan
        self.numbers = numbers
        self.size = len(numbers)
        self.features = features  # all that these learners may look at, whatever branch is taken
        self.first = first  # those that they look at first; empty if one of them looks at none


class Classifier:
    """One classifier node."""

    __slots__ = (
        *("depth", "intercepts", "leave", "lower", "number", "parent", "predict", "route"),
        *("route_weights", "threshold", "upper", "weights"),
    )

    def __init__(self, number: int, parent: int, depth: int) -> None:
        self.number = number
        self.parent = parent
        self.depth = depth
        self.route: Step | None = None  # None at a leaf classifier
        self.leave: Step
        self.predict: Any  # all learners of its prediction, in the form of the plan
        self.weights: Any
        self.intercepts: list[float]
        self.route_weights: Any
        self.threshold = 0.0
        self.upper = self.lower = 0


class CompiledExpert:
    """What a row may be answered with that cannot go on: the expert of a node, or a fallback."""

    __slots__ = ("features", "intercepts", "number", "step", "weights")

    def __init__(self, number: int, step: Step, weights: Any, intercepts: list[float]) -> None:
        self.number = number
        self.step = step
        self.features = frozenset(step.features)
        self.weights = weights
        self.intercepts = intercepts


class Option(NamedTuple):
    """An expert that a row may turn to at a node, and what is expected to be lost by that.

    Attributes
    ----------
    loss : float
    expert : CompiledExpert
    part : tuple of int or None
        The features that the expert is to know, if it is to be averaged over all others.
    """

    loss: float
    expert: CompiledExpert
    part: tuple[int, ...] | None


class CompiledTree:
    """A `FittedTree`, compiled; use `compile_tree`, which keeps what it has compiled.

    The first `n_features` columns have names that sources and callers may use; further ones are made of scores.
    """

    def __init__(self, model: FittedTree, n_features: int | None = None) -> None:
        self.model = model
        self.feature_names = list(model.schema.feature_names)
        self.index = {name: j for j, name in enumerate(self.feature_names[:n_features])}
        self.item_names = list(model.costs.item_names)
        self.item_index = {name: r for r, name in enumerate(self.item_names)}
        self.prices = [float(price) for price in model.costs.prices]
        self.evaluation = float(model.costs.evaluation)
        self.feature_items = [_as_mask(np.flatnonzero(row)) for row in model.costs.feature_items]
        self.may_miss = [bool(flag) for flag in model.schema.may_miss]
        self.is_plain = [bool(flag) for flag in model.plain_features]
        self.is_boolean = [name in model.schema.booleans for name in self.feature_names]
        self.codes: list[dict[str, float] | None] = [
            {str(value): float(code) for code, value in enumerate(model.schema.categories[name])}
            if name in model.schema.categories
            else None
            for name in self.feature_names
        ]
        self.training = model.training
        self.n_terminals = model.shape.n_terminals
        self.limit = model.limit
        self.highest_cost = float(model.terminal_costs().max())
        self.link = model.link
        self.decisions = model.decisions
        self.classes: list | None = None if model.schema.classes is None else model.schema.classes.tolist()
        self.constant = [float(margin) for margin in model.constant]
        self._options: dict[int, list[Option]] = {}
        self._summed: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # learners and weights of experts
        self._prices_of: dict[int, float] = {0: 0.0}
        units, self._scale = model.costs.decimal or (None, 1.0)  # as in `ResolvedCosts.bill`, without arrays
        self._units: list[float] | None = None if units is None else units.tolist()
        self.plan = plan_for(model)
        self.is_native = isinstance(self.plan, NativePlan)
        #: For each feature, what `fill_floats` of a compiled walk may take: nothing, numbers, numbers or NaN.
        self.float_kinds = bytes(
            0 if codes is not None else 2 if may_miss else 1
            for codes, may_miss in zip(self.codes, self.may_miss, strict=True)
        )
        self._compile_nodes(model)

    # -- building --------------------------------------------------------------------------------------------

    def _step(self, learners: np.ndarray) -> Step:
        pool = self.model.pool
        features = np.flatnonzero(self.model.learner_features[learners].any(axis=0)).tolist()
        roots = pool.roots[learners]
        first = np.unique(np.maximum(pool.feature[roots], pool.linear_feature[roots])).tolist()
        prepared = self.plan.step(learners.tolist())
        return Step(prepared, learners, tuple(features), () if -1 in first else tuple(first))

    def _compile_nodes(self, model: FittedTree) -> None:
        shape, step = model.shape, self._step
        self.nodes = [Classifier(k, int(shape.parents[k]), int(shape.depths[k])) for k in range(shape.n_nodes)]
        routed: list[np.ndarray] = []  # learners that the gates on the way to each node and its own evaluate

        for k, node in enumerate(self.nodes):
            above = routed[node.parent] if k else np.zeros(model.pool.n_learners, dtype=bool)
            if not shape.is_leaf[k]:
                node.route = step(np.flatnonzero(model.route_learners[k] & ~above))
                above = above | model.route_learners[k]
            routed.append(above)
            node.leave = step(np.flatnonzero(model.predict_learners[k] & ~above))
            node.predict = self.plan.step(np.flatnonzero(model.predict_learners[k]).tolist())
            node.route_weights = self.plan.weights(model.route_weights[:, k : k + 1])
            node.weights = self.plan.weights(model.predict_weights[:, k])
            node.intercepts = model.predict_intercepts[k].tolist()
            node.threshold = float(model.thresholds[k])
            node.upper, node.lower = int(shape.upper[k]), int(shape.lower[k])
        needed = model.terminal_learners.any(axis=0)
        looked_at = model.learner_features[needed][:, : len(self.index)].any(axis=0)
        self.features_needed = np.flatnonzero(looked_at).tolist()

    # -- for rows that cannot go on ----------------------------------------------------------------------------

    @cached_property
    def experts(self) -> list[CompiledExpert]:
        """Those of the nodes, then the fallbacks; compiled when one is first needed."""
        model, found = self.model, []
        for number in range(model.expert_weights.shape[1]):
            weights = model.expert_weights[:, number]
            step = self._step(np.flatnonzero(weights.any(axis=1)))
            prepared = self.plan.weights(weights)
            found.append(CompiledExpert(number, step, prepared, model.expert_intercepts[number].tolist()))
        return found

    @cached_property
    def _expected(self) -> list[list[float]] | None:
        """For each node, what each expert is expected to lose there; None where nothing is known of that."""
        estimates = self.model.estimates
        if estimates is None:
            return None
        gone = np.zeros(len(self.feature_names), dtype=bool)
        features = self.model.expert_features
        return [estimates.expected(node, features, gone).tolist() for node in range(len(self.nodes))]

    def experts_at(self, node: int) -> list[CompiledExpert]:
        """Experts for the rows that come to a node, those that lose least first; none where nothing is known."""
        if self._expected is None:
            return []
        expected = self._expected[node]
        order = sorted((number for number, loss in enumerate(expected) if loss < math.inf), key=expected.__getitem__)
        return [self.experts[number] for number in order]

    def options_at(self, node: int) -> list[Option]:
        """What a row of a node may be answered with, what is expected to be lost least first."""
        found = self._options.get(node)
        if found is None:
            estimates = self.model.estimates
            losses = [] if self._expected is None else self._expected[node]
            found = [Option(losses[expert.number], expert, None) for expert in self.experts_at(node)]
            if estimates is not None:
                for number, part in np.argwhere(estimates.set_harm >= 0).tolist():
                    columns = np.flatnonzero(estimates.sets[part]).tolist()
                    known = tuple(sorted(self.experts[number].features.intersection(columns)))
                    if losses[number] < math.inf and known:
                        loss = losses[number] + float(estimates.set_harm[number, part])
                        found.append(Option(loss, self.experts[number], known))
            found.sort(key=lambda option: option.loss)
            self._options[node] = found
        return found

    def loss_of(self, node: int, expert: int) -> float:
        """What an expert is expected to lose at the rows of a node; infinite where that is not known."""
        return math.inf if self._expected is None else self._expected[node][expert]

    def shortfall(self, node: int, loss: float) -> float | None:
        """What a loss is more than what rows of a node lose that go on as they should."""
        if self.model.estimates is None:
            return None
        shortfall = loss - float(self.model.estimates.path_losses[node])
        return max(0.0, shortfall) if shortfall < math.inf else None

    def n_new(self, step: Step, gates: Iterable[int], begun: Iterable[Step], known: Mapping[int, float]) -> int:
        """How many learners of a step no gate of some nodes has evaluated, nor a step that was begun."""
        done = np.asarray(self.model.route_learners[list(gates)].any(axis=0))
        row, is_known = self._row(known)
        pool = self.model.pool
        for other in begun:
            at = pool.roots[other.numbers]
            while (going := (pool.feature[at] >= 0) & is_known[pool.feature[at]]).any():
                left = pool.goes_left(at[going], row[pool.feature[at[going]]])
                at[going] = np.where(left, pool.left[at[going]], pool.right[at[going]])
            column = pool.linear_feature[at]
            done[other.numbers[(pool.feature[at] < 0) & ((column < 0) | is_known[column])]] = True
        return int(np.count_nonzero(~done[step.numbers]))

    def _row(self, known: Mapping[int, float]) -> tuple[np.ndarray, np.ndarray]:
        """The values that are known as an array, and which they are."""
        row, is_known = np.zeros(len(self.feature_names)), np.zeros(len(self.feature_names), dtype=bool)
        for feature, value in known.items():
            row[feature], is_known[feature] = value, True
        return row, is_known

    def averaged(self, number: int, known: Mapping[int, float]) -> list[float]:
        """Margins of an expert, by number, averaged over what is not known (`model.averaging`)."""
        model = self.model
        if number not in self._summed:
            weights = model.expert_weights[:, number]
            learners = np.flatnonzero(weights.any(axis=1))
            self._summed[number] = learners, weights[learners]
        row, is_known = self._row(known)
        sums = averaged_sums(model.pool, row, is_known, *self._summed[number], model.schema.means)
        return (sums + model.expert_intercepts[number]).tolist()

    def source_of(self, feature: int) -> frozenset[int]:
        """A feature and all others that come from its source."""
        estimates = self.model.estimates
        if estimates is None:
            return frozenset([feature])
        columns = estimates.source_features[estimates.source_features[:, feature]].any(axis=0)
        return frozenset([feature, *np.flatnonzero(columns).tolist()])

    def asks(self, node: int, features: Iterable[int]) -> bool:
        """Whether a row that is answered at a node may be asked for any of some features."""
        asked = self.model.route_features[node] | self.model.expert_features[node]
        return bool(asked[list(features)].any())

    def describe(self, features: Iterable[int]) -> str:
        """Some features by their names, or by those of sources that are among them as a whole."""
        left, names = set(features), []
        estimates = self.model.estimates
        if estimates is not None:
            for name, columns in zip(estimates.source_names, estimates.source_features, strict=True):
                whole = np.flatnonzero(columns).tolist()
                if whole and left.issuperset(whole):
                    names.append(name)
                    left.difference_update(whole)
        return shorten_plain([*names, *(self.feature_names[f] for f in sorted(left))])

    @property
    def names_of_outages(self) -> list[str]:
        """What may be said to be down: sources, items and features."""
        estimates = self.model.estimates
        sources = [] if estimates is None else estimates.source_names
        return list(dict.fromkeys([*sources, *self.item_names, *self.feature_names]))

    @cached_property
    def nothing(self) -> Any:
        """A step without learners."""
        return self.plan.step([])

    def without(self, gone: Iterable[int]) -> CompiledTree:
        """The model that answers when some features are not to be had, compiled."""
        return compile_tree(self.model.without(gone))

    # -- using -----------------------------------------------------------------------------------------------

    def price_of(self, items: int) -> float:
        """Price of a set of items (bit r is item r), the same number as in `predict_cost`."""
        price = self._prices_of.get(items)
        if price is None:
            if self._units is None:
                price = math.fsum(self.prices[r] for r in bits(items))
            else:
                price = sum([self._units[r] for r in bits(items)]) / self._scale
            if len(self._prices_of) >= PRICES_KEPT:
                self._prices_of = {0: 0.0}
            self._prices_of[items] = price
        return price

    def item_prices(self, items: int) -> dict[str, float]:
        """Names and prices of a set of items."""
        return {self.item_names[r]: self.prices[r] for r in bits(items)}

    def items_named(self, names: Iterable[str]) -> int:
        """The set of items of these names."""
        if isinstance(names, str):
            raise ValueError(f"items are given as the text {names!r}; give a list of names: [{names!r}]")
        items = 0
        for name in names:
            if name not in self.item_index:
                raise ValueError(f"unknown item {name!r}; the model's items are {shorten(self.item_names)}")
            items |= 1 << self.item_index[name]
        return items

    def feature(self, name: Any) -> int:
        """The column of a feature's name."""
        try:
            return self.index[name]
        except (KeyError, TypeError):
            raise ValueError(f"unknown feature {name!r}; the model's features are {shorten(self.index)}") from None

    def encode(self, feature: int, raw: Any) -> float:
        """The number that the model sees, NaN if it is missing or never seen; `Fault` if it cannot be one."""
        codes = self.codes[feature]
        kind = raw.__class__
        if kind is not float:
            if is_missing(raw):
                raw = math.nan
            elif codes is None:
                raw = _as_float(raw, self.feature_names[feature])
            elif not isinstance(raw, str):
                raw = _as_category(raw, self.feature_names[feature])
        if raw != raw:  # NaN
            if self.is_plain[feature] and not self.may_miss[feature]:
                raise Fault(plain_missing([self.feature_names[feature]]))
            return math.nan
        if codes is not None:
            return category_code(codes, raw)
        if not -math.inf < raw < math.inf:
            raise Fault(f"{self.feature_names[feature]} is {raw}; it must be finite")
        return raw

    def unseen(self, feature: int, raw: Any) -> str | None:
        """What is to be said of a value that `encode` made NaN of; None if training saw missing values there."""
        if self.codes[feature] is not None and not is_missing(raw):
            return unknown(self.feature_names[feature])
        return None if self.may_miss[feature] else missing(self.feature_names[feature])

    def expected_costs(self, margins: list[float]) -> dict[Any, float] | None:
        """What each decision is expected to cost, where errors have prices; None is to refer to a person."""
        if self.decisions is None or self.classes is None:
            return None
        shares = np.array([self.answer(margins)[1]])
        expected = self.decisions.expected(shares)[0].tolist()
        return dict(zip([*self.classes, None], expected, strict=False))

    def answer(self, margins: list[float]) -> tuple[Any, list[float] | None]:
        """The predicted value or class (None: refer to a person), and the probabilities of the classes."""
        if self.classes is None:
            return margins[0], None
        if self.link == "logistic":
            margins = [0.0, margins[0]]
        highest = max(margins)
        shares = [math.exp(margin - highest) for margin in margins]
        total = sum(shares)
        if total != total:  # a NaN among the margins, which comes from a NaN that a learner passed on
            return self.classes[0], [math.nan] * len(margins)
        probabilities = [share / total for share in shares]
        if self.decisions is None:
            return self.classes[probabilities.index(max(probabilities))], probabilities
        taken = self.decisions.of_one(probabilities)
        return (self.classes[taken] if taken < len(self.classes) else None), probabilities


def _as_float(raw: Any, name: str) -> float:
    if isinstance(raw, str | bytes | bytearray):
        raise Fault(f"{name} is the text {_clip(raw)}; it must be a number")
    if getattr(raw, "ndim", 1 if hasattr(raw, "__len__") else 0):
        raise Fault(f"{name} is {_clip(raw)}, which is not one number")
    try:
        return float(raw)
    except Exception:
        raise Fault(f"{name} is {_clip(raw)}, a {type(raw).__name__}; it must be a number") from None


def _as_category(raw: Any, name: str) -> Any:
    """Text of a category that is given as a number, a date or the like; NaN if it is missing."""
    if getattr(raw, "ndim", 0) or isinstance(raw, bytes | list | tuple | dict | set | frozenset):
        raise Fault(f"{name} is {_clip(raw)}; it must be one category")
    if isinstance(raw, float | np.floating) and np.isnan(raw):
        return math.nan
    if isinstance(raw, Real):
        return raw
    try:
        return str(raw)
    except Exception:
        raise Fault(f"{name} is a {type(raw).__name__}; it must be one category") from None


def _clip(raw: Any) -> str:
    try:
        text = repr(raw)
    except Exception:
        text = "?"
    return text if len(text) <= 40 else text[:37] + "..."


def shorten_plain(names: list[str], most: int = 3) -> str:
    """The first names, as one says them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _as_mask(items: Iterable[int]) -> int:
    mask = 0
    for r in items:
        mask |= 1 << int(r)
    return mask


def bits(mask: int) -> list[int]:
    """Positions of the ones of a mask, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def fitted_tree(model: Any) -> FittedTree:
    """The flat model of a fitted estimator, or the flat model itself."""
    if isinstance(model, FittedTree):
        return model
    inner = getattr(model, "model_", None)
    if isinstance(inner, FittedTree):
        return inner
    if isinstance(model, QueryTree) or isinstance(inner, QueryTree):
        raise ValueError(
            "this model looks at whole queries, and rows are answered here one by one; call its predict(X, qid=...) "
            "with all documents of a query, or fit without whole_queries"
        )
    if hasattr(model, "fit") and hasattr(model, "predict_cost"):
        raise ValueError(f"this {type(model).__name__} is not fitted yet; call fit first")
    raise TypeError(
        f"model is a {type(model).__name__}; give a fitted cstc estimator (a pipeline's last step) or a FittedTree"
    )


def compile_tree(model: Any, n_features: int | None = None) -> CompiledTree:
    """Compile a fitted model, once for all who ask; `n_features` of its columns have names for them, or all."""
    if isinstance(model, CompiledTree):
        return model
    tree = fitted_tree(model)
    compiled = tree.__dict__.get("_compiled")
    if compiled is None:
        compiled = CompiledTree(tree, n_features)
        object.__setattr__(tree, "_compiled", compiled)  # lives as long as the model, and does not travel with it
    return compiled
