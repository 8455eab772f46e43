"""Rows as they are given to `fit`: arrays and tables, or a folder of Parquet files; targets, queries and weights
beside X, or as columns of it that are named.

Whatever the form, it ends as `Rows` of X, y, weights and queries, and nothing after this knows the difference.
"""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from ..cluster import InFolder, Part, core_of_folder
from ..costs import shorten
from ..folders import Folder, is_path
from ..model.schema import columns_of
from ..rows import Rows
from ..tables import is_frame

__all__ = ["given_rows"]


def given_rows(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    qid: Any = None,
    sample_weight: Any = None,
    X_val: Any = None,
    y_val: Any = None,
    qid_val: Any = None,
    sample_weight_val: Any = None,
) -> tuple[Rows, Rows]:
    """The rows that teach and the rows that judge, of whatever was given to `fit` of an estimator.

    1. A folder, in X or in X_val, is read as a table; its targets, queries and weights are columns.
    2. In X, `target`, `qid` and `sample_weight` that are texts name columns, which leave it.
    3. In X_val so do their own names, or those of X where X_val is a table and nothing is given in their place.
    """
    kind = type(estimator).__name__
    if not estimator._needs_queries and (qid is not None or qid_val is not None):
        name = "qid" if qid is not None else "qid_val"
        raise ValueError(f"{name} is given, and a {kind} has no use for it; leave it out")
    if target is not None and not isinstance(target, str):
        raise ValueError(f"target is {shorten([target])}; it must be the name of a column of X: target='price'")
    for name, value in (("y", y), ("y_val", y_val)):
        if isinstance(value, str):
            raise ValueError(f"{name} is {value!r}; give values, or leave it out: target={value!r} names a column")
    if y is not None and target is not None:
        raise ValueError(f"both y and target are given; give y, or leave it out and take the column {target!r} of X")
    if y is None and target is None:
        if is_path(X):
            raise ValueError(f"X is the path {str(X)!r}; say which of its columns holds the targets: target='price'")
        raise ValueError(
            f"{kind} requires y to be passed, but the target y is None; give y, or target='price', a column of X"
        )
    own = Rows(X, y if target is None else target, sample_weight, qid)
    most = estimator._resolved_method().rows_per_fit
    rows = _taken(own, "X", ("target", "sample_weight", "qid"), most)
    if X_val is None:  # what may not stand alone is refused where validation rows are checked
        return rows, Rows(None, y_val, sample_weight_val, qid_val)
    named = is_path(X_val) or is_frame(X_val)
    # a text in a place of X is a name, and names are the same in both
    roles = [
        other if named and given is None and isinstance(other, str) else given
        for given, other in ((y_val, target), (sample_weight_val, sample_weight), (qid_val, qid))
    ]
    if y_val is not None and is_frame(X_val) and target is not None and target in _names(X_val):
        raise ValueError(f"y_val is given, and X_val has the column {target!r} of the targets, too; leave one out")
    return rows, _taken(Rows(X_val, *roles), "X_val", ("target", "sample_weight_val", "qid_val"))


def _taken(given: Rows, where: str, roles: tuple[str, str, str], most: int | None = None) -> Rows:
    """Rows with values in the places of names; the columns that were named leave X.

    Of a folder of more rows than `most`, those that judge are read; the others are named.
    """
    part = more = None
    columns = dict(zip(roles, (given.y, given.weights, given.qid), strict=True))
    names = {role: value for role, value in columns.items() if isinstance(value, str)}
    twice = [role for role, name in names.items() if list(names.values()).count(name) > 1]
    if twice:
        raise ValueError(f"{' and '.join(twice)} name one column, {names[twice[0]]!r}; each needs its own")
    if is_path(given.X):
        for role, value in columns.items():
            if value is not None and role not in names:
                role = {"X": "y", "X_val": "y_val"}[where] if role == "target" else role
                raise ValueError(f"{role} is given as values, and {where} is a folder; {_instead(role)}")
        if roles[0] not in names:
            raise ValueError(f"{where} is a folder, and its targets have no name; give target, and no y")
        stored = InFolder(Folder.open(given.X), names[roles[0]], names.get(roles[1]))
        if most is not None and len(stored.folder) > most:
            stored, more = core_of_folder(stored, most, names.get(roles[2]))
        table = stored.table()
        part = Part(stored)
    elif is_frame(given.X):
        table = given.X
    elif names:
        role, name = next(iter(names.items()))
        raise ValueError(
            f"{role} is {name!r}, and {where} has no columns with names; give values, or a table or a folder of "
            "Parquet files that has this column"
        )
    if not names:
        return given
    columns_of(table)  # refuses names that stand there twice
    own = _names(table)
    for role, name in names.items():
        if name not in own:
            raise ValueError(f"{role} is {name!r}, which is no column of {where}: {shorten(own)}")
    frame = nw.from_native(table, eager_only=True)
    values = [
        _values(frame[value], names, role, where) if role in names else value for role, value in columns.items()
    ]
    y, weights, qid = values
    return Rows(frame.drop(list(names.values())).to_native(), y, weights, qid, part, more)


def _instead(role: str) -> str:
    if role in ("y", "y_val"):
        return "leave it out, and name the column with target"
    return f"name a column: {role}={'query' if role.startswith('qid') else 'weight'!r}"


def _names(table: Any) -> list[str]:
    return [name for name in getattr(table, "column_names", table.columns) if isinstance(name, str)]


def _values(column: Any, names: dict[str, str], role: str, where: str) -> np.ndarray:
    """A column as an array, with a value for every row."""
    gaps = column.null_count()
    if gaps:
        raise ValueError(
            f"{role} is {names[role]!r}, a column of {where} that is missing in {gaps} of {len(column)} rows; every "
            "row needs one: leave out the rows without"
        )
    values = column.to_numpy()
    return values.astype(object) if values.dtype.kind in "UT" else values  # libraries differ, the model must not
