"""The explanation of a row of which all values are at hand: it is walked as on demand, and asked why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...costs import shorten
from ...matrix import dense, is_sparse
from ...model import FittedTree
from ...model.schema import Encoded, is_table
from ..compiled import CompiledTree, compile_tree
from ..session import Session
from .explanation import Explanation

__all__ = ["as_one_row", "explain_row", "is_mapping"]


def explain_row(
    model: FittedTree, row: Any, budget: float | None = None, unavailable: Iterable[str] = ()
) -> Explanation:
    """How the answer for a row comes about; see `FittedTree.explain`."""
    compiled = compile_tree(model)
    if is_mapping(row):
        return _told(Session(compiled, budget=budget, unavailable=unavailable), row)
    matrix = model._matrix(as_one_row(row))
    _check_one(matrix)
    values = dense(matrix, slice(0, 1))[0].tolist()
    session = Session(compiled, budget=budget, unavailable=unavailable)
    while wanted := session.wanted_features:
        session.receive_numbers(wanted, values)
        session.resume()
    answer = session.answer()
    answer._known = {f: _meant(compiled, f, number) for f, number in (answer._known or {}).items()}
    return answer.explain()


def is_mapping(row: Any) -> bool:
    """Names with values: a dict, or a row of a table that is a series of pandas."""
    return not is_table(row) and hasattr(row, "keys") and hasattr(row, "__getitem__")


def as_one_row(row: Any) -> Any:
    """A table or a matrix of one row; a list of values becomes one."""
    if row.__class__ is Encoded or is_table(row) or is_sparse(row):
        return row
    if isinstance(row, str | bytes) or np.ndim(row) == 0:
        raise ValueError(
            f"row is a {type(row).__name__}; give a table of one row, a list of values, or names with values"
        )
    row = np.asarray(row)
    if row.ndim == 1:
        row = row[None, :]
    _check_one(row)
    return row


def _check_one(matrix: Any) -> None:
    if matrix.ndim == 2 and matrix.shape[0] != 1:
        raise ValueError(f"row holds {matrix.shape[0]} rows; explain takes one: X[:1], or df.iloc[[0]] of a table")


def _told(session: Session, row: Any) -> Explanation:
    """Of names with values, only those are needed that the path asks for."""
    while wanted := session.wanted():
        lost = [name for name in wanted if name not in row]
        if lost:
            raise ValueError(
                f"row has no value for {shorten(lost)}, which its path needs; give one (None where it is missing), or "
                "name in unavailable= what is not to be had"
            )
        values = {name: row[name] for name in wanted}
        session.check(values)
        session.tell(values)
    return session.answer().explain()


def _meant(compiled: CompiledTree, feature: int, number: float) -> Any:
    """The value that a number of the matrix stands for."""
    name, schema = compiled.feature_names[feature], compiled.model.schema
    categories = schema.categories.get(name)
    if categories is not None and number == number and 0 <= number < len(categories) and number == int(number):
        return categories[int(number)]
    return bool(number) if name in schema.booleans and number in (0.0, 1.0) else number
