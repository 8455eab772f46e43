"""What the columns and the outputs of a model mean, and rows in the form that it computes with.

Only numpy is needed here: a loaded model needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ..costs import shorten
from ..matrix import any_missing, column_at, is_sparse, missing_columns, to_csr
from .native import any_infinite
from .unseen import missing, plain_missing, unknown, warn_of

__all__ = ["Encoded", "Schema", "category_code", "columns_of", "encode", "is_missing", "refuse_one_row"]

FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class Encoded(NamedTuple):
    """The matrix of a table, and the columns in which it had categories that training did not see."""

    matrix: Any
    unknown: frozenset[str]


@dataclass(frozen=True, eq=False)
class Schema:
    """What the columns and the outputs mean.

    Attributes
    ----------
    feature_names : list of str
    categories : dict of str to list of str
        For a text or categorical column, its values; the model sees the position of a value in this list.
    may_miss : bool ndarray of shape (n_features,)
        Whether training saw missing values in a column.
    classes : ndarray or None
        The classes in the order of the probabilities; None for regression and ranking.
    means : ndarray of shape (n_features,)
        What stands for a value that is not to be had where a column is used as it is; 0 where trees look at it.
    booleans : frozenset of str
        The columns that held true and false in training; the model sees them as 1 and 0.
    """

    feature_names: list[str]
    categories: dict[str, list[str]]
    may_miss: np.ndarray
    classes: np.ndarray | None = None
    booleans: frozenset[str] = frozenset()
    means: Any = None

    def __post_init__(self) -> None:
        if self.means is None:
            object.__setattr__(self, "means", np.zeros(len(self.feature_names)))

    def class_numbers(self, y: Any, n: int) -> np.ndarray:
        """The places of the labels of `n` rows among the classes."""
        y, classes = np.asarray(y), self.classes
        assert classes is not None
        if y.shape != (n,):
            raise ValueError(f"y has shape {y.shape}; X has {n} rows: give one label for each")
        unknown = ~np.isin(y, classes)
        if unknown.any():
            raise ValueError(f"y holds {y[unknown].tolist()[0]!r}, which is no class of the model: {classes.tolist()}")
        order = np.argsort(classes, kind="stable")
        return order[np.searchsorted(classes[order], y)]

    def matrix(self, X: Any, plain: np.ndarray | None = None, ignored: np.ndarray | None = None) -> Any:
        """Rows as numbers, one column for each feature; of a table, the columns by name and categories by number.

        What is sparse stays sparse, and single precision stays single precision.  Values of a kind that training did
        not see are missing, with one warning; in the columns of `plain` they are refused.  In columns of the numbers
        `ignored` nothing is missed.
        """
        strange: set[str] = set()
        has_codes = X.__class__ is np.ndarray or not (X.__class__ is Encoded or is_table(X))
        if X.__class__ is Encoded:
            X, strange = X.matrix, set(X.unknown)
        if X.__class__ is np.ndarray:
            found = _plain_numbers(X)
        elif is_sparse(X):
            found = to_csr(X)
            found = found if found.dtype in FLOATS else found.astype(np.float64)
        else:
            refuse_one_row(X)
            found = encode(X, self.categories, self.feature_names, strange) if is_table(X) else _plain_numbers(X)
        n = len(self.feature_names)
        if found.ndim != 2:
            raise ValueError(
                f"X has {found.ndim} dimension(s); give a matrix with a row for each input and {n} columns"
            )
        if found.shape[1] != n:
            raise ValueError(f"X has {found.shape[1]} columns; the model has {n}: {shorten(self.feature_names)}")
        if any_infinite(found):
            raise ValueError("X holds an infinite value; values must be finite, or NaN where they are missing")
        if has_codes and self.categories:
            strange = {name for name in self.categories if self._has_unknown_code(name, found)}
        self._look_for_unseen(found, strange, plain, ignored)
        return found

    def _has_unknown_code(self, name: str, found: Any) -> bool:
        """Whether a matrix that somebody else made has a number for a category that stands for none."""
        codes = column_at(found, self.feature_names.index(name))
        codes = codes[codes == codes]
        return bool(((codes < 0) | (codes >= len(self.categories[name])) | (codes % 1 != 0)).any())

    @cached_property
    def _may_surprise(self) -> bool:
        """Whether there is a column in which training saw no missing values."""
        return not self.may_miss.all()

    def _look_for_unseen(
        self, found: Any, strange: set[str], plain: np.ndarray | None, ignored: np.ndarray | None
    ) -> None:
        if not strange and not (self._may_surprise and any_missing(found)):
            return
        lost = missing_columns(found) & ~self.may_miss
        if ignored is not None:
            lost[ignored] = False
            strange = strange - {self.feature_names[j] for j in ignored.tolist()}
        if plain is not None and (lost & plain).any():
            raise ValueError(plain_missing(self.feature_names[j] for j in np.flatnonzero(lost & plain)))
        if strange or lost.any():
            warn_of(
                unknown(name) if name in strange else missing(name)
                for name, is_lost in zip(self.feature_names, lost, strict=True)
                if is_lost or name in strange
            )


def is_table(X: Any) -> bool:
    """Whether X has columns of its own: a data frame of pandas, polars or pyarrow, or of their kind."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__")


