"""Boosted trees: the only place that trains boosters of LightGBM and holds their parameters.

Experts, the paper's weak learners and the systems of `cstc.baselines` are LightGBM ensembles that see the prices in one
of four ways:

blind
    Prices play no part.
lazy prices
    A split pays for its feature at every row that reaches it and has not bought the feature yet, in the units of
    ``risk + cost_weight * cost``.
coupled prices
    The first split of the whole ensemble on a feature pays for it, for all rows.
falling prices
    Coupled, and the level of all prices falls from round to round: the order in which features enter is an order
    of buying.

Blind ones may also be grown for the order of documents within queries (`Lambdarank`) instead of the loss.

LightGBM knows features, not items, so features that share an item divide its price: together they pay it once.  Gates
are small regressions of their own.  Every ensemble is copied once into flat arrays (`flatten_booster`); nothing after
`fit` calls a booster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import lightgbm
import numpy as np

from .binning import ColumnBlocks
from .capacity import MANY_ROWS, VERY_MANY_ROWS
from .costs import ResolvedCosts
from .losses import Loss
from .matrix import cells_at
from .model import TreePool
from .model.pool import in_steps
from .parallel import idle_workers, stop_if_asked
from .progress import QUIET, Progress
from .rows import Rows, Units, some_of

__all__ = [
    "GATE_ROUNDS",
    "Binned",
    "Boosting",
    "GainRegression",
    "Lambdarank",
    "agreed_rounds",
    "attributions",
    "bin_blocks",
    "boost",
    "boost_while_prices_fall",
    "flatten_booster",
    "go_on",
    "mean_one",
    "rounds_of",
    "trees_of",
    "without_stumps",
    "work_of",
]

MIN_DATA_IN_LEAF = 20
MOST_LEAVES = 1 << 17  # LightGBM takes no more
GATE_ROUNDS = 40
MOST_JUDGES = 5000  # rows that stop boosting, of many, for each 200 rounds that it may take: late gains are small
#: Parts of a data set may be small enough for columns to be filtered that others need.
SHARED_BINS = {"feature_pre_filter": False}
#: The same trees, whatever the number of threads.
REPEATABLE = {"deterministic": True, "force_col_wise": True, "verbosity": -1}
#: Gates learn from differences of expected losses, which are smooth: few leaves, strong shrinkage.
GATE = {"objective": "regression", "learning_rate": 0.15, "num_leaves": 8, "lambda_l2": 10.0, "feature_fraction": 0.8}


#: Of a truth that is a grade; LightGBM's own list ends there, too.
GAINS = [2**grade - 1 for grade in range(31)]
TRUNCATED = 30  # places that pairs are made of at least: with few, most documents teach nothing


@dataclass(frozen=True, eq=False)
class Lambdarank:
    """Boosting for the order of documents within their queries: LightGBM's lambdarank.

    Scores have no unit then: only their differences within a query mean something (`experts.calibration`).

    Attributes
    ----------
    at : int
        Places that count.
    units : Units
        Of the grades: targets are in standard units.
    sizes : int ndarray of shape (n_queries,)
        Documents of each query, in the order of the rows.
    """

    at: int
    units: Units
    sizes: np.ndarray

    def parameters(self) -> dict[str, Any]:
        """For LightGBM, in the place of those of the loss."""
        return {
            "objective": "lambdarank",
            "label_gain": GAINS,
            "lambdarank_truncation_level": max(TRUNCATED, self.at),
            "metric": "ndcg",
            "eval_at": [self.at],
        }

    @classmethod
    def of(cls, rows: Rows, at: int, units: Units) -> Lambdarank:
        """For rows whose queries stand together."""
        new = np.concatenate([[True], rows.qid[1:] != rows.qid[:-1]])
        return cls(at, units, np.diff(np.append(np.flatnonzero(new), len(rows))))

    def put_into(self, data: lightgbm.Dataset, rows: Rows, at: np.ndarray) -> lightgbm.Dataset:
        """The data set of some of the rows, in rising order, with grades and queries instead of targets."""
        sizes = np.bincount(np.repeat(np.arange(len(self.sizes)), self.sizes)[at])
        data.set_label(np.rint(self.units.margins(rows.y[at])))
        data.set_group(sizes[sizes > 0])
        return data

    def some_of(self, out: np.ndarray, most: int) -> np.ndarray:
        """Of some rows, about so many at most, of whole queries."""
        query = np.repeat(np.arange(len(self.sizes)), self.sizes)[out]
        if len(out) <= most:
            return out
        own = np.unique(query)
        kept = some_of(own, max(1, most * len(own) // len(out)))
        return out[np.isin(query, kept)]


@dataclass(frozen=True, eq=False)
class Boosting:
    """How trees are boosted.

    Attributes
    ----------
    loss : Loss
    costs : ResolvedCosts
    n_rounds, depth, learning_rate, early_stopping, categorical, random_state, n_jobs
        As in the estimators.
    n_leaves : int or None
        Leaves of a tree at most; None: as many as the depth allows.
    constant : ndarray of shape (n_outputs,)
        Margins to start from.
    least_leaf : int
        Rows of a leaf at least, where there are enough of them.
    max_bin : int
        Bins of a column.
    in_full_view : int
        So few columns are seen by every tree: of two or three, LightGBM would show some pairs to none.
    feature_fraction, row_fraction, l2 : float
        Each tree sees a random part of the features and of the rows; leaf values are shrunk by `l2`.
    progress : Progress
        Is told of every round.
    workers : cstc.cluster.Workers or None
        Where large ensembles are grown; None: in threads of this process.
    engine : {"lightgbm", "xgboost"}
        What grows those that are blind to prices (`engines`).
    device : {"cpu", "cuda"}
        Where XGBoost grows them.
    lambdarank : Lambdarank or None
        Where experts are grown for the order of documents, and not for the loss; by LightGBM alone.
    may_slow : bool
        Whether experts may take smaller steps than `learning_rate`, where there are rounds enough for them.
    """

    loss: Loss
    costs: ResolvedCosts
    n_rounds: int
    depth: int
    learning_rate: float
    early_stopping: int | None
    n_leaves: int | None = None
    categorical: Sequence[int] = ()
    random_state: int = 0
    n_jobs: int | None = None
    constant: np.ndarray = field(default_factory=lambda: np.zeros(1))
    least_leaf: int = MIN_DATA_IN_LEAF
    max_bin: int = 255
    in_full_view: int = 0
    feature_fraction: float = 1.0
    row_fraction: float = 1.0
    l2: float = 0.0
    progress: Progress = QUIET
    workers: Any = None
    engine: str = "lightgbm"
    device: str = "cpu"
    lambdarank: Lambdarank | None = None
    may_slow: bool = False

    def starting_at(self, rows: Rows, **changes: Any) -> Boosting:
        """The same from the best constant of some rows on."""
        return replace(self, constant=self.loss.constant(rows.y, rows.weights), **changes)

    def on(self, columns: np.ndarray) -> Boosting:
        """The same for a matrix of these columns."""
        fraction = self.feature_fraction if len(columns) > self.in_full_view else 1.0
        return replace(self, categorical=_among(self.categorical, columns), feature_fraction=fraction)

    def parameters(self, n_rows: int) -> dict[str, Any]:
        """For LightGBM."""
        found = REPEATABLE | {
            "objective": self.loss.objective,
            "max_depth": self.depth,
            "num_leaves": min(self.n_leaves or 2**self.depth, max(2, n_rows), MOST_LEAVES),
            "learning_rate": self.learning_rate,
            # a leaf must hold enough rows to be worth a value, but a small sample must still be splittable
            "min_data_in_leaf": max(1, min(self.least_leaf, n_rows // 10)),
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.row_fraction,
            "bagging_freq": int(self.row_fraction < 1 and n_rows >= 2 * MIN_DATA_IN_LEAF),
            "lambda_l2": self.l2,
            "boost_from_average": False,
            "seed": self.random_state,
            "num_threads": 1,  # independent fits run side by side (`parallel`)
            "max_bin": self.max_bin,
        }
        found |= {"num_class": len(self.constant)} if len(self.constant) > 1 else {}
        return found if self.lambdarank is None else found | self.lambdarank.parameters()

    def dataset(
        self, rows: Rows, reference: lightgbm.Dataset | None = None, parameters: dict[str, Any] | None = None
    ) -> lightgbm.Dataset:
        """Rows as LightGBM takes them."""
        return lightgbm.Dataset(
            rows.X,
            rows.y,
            weight=mean_one(rows.weights),
            # starting scores instead of boost_from_average keep the constant out of the first tree's leaves;
            # LightGBM wants the scores of one class after the other
            init_score=np.repeat(self.constant, len(rows)) if self.lambdarank is None else None,
            reference=reference,
            categorical_feature=list(self.categorical),
            params=self.parameters(len(rows)) | (parameters or {}),
            free_raw_data=True,
        )


def bin_blocks(
    boosting: Boosting, rows: Rows, sets: Sequence[np.ndarray], *, ahead: bool = True
) -> ColumnBlocks | None:
    """The columns of some sets, binned once for all of them, where there are many rows; at once, or when needed."""
    if len(rows) < MANY_ROWS:
        return None

    def make(columns: np.ndarray) -> lightgbm.Dataset:
        return boosting.on(columns).dataset(rows.on(columns), parameters=SHARED_BINS)

    return ColumnBlocks(make, sets, len(rows), boosting.n_jobs, ahead=ahead)


class Binned:
    """Some columns of rows, and parts of the rows for folds.  Columns of many rows are binned once, for all parts.

    Few rows are binned anew for each part: that takes no time, and a fold's bins are as fine as its own rows allow.

    Attributes
    ----------
    columns : ndarray
        In the order in which trees number them.
    """

    def __init__(self, boosting: Boosting, rows: Rows, columns: np.ndarray, blocks: ColumnBlocks | None):
        self._blocks = blocks
        self.columns = columns
        if blocks is None:
            self.rows = rows.on(columns)
        else:
            self.columns = blocks.order(columns)
            self.rows = replace(rows, X=None)  # the bins hold all that is needed
        self.boosting = boosting.on(self.columns)

    def boost_all(self, n_rounds: int, cost_weight: float = 0.0) -> lightgbm.Booster:
        """One ensemble on all rows."""
        if self.boosting.lambdarank is not None:
            data = self._part(np.arange(len(self.rows)))  # a copy: queries are put into it
        else:
            data = self.boosting.dataset(self.rows) if self._blocks is None else self._blocks.together(self.columns)
        parameters = self._parameters(len(self.rows), cost_weight) | _threads(self.boosting, len(self.rows))
        return _train(self.boosting, parameters, data, n_rounds)

    def boost_without(self, out: np.ndarray, cost_weight: float = 0.0) -> lightgbm.Booster:
        """An ensemble without some rows (bool), stopped early on them."""
        kept, out = np.flatnonzero(~out), np.flatnonzero(out)
        parameters = self._parameters(len(kept), cost_weight)
        train = self._part(kept)
        judges, most = out, MOST_JUDGES * max(1, self.boosting.n_rounds // 200)
        if self._blocks is not None:
            ranking = self.boosting.lambdarank
            judges = some_of(out, most) if ranking is None else ranking.some_of(out, most)
        return _train(self.boosting, parameters, train, self.boosting.n_rounds, self._part(judges, train))

    def _parameters(self, n_rows: int, cost_weight: float) -> dict[str, Any]:
        found = self.boosting.parameters(n_rows) | _prices(self.boosting, cost_weight, "lazy", n_rows)
        return found | ({} if self._blocks is None else SHARED_BINS)

    def _part(self, at: np.ndarray, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
        """The rows of the given numbers."""
        if self._blocks is None:
            part = self.boosting.dataset(self.rows.take(at), reference)
        else:
            part = self._blocks.together(self.columns, at)
            part.set_field("weight", mean_one(self.rows.weights[at]))  # `set_weight` ignores weights that are all 1
        ranking = self.boosting.lambdarank
        if ranking is None:
            return part
        if self._blocks is not None:
            part.set_field("init_score", None)  # blocks are made for the loss; `set_init_score` ignores None
        return ranking.put_into(part, self.rows, at)


def mean_one(weights: np.ndarray) -> np.ndarray:
    return weights * (len(weights) / weights.sum())


def _among(categorical: Sequence[int], columns: np.ndarray) -> list[int]:
    """Where the categorical ones stand among some columns."""
    known = set(categorical)
    return [at for at, column in enumerate(columns) if column in known]


def boost(
    boosting: Boosting,
    rows: Rows,
    *,
    cost_weight: float = 0.0,
    penalty: str = "lazy",
    n_rounds: int | None = None,
    validation: Rows | None = None,
) -> lightgbm.Booster:
    """One ensemble.

    Parameters
    ----------
    cost_weight : float
        A split pays ``cost_weight * price``, in units of the mean risk; 0 is blind to cost.
    penalty : {"lazy", "coupled"}
        When it pays.
    n_rounds : int, optional
        Other than those of `boosting`.
    validation : Rows, optional
        Stop early on these.
    """
    parameters = boosting.parameters(len(rows)) | _prices(boosting, cost_weight, penalty, len(rows))
    parameters |= _threads(boosting, len(rows))
    train = boosting.dataset(rows)
    judges = None if validation is None else boosting.dataset(validation, reference=train)
    return _train(boosting, parameters, train, n_rounds or boosting.n_rounds, judges)


def _train(
    boosting: Boosting,
    parameters: dict[str, Any],
    train: lightgbm.Dataset,
    n_rounds: int,
    judges: lightgbm.Dataset | None = None,
    callbacks: Sequence[Any] = (),
) -> lightgbm.Booster:
    """Boost, stopped early on `judges`."""
    rounds = _Rounds(boosting.progress, n_rounds)
    found: list[Any] = [rounds, *callbacks]
    judged = [judges] if judges is not None and boosting.early_stopping else []
    if judged:
        found.append(lightgbm.early_stopping(boosting.early_stopping or 1, verbose=False))
    # kept in training: LightGBM would cut off all rounds after the best, and `go_on` may need them
    booster = lightgbm.train(
        parameters, train, n_rounds, valid_sets=judged, callbacks=found, keep_training_booster=True
    )
    rounds.end()
    return booster


def _threads(boosting: Boosting, n_rows: int) -> dict[str, int]:
    """LightGBM's own threads, for a fit of very many rows that has no other one beside it; its trees do not change."""
    return {"num_threads": idle_workers(boosting.n_jobs)} if n_rows >= VERY_MANY_ROWS else {}


