"""``cstc predict``: an answer for each row of a table, with its cost, its path and what was bought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from ..costs import shorten
from ..model.file import load_named
from ._errors import say
from ._needed import Lacking, lacking
from ._options import answering, model_argument, output, quiet, reads_tables, table_argument
from ._reading import Reading

__all__ = ["predict"]

OWN = ("prediction", "cost", "path", "items")


@click.command()
@model_argument
@table_argument("table", "TABLE")
@click.option("--qid", metavar="COLUMN", help="The query of each row, for a model that looks at whole queries.")
@answering
@output("Where to write: .csv, .csv.gz, .parquet or .feather; standard output as CSV otherwise.")
@quiet
@reads_tables
def predict(
    model: str,
    table: str,
    qid: str | None,
    budget: float | None,
    unavailable: tuple[str, ...],
    id_column: str | None,
    output: str,
    quiet: bool,
    reading: Reading,
) -> None:
    """Answer each row of TABLE, some rows at a time.

    For each row: the prediction, the probability of each class, what it cost, the nodes of its path as 'cstc inspect'
    numbers them ('stopped' where the budget ended it), and the items that were bought, with semicolons between them.
    The rows of a query stand together where --qid names one; they are answered together.
    """
    from ..progress import Progress
    from ._output import check_output, table_writer
    from ._queries import check_whole_queries, refuse_query_column, whole_queries
    from ._tables import check_columns, model_blocks, open_table

    loaded, _ = load_named(model)
    check_whole_queries(loaded, qid, budget)
    refuse_query_column(loaded, qid)
    opened = open_table(table, reading)
    without = lacking(loaded, unavailable, opened.names)
    check_output(output, opened.source)
    check_columns(opened, {"--id": id_column, "--qid": qid})
    names = loaded.schema.feature_names
    spare = [name for name in opened.names if name not in names and name not in (id_column, qid)]
    if spare:
        say(f"{opened.name} has columns that the model does not know, such as {shorten(spare, 3)}", quiet=quiet)
    blocks = model_blocks(opened, loaded.schema, reading, absent=without.names, also=[id_column, qid])
    if qid is not None:
        blocks = whole_queries(blocks, qid)
    progress, n_rows = Progress("cstc predict", 0 if quiet else 1), 0
    progress.begin("rows", _rows_of(opened))
    with table_writer(output) as writer:
        shape = _Columns(loaded, id_column)
        for start, X, block in blocks:
            ids = None if id_column is None else block[id_column]
            queries = None if qid is None else block[qid].to_pylist()
            writer.write(shape.of(X, ids, start, budget, without, queries))
            n_rows += len(X)
            progress.did(len(X))
            progress.draw()
        if not n_rows:
            say(f"{opened.name} has no rows", quiet=quiet)
            writer.write(shape.empty())
    progress.close()


def _rows_of(table: Any) -> float:
    """About how many rows there are, by the length of the first ones."""
    if not table.is_text:
        return float(table.n_rows)
    head = table.source.head
    return max(1.0, head.count(b"\n") * table.source.size / len(head))


class _Columns:
    """The columns of the answers."""

    def __init__(self, model: Any, id_column: str | None):
        from ._answers import paths_of

        self.model, self.id_column = model, id_column
        self._paths = np.array([*paths_of(model), "stopped"], dtype=object)
        classes = model.schema.classes
        self.probabilities = [] if classes is None else [f"probability {name}" for name in classes.tolist()]
        if id_column in (*OWN, *self.probabilities):
            raise ValueError(f"--id is {id_column!r}, which is a column of the answers, too; rename the column")

    def of(self, X: Any, ids: Any, start: int, budget: float | None, without: Lacking, qid: Any = None) -> Any:
        from ..model import probabilities
        from ._answers import answers_of
        from ._arrow import pyarrow

        model = self.model
        own = None if ids is None else ids.to_pylist()
        matrix = model._matrix(X, without.ignored)
        found = answers_of(model, matrix, budget=budget, gone=without.gone, ids=own, first=start, qid=qid)
        columns: dict[str, Any] = {} if ids is None else {str(self.id_column): ids}
        columns["prediction"] = pyarrow.array(model.answers(found.margins).tolist(), self._kind)
        if self.probabilities:
            shares = probabilities(found.margins, model.link)
            columns |= {name: shares[:, k] for k, name in enumerate(self.probabilities)}
        columns["cost"] = found.costs
        columns["path"] = pyarrow.array(self._paths[found.paths], pyarrow.string())
        columns["items"] = pyarrow.array(self._bought(found.items), pyarrow.string())
        return pyarrow.table(columns)

    @property
    def _kind(self) -> Any:
        """The type of predictions; the same for each block, even one whose rows are all referred to a person."""
        from ._arrow import pyarrow

        classes = self.model.schema.classes
        return pyarrow.float64() if classes is None else pyarrow.array(classes.tolist()).type

    def _bought(self, items: np.ndarray) -> np.ndarray:
        """The names of what each row bought; few sets of items are bought by many rows."""
        sets, which = np.unique(np.packbits(items, axis=1), axis=0, return_inverse=True)
        members = np.unpackbits(sets, axis=1, count=items.shape[1]).astype(bool)
        names: Sequence[str] = self.model.costs.item_names
        told = [";".join(names[r] for r in np.flatnonzero(row).tolist()) for row in members]
        return np.array(told, dtype=object)[which.ravel()]

    def empty(self) -> Any:
        """The heads of the columns, where there are no rows."""
        from ._arrow import pyarrow

        text, number = pyarrow.string(), pyarrow.float64()
        kinds = {} if self.id_column is None else {self.id_column: text}
        kinds |= {"prediction": self._kind} | dict.fromkeys([*self.probabilities, "cost"], number)
        kinds |= {"path": text, "items": text}
        return pyarrow.table({name: pyarrow.array([], kind) for name, kind in kinds.items()})