def refuse_one_row(X: Any) -> None:
    """One row of a table is a series, in which columns and rows cannot be told apart."""
    if type(X).__name__ == "Series" and hasattr(X, "dtype"):
        raise ValueError(
            "X is a Series: one row, or one column; give a table. One row of a table df is df.iloc[[0]] in pandas "
            "and df[:1] in polars"
        )


def encode(
    X: Any, categories: Mapping[str, list], names: Sequence[str] | None = None, strange: set[str] | None = None
) -> np.ndarray:
    """The matrix of a table: all columns in their order, or those of the given names.

    A category is the position of its value in `categories`; one that is not there becomes NaN, like a missing value,
    and the name of its column is added to `strange`.
    """
    columns = columns_of(X)
    if names is None:
        names = list(columns)
    lost = [name for name in names if name not in columns]
    if lost:
        raise ValueError(f"X has no column {shorten(lost)}; the model has {shorten(names)}")
    single = bool(names) and all(name not in categories and _is_single(columns[name]) for name in names)
    matrix = np.empty((len(X), len(names)), dtype=np.float32 if single else np.float64)
    for j, name in enumerate(names):
        column = columns[name]
        if name in categories:
            codes = {value: float(code) for code, value in enumerate(categories[name])}
            values = _values(column)
            matrix[:, j] = [math.nan if is_missing(value) else category_code(codes, value) for value in values]
            gaps = np.isnan(matrix[:, j]).sum()
            if strange is not None and gaps and gaps > sum(map(is_missing, values)):
                strange.add(name)
        else:
            matrix[:, j] = _numbers_of_column(column, name)
    return matrix


def columns_of(X: Any) -> dict[str, Any]:
    """The columns of a table by the names that a model has for them: x0, x1, ... where its own are no text."""
    own = list(getattr(X, "column_names", X.columns))  # pyarrow calls its columns themselves "columns"
    names = [str(name) for name in own]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"columns of X have the same name, {twice!r}; give each its own")
    if not all(isinstance(name, str) for name in own):
        names = [f"x{j}" for j in range(len(own))]
    return {name: X[column] for name, column in zip(names, own, strict=True)}


def _values(column: Any) -> list:
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def _numbers_of_column(column: Any, name: str) -> np.ndarray:
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        return values
    if values.dtype.kind == "O" and all(map(_is_number_or_missing, values)):  # numbers in a column of no type
        return np.array([math.nan if is_missing(value) else float(value) for value in values], dtype=np.float64)
    raise ValueError(
        f"column {name!r} of X holds {getattr(column, 'dtype', values.dtype)}, which is not a number; "
        "give numbers, or text or categories already in fit"
    )


def _is_number_or_missing(value: Any) -> bool:
    return isinstance(value, Real | Decimal | np.bool_) or is_missing(value)


def _is_single(column: Any) -> bool:
    """Whether a column of a table holds numbers in single precision, by the name that its library has for them."""
    name = str(getattr(column, "dtype", getattr(column, "type", "")))
    return name.removesuffix("[pyarrow]").lower() in ("float32", "float")


def _plain_numbers(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.dtype in FLOATS:
        return np.asarray(values)
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("X cannot be read as numbers; give numbers, or a table with the model's columns") from None


def is_missing(value: Any) -> bool:
    """Whether a value of a table stands for none."""
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or type(value).__name__ == "NAType"


def category_code(codes: Mapping[str, float], value: Any) -> float:
    """The number of a category; NaN for one that training never saw.

    Tables turn whole numbers into floats as soon as a float stands beside them, so 2.0 is the category "2" if there is
    no "2.0", and the other way round.
    """
    code = codes.get(str(value))
    if code is None and isinstance(value, Real) and math.isfinite(value):
        number = float(value)
        code = codes.get(str(number))
        if code is None and number.is_integer():
            code = codes.get(str(int(number)))
    return math.nan if code is None else code
