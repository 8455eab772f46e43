"""Predictions for more rows than memory holds: one partition after the other, or as a Dask DataFrame that is lazy.

What is said of a row does not depend on the partition that it lies in: all partitions together have the answers that
one `predict` over all rows has.

Dask is not imported here: whoever has a Dask DataFrame has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .costs import shorten
from .folders import Folder, is_path
from .matrix import is_sparse
from .model.answering import Answering
from .model.coins import Turns
from .model.mixture import Mixture
from .model.queries import QueryTree
from .tables import is_frame

__all__ = ["predict_partitions"]

CELLS = 1 << 21  # rows x columns of a piece of a row group, at most: 16 MiB as numbers
VALUE, COST = "value", "cost"


def predict_partitions(
    model: Any,
    partitions: Any,
    *,
    proba: bool = False,
    budget: float | None = None,
    unavailable: Iterable[str] = (),
    ids: str | None = None,
) -> Any:
    """Value and cost for every row of every partition.

    Parameters
    ----------
    model : fitted estimator, FittedTree or Mixture
    partitions : Dask DataFrame, path, or iterable of frames or arrays
        A path is that of a folder of Parquet files, or of one file: each row group is a partition, or pieces of it
        where it is large.  Frames are those of pandas, polars and pyarrow.  Columns are found by their names, in any
        order, and those that the model does not have are left alone; arrays have the columns of the model, in its
        order.
    proba : bool, default=False
        The probabilities of the classes instead of the value.
    budget, unavailable : optional
        As in `predict`.
    ids : str, optional
        The column with the ids of rows, which decide which model of a `Mixture` answers a row.  Without it the number
        of the row does, counted over all partitions; a Dask DataFrame does not know it, and needs ids.

    Returns
    -------
    Dask DataFrame, or generator
        For a Dask DataFrame one that is computed when asked for, with the same index and divisions.  Else a generator
        with a frame for each partition, of the same kind: of pandas with the same index, of pyarrow for a path, and
        for an array a numpy array with named fields (``answers["cost"]``).  Memory holds one partition at a time.  The
        columns are "value" and "cost"; with `proba` one for each class, called by its text, and "cost".

    Examples
    --------
    >>> import numpy as np
    >>> from cstc import CSTCRegressor, predict_partitions
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = CSTCRegressor(n_weak_learners=5, random_state=0).fit(X, X[:, 0])
    >>> answers = np.concatenate(list(predict_partitions(model, [X[:100], X[100:]])))
    >>> answers.dtype.names, bool((answers["value"] == model.predict(X)).all())
    (('value', 'cost'), True)
    """
    answers = _answers_of(model, proba, budget, unavailable, ids)
    if nw.dependencies.is_dask_dataframe(partitions):
        return _of_dask(answers, partitions)
    if is_path(partitions):
        partitions = Folder.open(partitions)
    if isinstance(partitions, Folder):
        columns = answers.columns
        partitions.check_columns(columns)
        partitions = partitions.batches(max(1, CELLS // max(1, len(columns))), columns)
    else:
        _check_iterable(partitions)
    return _one_by_one(answers, iter(partitions))


@dataclass(frozen=True, eq=False)
class _Answers:
    """Answers for a partition.

    Attributes
    ----------
    model : Answering
    numbers : list of int or None
        The own names of the columns in training, where they were numbers.
    proba : bool
    options : dict
        Budget and what is unavailable.
    ids : str or None
    """

    model: Answering
    numbers: list[int] | None
    proba: bool
    options: dict[str, Any]
    ids: str | None

    @property
    def columns(self) -> list[str]:
        """The columns that are needed of a table."""
        own = [] if self.ids is None else [self.ids]
        return list(dict.fromkeys([*self.model.schema.feature_names, *own]))

    def __call__(self, part: Any, number: int | None = None, first: int = 0) -> Any:
        """The answers for a partition, in a frame of its kind; its first row has the number `first` of all rows."""
        try:
            return self._answer(_as_table(part), first)
        except (ValueError, TypeError) as error:
            if number is None:
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"partition {number}: {error}") from error

    def _answer(self, part: Any, first: int) -> Any:
        if is_path(part) or part is None or isinstance(part, Mapping):
            raise TypeError(f"it is {shorten([part])}; each partition is a frame or an array (a path stands alone)")
        table = is_frame(part)
        given = self.ids_of(part, table, first)
        ask = self.model.predict_proba if self.proba else self.model.predict
        values, costs = ask(self._by_numbers(part), return_cost=True, ids=given, **self.options)
        return _frame(self.named(values, costs), part if table else None, self.kind)

    def ids_of(self, part: Any, table: bool, first: int) -> Any:
        """What decides on the model that a row of a mixture takes."""
        if self.ids is None:
            return Turns(first) if isinstance(self.model, Mixture) else None
        if not table:
            raise ValueError(f"ids is {self.ids!r}, and an array has no names of columns; give frames, or leave it out")
        frame = nw.from_native(part, eager_only=True)
        if self.ids not in frame.columns:
            raise ValueError(f"ids is {self.ids!r}, which is no column of it: {shorten(frame.columns)}")
        return frame[self.ids].to_list()

    def _by_numbers(self, part: Any) -> Any:
        """Columns whose names are numbers, as in training; a model knows no more of them than their places."""
        if self.numbers is None or not nw.dependencies.is_pandas_dataframe(part):
            return part
        lost = [name for name in self.numbers if name not in part.columns]
        if lost:
            raise ValueError(f"X has no column {shorten(lost)}; the model has {shorten(self.numbers)}")
        return part[self.numbers]

    def named(self, values: np.ndarray, costs: np.ndarray) -> dict[str, np.ndarray]:
        """Answers as columns."""
        if not self.proba:
            return {VALUE: values, COST: costs}
        classes = self.model.schema.classes
        assert classes is not None
        return {str(name): values[:, k] for k, name in enumerate(classes.tolist())} | {COST: costs}

    @property
    def kind(self) -> Any:
        """What type values have in tables that are strict about it; a row that is referred has none."""
        classes = self.model.schema.classes
        if classes is None or self.proba:
            return nw.Float64
        return {"b": nw.Boolean, "i": nw.Int64, "u": nw.UInt64, "f": nw.Float64}.get(classes.dtype.kind, nw.String)


def _answers_of(model: Any, proba: Any, budget: Any, unavailable: Any, ids: Any) -> _Answers:
    """What answers, with all that can be checked before there are rows."""
    found = _model_of(model)
    if isinstance(found, QueryTree):
        raise ValueError(
            "this model looks at whole queries, which partitions of rows may cut; call predict(X, qid=...) with the "
            "rows of some whole queries at a time"
        )
    if not isinstance(proba, bool | np.bool_):
        raise ValueError(f"proba is {proba!r}; it must be True or False")
    if ids is not None and not isinstance(ids, str):
        raise ValueError(f"ids is {shorten([ids])}; give the name of the column that has them: ids='row'")
    if unavailable is not None and not isinstance(unavailable, str):
        unavailable = tuple(unavailable)  # asked for once for each partition
    options = {"budget": budget, "unavailable": unavailable}
    answers = _Answers(found, getattr(model, "_column_numbers", None), bool(proba), options, ids)
    ask = found.predict_proba if proba else found.predict
    ask(np.empty((0, len(found.schema.feature_names))), return_cost=True, **options)  # refuses what is wrong with them
    classes = found.schema.classes
    if proba and classes is not None and COST in map(str, classes.tolist()):
        raise ValueError(f"a class is called {COST!r}, like the column of costs; leave proba out, or ask predict_proba")
    return answers


def _model_of(model: Any) -> Answering:
    if isinstance(model, Answering):
        return model
    if hasattr(model, "fit") and not hasattr(model, "estimator") and hasattr(model, "predict_cost"):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(model)
    found = getattr(model, "model_", None)
    if not isinstance(found, Answering):
        raise TypeError(
            f"model is a {type(model).__name__}; give a fitted estimator of cstc, or what cstc.load returns (of a "
            "Frontier, what best returns)"
        )
    return found


def _check_iterable(partitions: Any) -> None:
    one = isinstance(partitions, np.ndarray | Mapping) or is_sparse(partitions) or is_frame(partitions)
    if one or not hasattr(partitions, "__iter__"):
        raise TypeError(
            f"partitions is a {type(partitions).__name__}; give a Dask DataFrame, the path of a folder of Parquet "
            "files, or a list or a generator of frames (of one frame alone: [frame])"
        )


def _one_by_one(answers: _Answers, partitions: Iterator[Any]) -> Iterator[Any]:
    number, first = 0, 0
    for part in partitions:
        found = answers(part, number, first)
        del part  # or it would be held until the next one is there
        number, first = number + 1, first + len(found)
        yield found


def _as_table(part: Any) -> Any:
    """A batch of pyarrow, as its scanners give them, as a table; all else as it is."""
    if type(part).__name__ != "RecordBatch" or not type(part).__module__.startswith("pyarrow"):
        return part
    return nw.dependencies.get_pyarrow().Table.from_batches([part])


def _frame(columns: dict[str, np.ndarray], like: Any, kind: Any) -> Any:
    """Columns as a frame of the same kind as another one, or as an array with named fields."""
    if like is None:
        types = [(name, object if values.dtype.kind in "OT" else values.dtype) for name, values in columns.items()]
        found = np.empty(len(columns[COST]), dtype=types)
        for name, values in columns.items():
            found[name] = values
        return found
    if nw.dependencies.is_pandas_dataframe(like):
        # text as objects, as in `predict`: a type must not depend on what a partition happens to hold
        pandas = nw.dependencies.get_pandas()
        series = {}
        for name, values in columns.items():
            dtype = object if values.dtype.kind in "UT" else values.dtype
            series[name] = pandas.Series(values, like.index, dtype=dtype)
        return pandas.DataFrame(series, index=like.index)
    schema = {name: nw.Float64 if name == COST else kind for name in columns}
    data = {name: values if values.dtype.kind in "biuf" else values.tolist() for name, values in columns.items()}
    return nw.from_dict(data, schema=schema, backend=nw.get_native_namespace(like)).to_native()


# -- Dask --------------------------------------------------------------------------------------------------------------


def _of_dask(answers: _Answers, frame: Any) -> Any:
    if isinstance(answers.model, Mixture) and answers.ids is None:
        raise ValueError(
            "the model is a Mixture, and a Dask DataFrame does not know the numbers of its rows; give ids, the name of "
            "a column whose values decide which of the two models answers a row: ids='row'"
        )
    from dask import delayed

    columns = answers.columns
    if all(name in frame.columns for name in columns):
        frame = frame[columns]
    meta = answers(frame._meta)
    # the model is one node of the graph, not a part of every task
    return frame.map_partitions(_of_partition, delayed(answers, pure=False), meta=meta)


def _of_partition(part: Any, answers: Callable[..., Any], partition_info: dict[str, Any] | None = None) -> Any:
    return answers(part, None if partition_info is None else partition_info["number"])