def _be_quiet() -> None:
    """LightGBM keeps what it may say for each thread, and learns it from the parameters of whatever is made there."""
    lightgbm.Dataset(np.zeros((1, 1)), params={"verbosity": -1}).construct()


def work_of(n_rows: int, n_columns: int, n_rounds: int) -> float:
    """What an ensemble takes, to compare with others: a round passes over all rows even where columns are few."""
    return float(n_rounds) * (n_rows + 2000) * (n_columns + 20)


class _Rounds:
    """A callback of LightGBM, after every round: the task may have to stop, and progress is told."""

    def __init__(self, progress: Progress, n_rounds: int):
        self._progress, self._left, self._work = progress, n_rounds, 0.0

    def __call__(self, environment: Any) -> None:
        stop_if_asked()
        if not self._work:
            data = environment.model.train_set
            self._work = work_of(data.num_data(), data.num_feature(), 1)
        self._left -= 1
        self._progress.did(self._work)

    def end(self) -> None:
        """Rounds that were not needed count as done: the next ensembles will not need all of theirs either."""
        self._progress.did(self._left * self._work, n_pieces=1)


def rounds_of(booster: Any) -> int:
    """Rounds up to the best one, or all."""
    return booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()


def agreed_rounds(rounds: Sequence[int]) -> int:
    """One number of rounds for all folds: the mean of what each would stop at.

    A fold's own number would have been chosen on the rows that it then predicts.
    """
    return max(1, round(float(np.mean(rounds))))


