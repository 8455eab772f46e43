"""Ensembles grown by XGBoost, on the CPU or on a GPU: what `lightgbm_engine` does, for experts and gates.

Prices play no part here: falling, coupled and lazy ones are LightGBM's alone (`lightgbm_engine`).

XGBoost takes no slice of a matrix that it has binned, neither of rows nor of columns, so every ensemble is binned anew.
Only the matrix itself is kept for all of them, on the GPU where it fits.  There, ensembles grow one after the other.

Starting scores are given row by row (`base_margin`).  So the trees hold nothing of the constant, and what a version of
XGBoost makes of its own base score does not matter.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .boosting import GATE_ROUNDS, MIN_DATA_IN_LEAF, MOST_JUDGES, Boosting, mean_one, work_of
from .capacity import MANY_ROWS
from .losses import Loss
from .matrix import cells_at, column_at, columns_at, missing_columns
from .model import TreePool
from .on_device import Arrays, arrays_on, is_about_memory, load_xgboost
from .parallel import n_workers, stop_if_asked
from .progress import Progress
from .rows import Rows, some_of
from .xgboost_trees import flatten_xgboost, with_values_of_stumps

__all__ = ["Ensemble", "Matrix", "XGBinned", "XGRegression", "grow_by_xgboost"]

#: What XGBoost calls the objectives of LightGBM.
OBJECTIVES = {"regression": "reg:squarederror", "binary": "binary:logistic", "multiclass": "multi:softprob"}
#: Gates as in `lightgbm_engine`, but level by level, three of them: a step for each split would be slow on a GPU.
GATE = {"eta": 0.24, "max_depth": 3, "lambda": 10.0, "colsample_bytree": 0.8, "objective": "reg:squarederror"}
#: Of the second derivative that a row has at the start, what it is taken to have left later: LightGBM counts the rows
#: of a leaf, XGBoost adds up second derivatives, which fall as probabilities become sure.  Of 0.25 and 0.7, by the cost
#: at equal quality on four states of a set of 180 training rows (1.87 and 1.05 times that of LightGBM).
LEFT = 0.7
ROOM = 4  # times the matrix itself that must be free where it is to stay on a GPU: bins, gradients and histograms
GIB = 1 << 30
PRICES = "XGBoost knows no prices"

#: On a GPU, ensembles grow one after the other.
_ONE_AT_A_TIME = threading.Lock()


class Matrix:
    """Columns of rows in single precision, to cut the columns and rows of an ensemble from.

    Parameters
    ----------
    X : ndarray of shape (n, n_columns)
    categorical : sequence of int
        Its columns of categories.
    device : {"cpu", "cuda"}
    arrays : Arrays or None
        What puts it on the device; None: it stays on the host.

    Attributes
    ----------
    may_miss : bool ndarray of shape (n_columns,)
    n_categories : dict of int to int
        By column, how many codes there are.
    """

    def __init__(self, X: Any, categorical: Any, device: str, arrays: Arrays | None = None):
        self._X, self._device, self._arrays = X, device, arrays
        self.may_miss = missing_columns(X)
        self.n_categories = {int(column): _n_codes(column_at(X, column)) for column in categorical}
        self._there: Any = None
        self._regressions: weakref.WeakSet[XGRegression] = weakref.WeakSet()
        self._lock = threading.Lock()  # gates of several stages are learned side by side
        if arrays is not None:
            self._put(arrays)

    @classmethod
    def of(cls, boosting: Boosting, rows: Rows) -> Matrix:
        arrays = arrays_on(boosting.device)
        if boosting.device == "cuda" and (arrays is None or arrays.name != "cupy"):
            warnings.warn(
                "XGBoost takes arrays on a GPU from CuPy alone, and there is no CuPy that can use this one: columns "
                "are binned on the CPU, which takes longer; pip install cupy-cuda12x or cupy-cuda13x, as CUDA is",
                stacklevel=2,
            )
            arrays = None
        return cls(rows.X, boosting.categorical, boosting.device, arrays)

    def _put(self, arrays: Arrays) -> None:
        needed, free = ROOM * 4 * self._X.size, arrays.free()
        if free is not None and needed > free:
            self._warn(f"about {needed / GIB:.1f} GiB would be good to have on the GPU, and {free / GIB:.1f} are free")
            return
        try:
            self._there = arrays.put(_in_single_precision(self._X))
        except MemoryError:
            self._warn("the GPU has no room for all rows")

    def _warn(self, why: str) -> None:
        warnings.warn(f"{why}: the columns of each ensemble are sent there anew, which takes longer", stacklevel=4)

    @property
    def takes_room(self) -> bool:
        """Whether it lies on the device, or bins of it that are kept."""
        return self._there is not None or any(each.keeps_bins for each in self._borrowers())

    def lends_to(self, regression: XGRegression) -> None:
        """Know who keeps bins of it."""
        with self._lock:
            self._regressions.add(regression)

    def _borrowers(self) -> list[XGRegression]:
        with self._lock:
            return list(self._regressions)

    def leave_the_device(self) -> None:
        """Make room on it."""
        for each in self._borrowers():
            each.let_go()
        was_there, self._there = self._there is not None, None
        if was_there and self._arrays is not None:
            self._arrays.release()
            self._warn("the GPU has too little room left")

    def cells(self, columns: np.ndarray, at: np.ndarray | None = None) -> Any:
        """Some columns of the rows of the given numbers, or of all."""
        if self._there is not None:
            assert self._arrays is not None
            some = self._there.take(self._arrays.put(columns), axis=1)
            return some if at is None else some.take(self._arrays.put(at), axis=0)
        return _in_single_precision(columns_at(self._X, columns) if at is None else cells_at(self._X, at, columns))


def _in_single_precision(cells: np.ndarray) -> np.ndarray:
    """As XGBoost takes them; what single precision cannot hold becomes its largest number."""
    if cells.dtype == np.float32:
        return np.ascontiguousarray(cells)
    largest = np.finfo(np.float32).max
    return np.clip(cells, -largest, largest).astype(np.float32, order="C")


def _n_codes(codes: np.ndarray) -> int:
    known = codes[~np.isnan(codes)]
    return int(known.max(initial=-1)) + 1


class Ensemble:
    """An ensemble in the making, with what is asked of one of LightGBM's.

    Parameters
    ----------
    parameters : dict
        For XGBoost.
    train : xgboost.QuantileDMatrix
    judges : xgboost.QuantileDMatrix or None
        Stop early on these.
    matrix : Matrix
    columns : int ndarray
        Which columns of it the trees number.
    n_outputs : int
    added : float
        What the trees lack of the answer: it goes into the leaves of the first.
    """

    def __init__(
        self,
        parameters: dict[str, Any],
        train: Any,
        judges: Any,
        matrix: Matrix,
        columns: np.ndarray,
        n_outputs: int = 1,
        added: float | None = None,
    ):
        self._train, self._judges, self._n_outputs, self._added = train, judges, n_outputs, added
        self._device = parameters["device"]
        self._may_miss = matrix.may_miss[columns]
        self._n_categories = {
            place: matrix.n_categories[column]
            for place, column in enumerate(columns.tolist())
            if column in matrix.n_categories
        }
        xgboost = load_xgboost("engine='xgboost'")
        self._booster = xgboost.Booster(parameters, [train] if judges is None else [train, judges])
        self._n_rounds = 0
        self.best_iteration = 0

    def grow(self, n_rounds: int, patience: int | None, progress: Progress) -> Ensemble:
        """So many rounds at most; with judges, no more than `patience` without a better one."""
        work = work_of(self._train.num_row(), self._train.num_col(), 1)
        least = np.inf
        with _on(self._device):
            while self._n_rounds < n_rounds:
                stop_if_asked()
                self._update()
                progress.did(work)
                if self._judges is None or not patience:
                    continue
                risk = float(self._booster.eval(self._judges, iteration=self._n_rounds).rpartition(":")[2])
                if risk < least:
                    least, self.best_iteration = risk, self._n_rounds
                if self._n_rounds - self.best_iteration >= patience:
                    break
        # rounds that were not needed count as done, as in `lightgbm_engine`
        progress.did((n_rounds - self._n_rounds) * work, n_pieces=1)
        self._judges = None
        return self

    def update(self) -> bool:
        """One more round; it always finds something to do."""
        with _on(self._device):
            self._update()
        return False

    def _update(self) -> None:
        self._booster.update(self._train, self._n_rounds)
        self._n_rounds += 1

    def current_iteration(self) -> int:
        return self._n_rounds

    def flatten(self, n_rounds: int) -> TreePool:
        """The trees of the first rounds."""
        pool = flatten_xgboost(self._booster, n_rounds, may_miss=self._may_miss, n_categories=self._n_categories)
        if self._added is None:
            return with_values_of_stumps(pool, self._n_outputs)
        first = (pool.owners == 0) & (pool.feature < 0)
        return replace(pool, value=np.where(first, pool.value + self._added, pool.value))


@contextlib.contextmanager
def _on(device: str) -> Iterator[None]:
    """One ensemble at a time on a GPU; on the CPU each has a core."""
    if device == "cpu":
        yield
        return
    with _ONE_AT_A_TIME:
        yield


def _parameters(boosting: Boosting, n_rows: int) -> dict[str, Any]:
    """For XGBoost, what `Boosting.parameters` is for LightGBM."""
    least = max(1, min(boosting.least_leaf, n_rows // 10))
    n_leaves = min(boosting.n_leaves or 2**boosting.depth, max(2, n_rows))
    by_leaf = n_leaves < 2**boosting.depth
    found = _common(boosting) | {
        "objective": OBJECTIVES[boosting.loss.objective],
        "eta": boosting.learning_rate,
        "max_depth": boosting.depth,
        "grow_policy": "lossguide" if by_leaf else "depthwise",
        "max_leaves": n_leaves if by_leaf else 0,
        "min_child_weight": least * _second_derivative(boosting.loss, boosting.constant),
        "lambda": boosting.l2,
        "colsample_bytree": boosting.feature_fraction,
        "subsample": boosting.row_fraction if n_rows >= 2 * MIN_DATA_IN_LEAF else 1.0,
    }
    return found | ({"num_class": len(boosting.constant)} if len(boosting.constant) > 1 else {})


def _common(boosting: Boosting) -> dict[str, Any]:
    return {
        "tree_method": "hist",
        "device": boosting.device,
        "max_bin": boosting.max_bin + 1,  # LightGBM does not count the one for missing values
        "seed": boosting.random_state,
        "seed_per_iteration": True,  # the same trees, whichever thread grows them
        "nthread": 1,  # independent fits run side by side (`parallel`)
        "base_score": 0.5,  # any: rows have scores of their own
        "verbosity": 0,
    }


def _second_derivative(loss: Loss, constant: np.ndarray) -> float:
    """That XGBoost expects of a row, to count rows by: 1 for squares, of probabilities less."""
    if not loss.has_classes:
        return 1.0
    shares = np.atleast_2d(loss.mean(constant[None, :]))
    factor = 1.0 if len(constant) == 1 else 2.0  # of several classes it doubles them
    return LEFT * factor * float((shares * (1 - shares)).min())


class XGBinned:
    """Some columns of rows, and parts of the rows for folds; the face of `lightgbm_engine.Binned`."""

    def __init__(self, boosting: Boosting, rows: Rows, columns: np.ndarray, matrix: Matrix | None):
        self.rows, self.columns = rows, columns
        self.boosting = boosting.on(columns)
        self._matrix = Matrix.of(boosting, rows) if matrix is None else matrix

    def boost_all(self, n_rounds: int, cost_weight: float = 0.0) -> Ensemble:
        """One ensemble on all rows."""
        assert not cost_weight, PRICES
        return self._grow(None, None, n_rounds)

    def boost_without(self, out: np.ndarray, cost_weight: float = 0.0) -> Ensemble:
        """An ensemble without some rows (bool), stopped early on them."""
        assert not cost_weight, PRICES
        kept, judges = np.flatnonzero(~out), np.flatnonzero(out)
        if len(self.rows) >= MANY_ROWS:
            judges = some_of(judges, MOST_JUDGES * max(1, self.boosting.n_rounds // 200))
        return self._grow(kept, judges, self.boosting.n_rounds)

    def _grow(self, at: np.ndarray | None, judged: np.ndarray | None, n_rounds: int) -> Ensemble:
        boosting = self.boosting

        def grow() -> Ensemble:
            n_rows = len(self.rows) if at is None else len(at)
            with _on(boosting.device):
                train = self._bin(at)
                judges = None if judged is None or not boosting.early_stopping else self._bin(judged, train)
            parameters, n_outputs = _parameters(boosting, n_rows), len(boosting.constant)
            found = Ensemble(parameters, train, judges, self._matrix, self.columns, n_outputs)
            return found.grow(n_rounds, boosting.early_stopping, boosting.progress)

        return _in_its_memory(grow, self._matrix, len(self.rows), len(self.columns))

    def _bin(self, at: np.ndarray | None, reference: Any = None) -> Any:
        at_rows = slice(None) if at is None else at
        y, weights = self.rows.y[at_rows], self.rows.weights[at_rows]
        start = np.tile(self.boosting.constant, (len(y), 1))
        cells = self._matrix.cells(self.columns, at)
        return _data(self.boosting, cells, y, mean_one(weights), start, reference)


def _data(
    boosting: Boosting, cells: Any, y: np.ndarray, weights: np.ndarray, start: np.ndarray, reference: Any = None
) -> Any:
    """Cells as XGBoost bins them; `boosting` knows which of their columns hold categories."""
    xgboost = load_xgboost("engine='xgboost'")
    types = np.full(cells.shape[1], "q")
    types[list(boosting.categorical)] = "c"
    return xgboost.QuantileDMatrix(
        cells,
        y,
        weight=weights,
        base_margin=start,
        feature_types=types.tolist(),
        enable_categorical=True,
        max_bin=boosting.max_bin + 1,
        ref=reference,
        nthread=1 if boosting.device == "cpu" else n_workers(boosting.n_jobs),
    )


def _in_its_memory(grow: Any, matrix: Matrix, n_rows: int, n_columns: int) -> Any:
    """What `grow` returns; where a GPU has too little room, once more with less on it, or a sentence."""
    took_room = matrix.takes_room
    try:
        return _told_of_memory(grow)
    except MemoryError as error:
        if not took_room:
            raise _too_little(n_rows, n_columns) from error
        matrix.leave_the_device()  # unless another thread has made room in the meantime
    try:
        return _told_of_memory(grow)
    except MemoryError as error:
        raise _too_little(n_rows, n_columns) from error


def _told_of_memory(grow: Any) -> Any:
    """What `grow` returns; too little memory is an error of its own."""
    xgboost = load_xgboost("engine='xgboost'")
    try:
        return grow()
    except xgboost.core.XGBoostError as error:
        if is_about_memory(error):
            raise MemoryError(str(error)) from error
        raise


def _too_little(n_rows: int, n_columns: int) -> MemoryError:
    needed = ROOM * 4 * n_rows * n_columns / GIB
    return MemoryError(
        f"the device has too little memory for an ensemble on {n_rows} rows and {n_columns} columns, which needs about "
        f"{needed:.1f} GiB; take method=Experts(rows_per_fit=...) with fewer rows, or device='cpu'"
    )


def grow_by_xgboost(boosting: Boosting, rows: Rows, validation: Rows | None) -> Ensemble:
    """One ensemble on all columns of some rows, stopped early on others."""
    columns = np.arange(rows.X.shape[1])
    matrix = Matrix.of(boosting, rows)

    def grow() -> Ensemble:
        with _on(boosting.device):
            train = _whole(boosting, rows, matrix.cells(columns))
            judges = None
            if validation is not None and boosting.early_stopping:
                judges = _whole(boosting, validation, _in_single_precision(validation.X), train)
        parameters = _parameters(boosting, len(rows))
        found = Ensemble(parameters, train, judges, matrix, columns, len(boosting.constant))
        return found.grow(boosting.n_rounds, boosting.early_stopping, boosting.progress)

    return _in_its_memory(grow, matrix, *rows.X.shape)


def _whole(boosting: Boosting, rows: Rows, cells: Any, reference: Any = None) -> Any:
    start = np.tile(boosting.constant, (len(rows), 1))
    return _data(boosting, cells, rows.y, mean_one(rows.weights), start, reference)


class XGRegression:
    """Regressions of changing targets on the same columns; the face of `lightgbm_engine.GainRegression`."""

    def __init__(self, boosting: Boosting, rows: Rows, at: np.ndarray, columns: np.ndarray, matrix: Matrix | None):
        self.columns = columns
        self._boosting, self._at = boosting.on(columns), at
        self._matrix = Matrix.of(boosting, rows) if matrix is None else matrix
        self._weights = rows.weights[at]
        least = max(5, min(100, len(rows) // 60))
        self._parameters = _common(boosting) | GATE | {"min_child_weight": least}
        self._binned: Any = None
        self._matrix.lends_to(self)

    @property
    def keeps_bins(self) -> bool:
        return self._binned is not None

    def let_go(self) -> None:
        """Of the bins; the next target has them made again."""
        self._binned = None

    def fit(self, target: np.ndarray) -> Ensemble:
        mean = float(np.average(target, weights=self._weights))

        def grow() -> Ensemble:
            with _on(self._boosting.device):
                binned = self._binned  # which another thread may let go
                if binned is None:
                    start, cells = np.zeros((len(target), 1)), self._matrix.cells(self.columns, self._at)
                    binned = self._binned = _data(self._boosting, cells, target - mean, self._weights, start)
                else:
                    binned.set_info(label=target - mean)
            found = Ensemble(self._parameters, binned, None, self._matrix, self.columns, added=mean)
            return found.grow(GATE_ROUNDS, None, self._boosting.progress)

        return _in_its_memory(grow, self._matrix, len(target), len(self.columns))
