"""Rows whose target is known, as a model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..model.schema import Schema
from ._arrow import pyarrow
from ._errors import WrongUse
from ._input import Input
from ._reading import Reading
from ._tables import TableFile, check_columns, column_of, labels_of, model_blocks, numbers_of

__all__ = ["Labelled", "read_labelled"]


class Labelled(NamedTuple):
    X: Any  # a table with the columns of the model
    y: np.ndarray
    qid: np.ndarray | None
    ids: list[Any] | None
    source: Input


def read_labelled(
    table: TableFile,
    schema: Schema,
    reading: Reading,
    target: str,
    qid: str | None = None,
    *,
    absent: Sequence[str] = (),
    id_column: str | None = None,
) -> Labelled:
    """All rows of a table; the columns `absent` need not be there."""
    check_columns(table, {"--target": target, "--qid": qid, "--id": id_column})
    if qid is not None and schema.classes is not None:
        raise WrongUse("--qid belongs to a model that ranks, and this one predicts classes")
    blocks: list[Any] = []
    ids: list[Any] = []
    for _, X, own in model_blocks(table, schema, reading, absent=absent, also=id_column):
        blocks.append(X)
        ids += [] if own is None else own.to_pylist()
    if not blocks:
        raise ValueError(f"{table.name} has the names of {len(table.names)} columns and no rows")
    column = column_of(table, target)
    if schema.classes is None:
        y = numbers_of(table, column, target, reading)
    else:
        y = labels_of(table, column, target, schema.classes)
    queries = None if qid is None else np.array(column_of(table, qid).to_pylist())
    whole = pyarrow.concat_tables(blocks, promote_options="permissive")
    return Labelled(whole, y, queries, ids if id_column is not None else None, table.source)