def go_on(booster: Any, n_rounds: int) -> None:
    """Grow an ensemble that was stopped before until it has so many rounds."""
    _be_quiet()
    while booster.current_iteration() < n_rounds and not booster.update():
        stop_if_asked()


def _prices(boosting: Boosting, cost_weight: float, penalty: str, n_rows: int) -> dict[str, Any]:
    """What splits pay, as parameters of LightGBM, which sums the lazy penalty over rows but not the coupled one."""
    prices = boosting.loss.gain_unit * cost_weight * boosting.costs.divided_prices
    factor = n_rows if penalty == "coupled" else 1
    return {"cegb_tradeoff": 1.0, f"cegb_penalty_feature_{penalty}": list(factor * prices)} if prices.any() else {}


def boost_while_prices_fall(
    boosting: Boosting, rows: Rows, prices: np.ndarray, levels: np.ndarray
) -> lightgbm.Booster:
    """One ensemble whose first split on a feature pays its price for all rows, ``levels[t] * price`` in round t."""
    parameters = boosting.parameters(len(rows)) | {
        "cegb_tradeoff": 1.0,
        "cegb_penalty_feature_coupled": list(boosting.loss.gain_unit * len(rows) * prices),  # gains are sums
    }
    # LightGBM cannot change parameters of a booster without a single usable feature: let it leave out none
    bins = {"feature_pre_filter": False, "min_data_in_bin": 1}
    falling = lightgbm.reset_parameter(cegb_tradeoff=list(map(float, levels)))
    train = boosting.dataset(rows, parameters=bins)
    return _train(boosting, parameters | bins, train, len(levels), callbacks=[falling])


