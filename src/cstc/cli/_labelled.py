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
from ._tables import TableFile, check_columns, labels_of, model_blocks, no_rows, numbers_of

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
    named_by: tuple[str, str] = ("--target", "--qid"),
) -> Labelled:
    """All rows of a table; the columns `absent` need not be there.

    `named_by` says where the target and the query were named, for messages.
    """
    check_columns(table, {named_by[0]: target, named_by[1]: qid, "--id": id_column})
    if qid is not None and schema.classes is not None:
        raise WrongUse("--qid belongs to a model that ranks, and this one predicts classes")
    blocks: list[Any] = []
    raw: list[Any] = []
    named = [name for name in dict.fromkeys((target, qid, id_column)) if name is not None]
    for _, X, block in model_blocks(table, schema, reading, absent=absent, also=named):
        blocks.append(X)
        raw.append(block.select(named))
    if not blocks:
        raise no_rows(table)
    others = pyarrow.concat_tables(raw)
    if schema.classes is None:
        y = numbers_of(table, others[target], target, reading)
    else:
        y = labels_of(table, others[target], target, schema.classes)
    queries = None if qid is None else np.array(others[qid].to_pylist())
    ids = None if id_column is None else others[id_column].to_pylist()
    return Labelled(pyarrow.concat_tables(blocks, promote_options="permissive"), y, queries, ids, table.source)
