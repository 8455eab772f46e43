"""Whole queries on the command line: blocks of a table that cut none, and who needs the column of the queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..model.file import Model
from ..model.queries import QueryTree
from ._errors import WrongUse

__all__ = ["check_whole_queries", "refuse_one_row", "refuse_query_column", "whole_queries"]


def check_whole_queries(model: Model, qid: str | None, budget: float | None) -> None:
    """What a model of whole queries needs, and what it cannot do."""
    if isinstance(model, QueryTree) and qid is None:
        raise WrongUse("this model looks at whole queries; name the column with the query of each row: --qid COLUMN")
    if isinstance(model, QueryTree) and budget is not None:
        raise WrongUse(
            "--budget is given, and this model looks at whole queries, where no row can be stopped by itself; leave it "
            "out, or fit a cheaper model: cstc fit --mean-cost"
        )


def refuse_query_column(model: Model, qid: str | None) -> None:
    """A model that answers row by row has no use for the column."""
    if not isinstance(model, QueryTree) and qid is not None:
        raise WrongUse("--qid is given, and this model answers row by row; leave it out")


def refuse_one_row(model: Model, instead: str) -> None:
    """For commands about rows one by one."""
    if isinstance(model, QueryTree):
        raise WrongUse(f"this model looks at whole queries, and this command at rows one by one; {instead}")


def whole_queries(blocks: Iterable[tuple[int, Any, Any]], qid: str) -> Iterator[tuple[int, Any, Any]]:
    """The same rows in blocks that end with a query; the last query of a block waits for the next one."""
    from ._arrow import pyarrow

    done: set[Any] = set()
    first, held = 0, []
    for _, X, block in blocks:
        held.append((X, block))
        whole = [pyarrow.concat_tables(each, promote_options="permissive") for each in zip(*held, strict=True)]
        queries = whole[1][qid].to_pylist()
        end = len(queries)
        while end and queries[end - 1] == queries[-1]:
            end -= 1
        held = [(whole[0].slice(end), whole[1].slice(end))]
        if end:
            _look(queries[:end], done, qid)
            yield first, whole[0].slice(0, end), whole[1].slice(0, end)
            first += end
    if held:
        _look(held[0][1][qid].to_pylist(), done, qid)
        yield first, *held[0]


def _look(queries: list[Any], done: set[Any], qid: str) -> None:
    """Queries of a block must not have ended in an earlier one; within the block, the model looks."""
    for query in dict.fromkeys(queries):
        if query in done:
            raise ValueError(f"query {query!r} comes back after other queries; sort the rows by {qid!r}")
        done.add(query)
