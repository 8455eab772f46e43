"""What rows say of each model: where they go, what they buy and pay, how good the answers are.

With test rows all of that is measured on them.  Without, there is what a model remembers of its training: how many
rows ended where, and the most that a path may buy.

Costs, qualities and promises are those of all rows.  Purchases at nodes and the loss that items save take longer: of
many rows, some are drawn, always the same ones (`MOST_FLOWING`, `MOST_JUDGED`), and the page says so.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..frontier._evidence import Judges
from ..matrix import rows_at
from ..metrics import cost_summary, places_of, quality_named
from ..model import FittedTree, probabilities
from ..model.mixture import Mixture
from ..model.sketch import Purchases
from ..model.unseen import UnseenValueWarning
from ..plotting._flow import N_PURCHASES, trace
from ..resampling import cost_draws, standard_error
from ..rows import Rows, some_of
from ._html import figure_text, percent
from ._saved import Contents

__all__ = ["Bin", "ModelSeen", "TestRows", "TreeSeen", "as_test_rows", "see"]

MOST_FLOWING, MOST_JUDGED = 10_000, 2_000
MOST_BINS, FEWEST_IN_BIN = 10, 20
MOST_SPENDERS = 3


@dataclass(frozen=True, eq=False)
class TestRows:
    """Rows that taught nothing, as the models compute with them."""

    __test__ = False  # no test, whatever pytest thinks of the name

    X: Any
    y: np.ndarray | None  # numbers of classes, or values
    labels: np.ndarray | None  # as they were given
    qid: np.ndarray | None
    name: str

    def __len__(self) -> int:
        return int(self.X.shape[0])


@dataclass(frozen=True)
class Bin:
    """Rows with about the same probability: the mean of what was promised, what came of it, and how many they are."""

    promised: float
    came: float
    n: int

    @property
    def error(self) -> float:
        """By how much chance alone moves what comes, if the promise is right."""
        return float(np.sqrt(max(self.promised * (1.0 - self.promised), 0.0) / self.n))


@dataclass(frozen=True, eq=False)
class TreeSeen:
    """One tree, and the rows in it.  Shares of nodes and of ends are of the rows that take this tree.

    Attributes
    ----------
    tree : FittedTree
    part : float
        Share of all rows that take it: below 1 in a mixture.
    node_shares, ends : ndarray of shape (n_nodes,), or None
        Rows that come to a node, and those of them that leave there; None where nobody knows.
    node_items, end_items : ndarray of shape (n_nodes, n_items)
        Share of these rows that buy an item there: for the gate of a node (at a leaf for its answer), and for the
        answer of an inner node.
    node_prices : ndarray of shape (n_nodes,)
        What a row that comes to a node pays there, on average.
    end_costs : ndarray of shape (n_nodes,)
        All that a row has paid that leaves there; NaN where none does.
    classes : ndarray of shape (n_nodes, n_classes) or None
        Of the rows that come to a node.
    means : ndarray of shape (n_nodes,) or None
        The mean target of the rows that come to a node.
    passing, leaving : list of str
        How good the answers are of rows that come to a node, and of those that leave there; empty where it is unknown.
    """

    tree: FittedTree
    part: float
    node_shares: np.ndarray | None
    ends: np.ndarray | None
    node_items: np.ndarray
    end_items: np.ndarray
    node_prices: np.ndarray
    end_costs: np.ndarray
    classes: np.ndarray | None = None
    means: np.ndarray | None = None
    passing: list[str] | None = None
    leaving: list[str] | None = None


@dataclass(frozen=True, eq=False)
class ModelSeen:
    """A model and what is known of it.

    Attributes
    ----------
    number : int
        Its place, from 1.
    model : FittedTree or Mixture
    row : dict
        Of the frontier's table.
    test : dict
        The same figures on the test rows, as far as they are known; empty without rows.
    trees : list of TreeSeen
        One, or the two of a mixture.
    items : list of dict
        As the rows of `cstc.serving.explain.ItemTable`.
    buyers, purchases : ndarray or None
        As in `Flow`, over all trees; None without rows.
    costs : ndarray
        What each row pays; without rows the cost of each path, in the paper's counting.
    weights : ndarray or None
        Without rows, the share of the training rows on each path; None where all count alike.
    bins : list of Bin
        Promised and observed probabilities; empty where there are none.
    spenders : list of int
        The rows that pay most.
    """

    number: int
    model: FittedTree | Mixture
    row: dict[str, Any]
    test: dict[str, Any]
    trees: list[TreeSeen]
    items: list[dict[str, Any]]
    buyers: np.ndarray | None
    purchases: np.ndarray | None
    costs: np.ndarray
    weights: np.ndarray | None
    bins: list[Bin]
    spenders: list[int]


# -- the rows --------------------------------------------------------------------------------------------------


def as_test_rows(contents: Contents, X: Any, y: Any, qid: Any, name: str | None) -> TestRows | None:
    """Rows as the user gave them, checked; None without any."""
    if X is None:
        given = {"y": y, "qid": qid, "test_name": name}
        lost = [which for which, value in given.items() if value is not None]
        if lost:
            raise ValueError(f"{' and '.join(lost)} is given without X; give the test rows too, or leave it out")
        return None
    model = contents.models[-1]
    matrix = model._matrix(X)
    n = matrix.shape[0]
    if not n:
        raise ValueError("X has no rows; give at least one test row, or leave X out")
    ranks = places_of(contents.quality_name) is not None
    if qid is not None and not ranks:
        raise ValueError(f"qid is given, and these models are judged by {contents.quality_name}; leave it out")
    if ranks and y is not None and qid is None:
        raise ValueError("these models rank, and are judged by their queries; give qid= with y")
    if qid is not None:
        qid = np.asarray(qid)
        if qid.shape != (n,):
            raise ValueError(f"qid has shape {qid.shape}; X has {n} rows: give the query of each")
    targets = labels = None
    if y is not None:
        labels = np.asarray(y)
        targets = _targets(model, labels, n)
    return TestRows(matrix, targets, labels, qid, name or "the test rows")


def _targets(model: FittedTree | Mixture, y: np.ndarray, n: int) -> np.ndarray:
    if model.schema.classes is not None:
        return model.schema.class_numbers(y, n)
    if y.shape != (n,):
        raise ValueError(f"y has shape {y.shape}; X has {n} rows: give one label for each")
    try:
        found = y.astype(float)
    except (TypeError, ValueError):
        raise ValueError("y holds what is no number; these models predict numbers") from None
    if not np.isfinite(found).all():
        raise ValueError(
            f"y is not finite, first in row {int((~np.isfinite(found)).argmax())}; every row needs a label"
        )
    return found


class _Judged:
    """A loaded model in the place of an estimator, as far as `cstc.metrics` looks at one."""

    def __init__(self, model: FittedTree | Mixture):
        self.model_, self.classes_ = model, model.schema.classes

    def _check_y(self, y: np.ndarray, reset: bool = False) -> np.ndarray:
        return y  # checked already


# -- a model ---------------------------------------------------------------------------------------------------


def see(contents: Contents, rows: TestRows | None) -> list[ModelSeen]:
    """All models, with what is known of each."""
    pairs = list(zip(contents.models, contents.table, strict=True))
    if rows is None:
        return [_remembered(number, model, row) for number, (model, row) in enumerate(pairs, 1)]
    judges = _judges(contents, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenValueWarning)  # it was said once, when the rows were checked
        return [_seen(number, model, row, rows, judges) for number, (model, row) in enumerate(pairs, 1)]


def _judges(contents: Contents, rows: TestRows) -> Judges | None:
    """What tells the quality of models on the rows; None where that is a function of the user, or labels are missing.

    AUC needs two classes, R² two rows, and NDCG a query with something to find.
    """
    quality = quality_named(contents.quality_name)
    if quality is None or rows.y is None or len(rows) < 2:
        return None
    if contents.quality_name == "AUC" and len(np.unique(rows.y)) < 2:
        return None
    return Judges.of(Rows(rows.X, rows.y, None, rows.qid), quality, seed=0)


def _seen(
    number: int, model: FittedTree | Mixture, row: dict[str, Any], rows: TestRows, judges: Judges | None
) -> ModelSeen:
    margins, costs = model.decide(rows.X)
    good = _goodness(model, margins, rows.y)
    at = some_of(np.arange(len(rows)), MOST_FLOWING)
    trees, flows = _trees(model, margins, rows, good, at)
    judged = some_of(np.arange(len(rows)), MOST_JUDGED)
    labels = None if rows.labels is None else rows.labels[judged]
    items = model.item_importance(rows_at(rows.X, judged), labels)
    order = np.argsort(-costs, kind="stable")[:MOST_SPENDERS]
    return ModelSeen(
        number,
        model,
        row,
        _figures(model, margins, costs, judges),
        trees,
        list(items),
        sum(part * flow.buyers for part, flow in flows) + np.zeros(N_PURCHASES),
        sum(part * flow.purchases for part, flow in flows) + np.zeros((N_PURCHASES, model.costs.n_items)),
        costs,
        None,
        _bins(model, margins, rows.y),
        [int(each) for each in order],
    )


def _figures(
    model: FittedTree | Mixture, margins: np.ndarray, costs: np.ndarray, judges: Judges | None
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    draws = None if judges is None else cost_draws(costs, judges.resamples)
    for name, cost in cost_summary(costs).items():
        error = None if draws is None else standard_error(draws[name])
        found |= {f"{name}_cost": cost, f"{name}_cost_error": error}
    if judges is not None and draws is not None:
        known = judges(_Judged(model), margins)
        found |= {"quality": known.quality, "quality_error": standard_error(known.draws)}
        if judges.quality.in_money:
            total = found["mean_cost"] - known.quality
            found |= {"total_cost": total, "total_cost_error": standard_error(draws["mean"] - known.draws)}
    return found


def _trees(
    model: FittedTree | Mixture, margins: np.ndarray, rows: TestRows, good: _Goodness | None, at: np.ndarray
) -> tuple[list[TreeSeen], list[tuple[float, Any]]]:
    if isinstance(model, Mixture):
        up = model.takes_costlier(len(rows))
        parts = [(tree, at[up[at] == bool(k)]) for k, tree in enumerate(model.trees)]
    else:
        parts = [(model, at)]
    trees, flows = [], []
    for tree, here in parts:
        if not len(here):  # no row takes this tree
            trees.append(_remembered_tree(tree, 0.0))
            continue
        part, flow = len(here) / len(at), trace(tree, rows_at(rows.X, here), "branch")
        trees.append(_tree(tree, part, flow, margins[here], None if rows.y is None else rows.y[here], good, here))
        flows.append((part, flow))
    return trees, flows


def _tree(
    tree: FittedTree,
    part: float,
    flow: Any,
    margins: np.ndarray,
    y: np.ndarray | None,
    good: _Goodness | None,
    here: np.ndarray,
) -> TreeSeen:
    shape = tree.shape
    by_node = np.full(shape.n_nodes, -1)  # the terminal of a node: it has one at most
    by_node[shape.terminal_parents] = np.arange(shape.n_terminals)
    has_end = by_node >= 0
    left = shape.terminal_parents[flow.terminals]
    classes = means = None
    if tree.schema.classes is not None:
        labels = probabilities(margins, tree.link).argmax(axis=1) if y is None else y
        each = np.eye(len(tree.schema.classes))[labels]
        passed = np.maximum(flow.visits.sum(axis=0), 1)[:, None]
        classes = flow.visits.T.astype(float) @ each / passed
    else:
        labels = margins[:, 0] if y is None else y
        with np.errstate(invalid="ignore"):
            means = flow.visits.T.astype(float) @ labels / flow.visits.sum(axis=0)
    passing = leaving = None
    if good is not None:
        passing = [good.told(here[flow.visits[:, node]]) for node in range(shape.n_nodes)]
        leaving = [good.told(here[left == node]) for node in range(shape.n_nodes)]
    return TreeSeen(
        tree,
        part,
        flow.node_shares,
        np.where(has_end, flow.terminal_shares[by_node], 0.0),
        flow.node_items,
        np.where(has_end[:, None], flow.terminal_items[by_node], 0.0),
        flow.node_prices,
        np.where(has_end, flow.terminal_costs[by_node], np.nan),
        classes,
        means,
        passing,
        leaving,
    )


@dataclass(frozen=True, eq=False)
class _Goodness:
    """How good the answer of each row is, and how that is said of some of them."""

    values: np.ndarray
    kind: str  # "right", "squared" or "money"

    def told(self, at: np.ndarray) -> str:
        mean = float(self.values[at].mean()) if len(at) else np.nan
        if not np.isfinite(mean):
            return ""
        error = float(self.values[at].std() / np.sqrt(len(at)))
        if self.kind == "right":
            return f"{percent(mean)} right (± {100 * error:.0f} points)"
        if self.kind == "money":
            return f"errors cost {figure_text(mean)} (± {figure_text(error)}) for each row"
        root = float(np.sqrt(mean))
        off = error / (2 * root) if root else 0.0  # of the root, from that of the mean
        return f"typically off by {_digits(root)} (± {_digits(off)})"


def _digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _goodness(model: FittedTree | Mixture, margins: np.ndarray, y: np.ndarray | None) -> _Goodness | None:
    if y is None:
        return None
    if model.schema.classes is None:
        return _Goodness((margins[:, 0] - y) ** 2, "squared")
    shares = probabilities(margins, model.link)
    if model.decisions is not None:
        return _Goodness(model.decisions.observed(y, shares), "money")
    return _Goodness((shares.argmax(axis=1) == y).astype(float), "right")


def _bins(model: FittedTree | Mixture, margins: np.ndarray, y: np.ndarray | None) -> list[Bin]:
    """Of two classes the probability of the second; of more, that of the most likely one, and whether it was right."""
    if y is None or model.schema.classes is None:
        return []
    shares = probabilities(margins, model.link)
    promised = shares[:, 1] if shares.shape[1] == 2 else shares.max(axis=1)
    came = y == 1 if shares.shape[1] == 2 else shares.argmax(axis=1) == y
    n_bins = min(MOST_BINS, max(1, len(y) // FEWEST_IN_BIN))
    edges = np.unique(np.quantile(promised, np.linspace(0, 1, n_bins + 1)[1:-1]))
    which = np.searchsorted(edges, promised, side="right")
    found = [np.flatnonzero(which == each) for each in range(len(edges) + 1)]
    return [Bin(float(promised[at].mean()), float(came[at].mean()), len(at)) for at in found if len(at)]


# -- without rows ----------------------------------------------------------------------------------------------


def _remembered(number: int, model: FittedTree | Mixture, row: dict[str, Any]) -> ModelSeen:
    if isinstance(model, Mixture):
        parts = [(model.cheaper, 1.0 - model.share), (model.costlier, model.share)]
    else:
        parts = [(model, 1.0)]
    trees = [_remembered_tree(tree, part) for tree, part in parts]
    reached = model.training.reached
    return ModelSeen(
        number,
        model,
        row,
        {},
        trees,
        _possible_items(model, reached),
        None,
        None,
        model.terminal_costs(),
        reached,
        [],
        [],
    )


def _remembered_tree(tree: FittedTree, part: float) -> TreeSeen:
    shape, bought, reached = tree.shape, Purchases.of(tree), tree.training.reached
    end_items = np.zeros_like(bought.node_items, dtype=float)
    end_items[shape.terminal_parents] = bought.terminal_items
    ends, end_costs = np.zeros(shape.n_nodes), np.full(shape.n_nodes, np.nan)
    end_costs[shape.terminal_parents] = bought.terminal_costs
    if reached is not None:
        ends[shape.terminal_parents] = reached
    before = np.where(shape.parents >= 0, bought.node_costs[shape.parents], 0.0)
    return TreeSeen(
        tree,
        part,
        None if reached is None else reached @ shape.paths,
        None if reached is None else ends,
        bought.node_items.astype(float),
        end_items,
        bought.node_costs - before,
        end_costs,
    )


def _possible_items(model: FittedTree | Mixture, reached: np.ndarray | None) -> list[dict[str, Any]]:
    """Each item that some path may buy, and the share of training rows on such paths."""
    on_path, costs = model.terminal_items(), model.costs
    rows = []
    for item in np.flatnonzero(on_path.any(axis=0)).tolist():
        price = float(costs.prices[item])
        share = None if reached is None else float(reached @ on_path[:, item])
        spent = None if share is None else share * price
        rows.append(
            {
                "item": costs.item_names[item],
                "price": price,
                "bought": share,
                "spent": spent,
                "loss_saved": None,
                "loss_saved_error": None,
                "worth": None,
            }
        )
    return sorted(rows, key=lambda row: (-(row["spent"] or 0.0), -row["price"], row["item"]))