class GainRegression:
    """Regressions of changing targets on the same columns of the same rows, which are binned once.

    Parameters
    ----------
    boosting : Boosting
        Whose columns of categories, seed and threads are taken.
    rows : Rows
        All rows, with weights of mean 1; targets are given to `fit`.
    at : int ndarray
        The rows to learn from.
    columns : ndarray
        The columns to learn from.
    blocks : ColumnBlocks or None
        Where they are binned already.

    Attributes
    ----------
    columns : ndarray
        In the order in which trees number them.
    """

    def __init__(
        self, boosting: Boosting, rows: Rows, at: np.ndarray, columns: np.ndarray, blocks: ColumnBlocks | None
    ):
        n_rows, weights = len(rows), rows.weights[at]
        self._parameters = REPEATABLE | GATE | {
            "min_data_in_leaf": max(5, min(100, n_rows // 60)),
            "seed": boosting.random_state,
            "num_threads": 1,
        }
        self._progress = boosting.progress
        self.columns = columns
        self._binned: lightgbm.Dataset
        if blocks is None:
            self._binned = lightgbm.Dataset(
                cells_at(rows.X, at, columns),
                np.zeros(len(at)),
                weight=weights,
                categorical_feature=_among(boosting.categorical, columns),
                params=self._parameters,
                free_raw_data=True,
            ).construct()
        else:
            self._parameters |= SHARED_BINS | {"max_bin": boosting.max_bin}
            self.columns = blocks.order(columns)
            self._binned = blocks.together(columns, at)
            self._binned.set_field("weight", weights)  # `set_weight` ignores weights that are all 1
            self._binned.set_field("init_score", None)  # those of the experts; `set_init_score` ignores None

    def fit(self, target: np.ndarray) -> lightgbm.Booster:
        # kept in training: LightGBM would write the model out and read it back, which takes longer than growing it
        rounds = _Rounds(self._progress, GATE_ROUNDS)
        booster = lightgbm.train(
            self._parameters,
            self._binned.set_label(target),
            GATE_ROUNDS,
            callbacks=[rounds],
            keep_training_booster=True,
        )
        rounds.end()
        return booster


def attributions(booster: lightgbm.Booster, X: np.ndarray, n_outputs: int) -> np.ndarray:
    """What each column contributed to each margin at some rows (SHAP), (n, n_columns + 1, n_outputs).

    The last of them is what is left: the mean.  Together they are the margin, but for the constant that boosting
    started from.
    """
    shares = booster.predict(X, num_iteration=rounds_of(booster), pred_contrib=True, num_threads=1)
    return np.asarray(shares).reshape(len(X), n_outputs, X.shape[1] + 1).transpose(0, 2, 1)


def trees_of(booster: Any, n_outputs: int, n_rounds: int | None = None) -> tuple[TreePool, np.ndarray]:
    """The trees of an ensemble, and weights (n_trees, n_outputs): 1 for the output that a tree adds to.

    Rounds up to the best one, if none are given.
    """
    return without_stumps(flatten_booster(booster, n_rounds), n_outputs)


def without_stumps(
    pool: TreePool, n_outputs: int, n_rounds: int | None = None
) -> tuple[TreePool, np.ndarray]:
    """The trees of the first rounds, or of all, that split at all, and their weights as in `trees_of`."""
    output = np.arange(pool.n_learners) % n_outputs  # LightGBM lists the trees of a round output by output
    splits = pool.feature[pool.roots] >= 0  # a tree of one leaf says nothing
    real = np.flatnonzero(splits if n_rounds is None else splits[: n_rounds * n_outputs])
    weights = np.zeros((len(real), n_outputs))
    weights[np.arange(len(real)), output[real]] = 1.0
    return pool.subset(real), weights


def flatten_booster(
    booster: Any, n_rounds: int | None = None, *, unseen_is_zero: bool = False
) -> TreePool:
    """Copy the trees of a booster into a pool: the first rounds, or those up to its best iteration.

    Where training saw no missing value, one goes with the majority of the rows; or as zero does, as in LightGBM.

    LightGBM writes a model as lines of numbers, one line for each field of each tree.  The lines of a field are read
    together, for all trees at once.  The splits of a tree come first, then its leaves.
    """
    n_rounds = n_rounds or rounds_of(booster)
    if not isinstance(booster, lightgbm.Booster):  # of another engine (`engines`)
        return booster.flatten(n_rounds)
    fields = _fields(booster.model_to_string(num_iteration=n_rounds))
    n_leaves = fields("num_leaves", int)
    n_splits = n_leaves - 1
    starts = np.concatenate([[0], np.cumsum(n_splits + n_leaves)])
    tree = np.repeat(np.arange(len(n_leaves)), n_splits)  # of each split
    splits = starts[tree] + _count_up(n_splits)
    leaves = np.repeat(starts[:-1] + n_splits, n_leaves) + _count_up(n_leaves)
    n = int(starts[-1])

    def at_splits(values: Any, elsewhere: Any, dtype: type) -> np.ndarray:
        found: np.ndarray = np.full(n, elsewhere, dtype=dtype)
        found[splits] = values
        return found

    def child(name: str) -> np.ndarray:
        number = fields(name, int)  # of a split, or ~number of a leaf
        found = np.arange(n)
        found[splits] = starts[tree] + np.where(number >= 0, number, n_splits[tree] + ~number)
        return found

    decision, threshold = fields("decision_type", int), fields("threshold", float)
    threshold = np.minimum(threshold, np.finfo(float).max)  # infinite where missing values part from all others
    by_category = (decision & 1) > 0
    missing = (decision >> 2) & 3  # 0: training saw none, 1: zero is missing, 2: NaN is
    left, right = child("left_child"), child("right_child")
    counts = np.zeros(n)
    counts[splits], counts[leaves] = fields("internal_count", float), fields("leaf_count", float)
    unseen = threshold >= 0.0 if unseen_is_zero else counts[left[splits]] >= counts[right[splits]]
    goes_left = np.where(missing == 0, unseen, (decision & 2) > 0) & ~by_category
    start, count, category_left = _categories(fields, by_category, threshold, tree)
    values = np.zeros(n)
    values[leaves] = fields("leaf_value", float)
    rows = counts[left[splits]] + counts[right[splits]]  # 0 in a model that was written without counts
    share = np.where(rows > 0, counts[left[splits]] / np.maximum(rows, 1), 0.5)
    return TreePool(
        roots=starts[:-1],
        feature=at_splits(fields("split_feature", int), -1, int),
        threshold=at_splits(np.where(by_category, 0.0, threshold), 0.0, float),
        left=left,
        right=right,
        missing_left=at_splits(goes_left, False, bool),
        zero_is_missing=at_splits((missing == 1) & ~by_category, False, bool),
        category_start=at_splits(start, -1, int),
        category_count=at_splits(count, 0, int),
        category_left=category_left,
        value=values,
        linear_feature=np.full(n, -1),
        share_left=in_steps(at_splits(share, 0.5, float)),
    )


def _fields(text: str) -> Callable[[str, type], np.ndarray]:
    """The numbers of a field of all trees, one tree after the other."""
    lines: dict[str, list[str]] = {}
    begin, end = text.find("\nTree="), text.find("\nend of trees")
    for line in text[begin:end].splitlines():
        name, _, value = line.partition("=")
        lines.setdefault(name, []).append(value)

    def numbers(name: str, dtype: type) -> np.ndarray:
        return np.array(" ".join(lines.get(name, [])).split(), dtype=dtype)

    return numbers


def _count_up(sizes: np.ndarray) -> np.ndarray:
    """0, 1, .. for each of some sizes, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _categories(
    fields: Callable[[str, type], np.ndarray], by_category: np.ndarray, threshold: np.ndarray, tree: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each split, where its categories begin and how many there are; and which of them go left.

    LightGBM keeps a set of categories as words of 32 bits; the threshold of a split is the number of its set in the
    tree.
    """
    start, count = np.full(len(tree), -1), np.zeros(len(tree), dtype=int)
    if not by_category.any():
        return start, count, np.zeros(0, dtype=bool)
    n_sets = fields("num_cat", int)
    words = fields("cat_threshold", np.int64).astype(np.uint32)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
    # the bounds of a tree's sets begin at 0, and trees without categories have none
    bounds, first, at = fields("cat_boundaries", int), {}, 0
    base, place = 0, 0
    for number in np.flatnonzero(n_sets):
        first[number] = (place, base)
        place += n_sets[number] + 1
        base += bounds[place - 1]
    pieces = []
    for split in np.flatnonzero(by_category):
        place, base = first[tree[split]]
        own = place + int(threshold[split])
        begin, end = (32 * (base + bounds[own + side]) for side in (0, 1))
        goes = bits[begin:end]
        goes = goes[: np.flatnonzero(goes).max(initial=-1) + 1]
        start[split], count[split] = at, len(goes)
        pieces.append(goes)
        at += len(goes)
    return start, count, np.concatenate(pieces)
