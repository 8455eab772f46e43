"""Tables in: pandas, polars, pyarrow and whatever else narwhals reads.

A fitted model computes with a matrix; how a table becomes one is in `model.schema`, which a loaded model needs too.
Here is what only training asks: whether something is a table, which of its columns hold categories or true and false,
and some of its rows.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from sklearn.utils import _safe_indexing

from .matrix import is_sparse, rows_at
from .model.schema import columns_of, is_missing

__all__ = ["booleans_of", "categories_of", "is_frame", "take_rows"]


def is_frame(X: Any) -> bool:
    """Whether X is a table with columns of their own types."""
    if nw.dependencies.is_polars_lazyframe(X):
        raise TypeError("X is a LazyFrame, which holds no rows yet; give X.collect()")
    if nw.dependencies.is_dask_dataframe(X):
        raise TypeError(
            "X is a Dask DataFrame, which holds no rows yet; give X.compute(), or the folder that X.to_parquet wrote"
        )
    return nw.dependencies.is_into_dataframe(X)


def categories_of(X: Any) -> dict[str, list]:
    """The categories of every text or categorical column of a table, in sorted order."""
    found: dict[str, list] = {}
    if not is_frame(X):
        return found
    try:
        frame = nw.from_native(X, eager_only=True)
    except DuplicateError as error:
        raise ValueError(f"columns of X have the same name; give each its own. {error}") from None
    for name, column in zip(columns_of(X), frame.iter_columns(), strict=True):
        if column.dtype not in (nw.Categorical, nw.Enum, nw.String, nw.Object):
            continue
        values = [value for value in column.to_list() if not is_missing(value)]
        if column.dtype == nw.Object and all(isinstance(value, Real) for value in values):
            continue  # numbers in a column of no type
        found[name] = sorted({str(value) for value in values})
    return found


def booleans_of(X: Any) -> frozenset[str]:
    """The columns of a table, or of an array, that hold true and false."""
    if isinstance(X, np.ndarray):
        return frozenset(f"x{j}" for j in range(X.shape[1]) if X.dtype == bool) if X.ndim == 2 else frozenset()
    if not is_frame(X):
        return frozenset()
    frame = nw.from_native(X, eager_only=True)
    return frozenset(
        name for name, column in zip(columns_of(X), frame.iter_columns(), strict=True) if _holds_booleans(column)
    )


def _holds_booleans(column: Any) -> bool:
    if column.dtype != nw.Object:
        return column.dtype == nw.Boolean
    values = [value for value in column.to_list() if not is_missing(value)]
    return bool(values) and all(isinstance(value, bool | np.bool_) for value in values)


def take_rows(X: Any, at: np.ndarray) -> Any:
    """The rows of the given numbers, of a matrix or of a table."""
    if isinstance(X, np.ndarray):
        return X[at]
    if is_sparse(X):
        return rows_at(X.tocsr(), at)
    return nw.from_native(X, eager_only=True)[at].to_native() if is_frame(X) else _safe_indexing(X, at)
