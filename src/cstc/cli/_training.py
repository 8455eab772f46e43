"""From the options of a fit to rows and an estimator: which columns teach, what the target is, what things cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from shlex import quote
from typing import Any

import numpy as np

from ..costs import CostModel, counted, price_lines, shorten
from ..estimators import CSTCClassifier, CSTCRanker, CSTCRegressor
from ..model.schema import Schema
from ._arrow import compute
from ._columns import as_text, inferred, kind_of
from ._error_costs import read_error_costs
from ._errors import WrongUse, say
from ._job import Job
from ._labelled import read_labelled
from ._tables import (
    TableFile,
    as_held,
    check_columns,
    labels_of,
    numbers_of,
    open_table,
    places_in,
    raw_table,
)

__all__ = ["Given", "Training", "check_job"]

ESTIMATORS = {"classification": CSTCClassifier, "regression": CSTCRegressor, "ranking": CSTCRanker}
MOST_CLASSES = 10  # whole numbers: with more of them than that, a target is a quantity
MANY_VALUES = 20  # and more than half of the rows: categories that are none
DATE = r"^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|^\d{1,2}[./]\d{1,2}[./]\d{2,4}$"  # 2026-11-16, 16.11.2026, 11/16/26


@dataclass(frozen=True, eq=False)
class Given:
    """Rows that teach, or that judge."""

    X: Any
    y: np.ndarray
    qid: np.ndarray | None

    def __len__(self) -> int:
        return len(self.y)


def check_job(job: Job) -> None:
    """What can be said before any file is read."""
    if job.qid is None and job.task == "ranking":
        raise WrongUse("--task ranking needs --qid, the column with the query of each row")
    if job.qid is not None and job.task not in (None, "ranking"):
        raise WrongUse(f"--qid belongs to ranking, and --task is {job.task}; leave one of them out")
    for option, value in (("--at", job.at), ("--objective", job.objective)):
        if value is not None and job.qid is None:
            raise WrongUse(f"{option} belongs to ranking, which needs --qid, the column with the query of each row")
    if job.objective == "lambdarank" and job.method in ("paper", "exact"):
        raise WrongUse(
            f"--objective lambdarank is for --method experts, and --method is {job.method}; leave one of them out"
        )
    if job.whole_queries and job.qid is None:
        raise WrongUse("--whole-queries needs --qid, the column with the query of each row")
    if job.whole_queries and job.method in ("paper", "exact"):
        raise WrongUse(f"--whole-queries is for --method experts, and --method is {job.method}; leave one of them out")
    if job.error_costs is not None and job.task not in (None, "classification"):
        raise WrongUse(f"--error-costs belongs to classification, and --task is {job.task}")
    if job.jobs is not None and job.jobs < 1 and job.jobs != -1:
        raise WrongUse(f"--jobs is {job.jobs}; give 1 or more, or -1 for all cores")
    if job.rounds is not None and job.method == "exact":
        raise WrongUse("--rounds says how trees are boosted, and --method exact boosts none; leave one of them out")
    if job.target in (job.qid, *job.drop):
        raise WrongUse(f"--target is {job.target!r}, which --qid or --drop takes away")
    if "-" in (job.prices, job.error_costs):
        raise WrongUse("prices are read from a file, not from standard input")
    if job.table == job.validation == "-":
        raise WrongUse("standard input can be read once: TRAIN and --validation are both '-'")


@dataclass(eq=False)
class Training:
    """All that a fit needs, read from its files."""

    job: Job
    table: TableFile = field(init=False)

    def __post_init__(self) -> None:
        job = self.job
        check_job(job)
        self.table = open_table(job.table, job.reading)
        check_columns(self.table, {"--target": job.target, "--qid": job.qid})
        for option, names in (("--drop", job.drop), ("--category", job.category)):
            for name in names:
                check_columns(self.table, {option: name})
        if not self.features:
            raise WrongUse(f"{self.table.name} has no column beside {shorten(self.left_out)} to learn from")
        lost = [name for name in job.category if name not in self.features]
        if lost:
            raise WrongUse(f"--category names {shorten(lost)}, which is no column to learn from")

    @property
    def left_out(self) -> list[str]:
        """Columns that nobody learns from."""
        return [self.job.target, *([self.job.qid] if self.job.qid is not None else []), *self.job.drop]

    @cached_property
    def features(self) -> list[str]:
        return [name for name in self.table.names if name not in self.left_out]

    # -- rows ----------------------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> Given:
        job = self.job
        X = as_held(self.table, self._raw, self.features, job.reading, job.category)
        if len(X) < 2:
            raise ValueError(
                f"{self.table.name} has 1 row; a model learns from 2 at least, and from hundreds something"
            )
        qid = None if job.qid is None else np.array(self._raw[job.qid].to_pylist())
        return Given(X, self._target[1], qid)

    @cached_property
    def _raw(self) -> Any:
        """All that is read of the table, as it stands there."""
        others = [name for name in (self.job.target, self.job.qid) if name is not None]
        return raw_table(self.table, [*self.features, *others])

    @property
    def task(self) -> str:
        return self._target[0]

    @cached_property
    def _target(self) -> tuple[str, np.ndarray]:
        """The task and the target of each row."""
        job, table = self.job, self.table
        raw = self._raw[job.target]
        column = raw
        if table.is_text and job.task not in ("regression", "ranking"):
            column = inferred(raw, job.target, places_in(table), job.reading.decimal)
        task = job.task or ("ranking" if job.qid is not None else _task_of(column))
        if job.error_costs is not None and task != "classification":
            raise WrongUse(
                f"--error-costs belongs to classes, and the target {job.target!r} holds numbers; say "
                "--task classification if they are classes"
            )
        if task != "classification":
            return task, numbers_of(table, raw, job.target, job.reading)
        return task, _classes_in(table, column, job.target)

    @cached_property
    def validation(self) -> Given | None:
        """Rows that judge, with columns as training has them."""
        job, table = self.job, self.validation_table
        if table is None:
            return None
        rows = read_labelled(table, self._schema, job.reading, job.target, job.qid)
        return Given(rows.X, rows.y, rows.qid)

    @cached_property
    def validation_table(self) -> TableFile | None:
        if self.job.validation is None:
            return None
        return open_table(self.job.validation, self.job.reading)

    @property
    def _schema(self) -> Schema:
        """What the columns of training hold, as far as reading other rows needs it."""
        kinds = {name: kind_of(self.rows.X[name]) for name in self.features}
        categories: dict[str, list[str]] = {name: [] for name, kind in kinds.items() if kind == "category"}
        booleans = frozenset(name for name, kind in kinds.items() if kind == "true/false")
        classes = np.unique(self.rows.y) if self.task == "classification" else None
        return Schema(self.features, categories, np.ones(len(kinds), dtype=bool), classes, booleans)

    # -- the estimator -------------------------------------------------------------------------------------------

    @cached_property
    def costs(self) -> CostModel | None:
        """The prices of the columns that teach; None: 1 for each."""
        path = self.job.prices
        if path is None:
            return None
        priced = [name for _, name, price, _ in price_lines(path) if price and name in self.left_out]
        if priced:
            say(f"{path}: the price of {shorten(priced)} is not used; nobody learns from it", quiet=self.job.quiet)
        self._check_filled_in(path)
        costs = CostModel.from_csv(path, without=self.left_out)
        try:
            costs.resolve(self.features)
        except ValueError as error:
            text = str(error).replace("costs knows", "the file has").replace("costs names", "the file names")
            text = text.replace("a column of X", f"a column of {self.table.name}")
            raise ValueError(f"{path}: {text}") from None
        return costs

    def _check_filled_in(self, path: str) -> None:
        """Each column that teaches has a price or items; one with items alone, maybe forgotten, is pointed out."""
        lines = [line for line in price_lines(path) if line[1] in self.features]
        empty = [(where, name) for where, name, price, items in lines if not price and not items]
        if empty:
            where, name = empty[0]
            more = f" (and {len(empty) - 1} more lines have none)" if len(empty) > 1 else ""
            raise ValueError(
                f"{where}: {name!r} has no price yet{more}; write one (0 is free), or name the item that it needs "
                f"under requires, or leave the column out with --drop {quote(name)}"
            )
        items_alone = [name for _, name, price, items in lines if items and not price]
        if items_alone:
            told = f"{path}: {shorten(items_alone)} has no price of its own: only what it requires is paid"
            say(told, quiet=self.job.quiet)

    def estimator(self, **options: Any) -> Any:
        """The estimator of the task, with the parameters that were given."""
        job = self.job
        given: dict[str, Any] = {
            "costs": self.costs,
            "method": job.method,
            "random_state": job.random_state,
            "n_jobs": job.jobs,
        }
        given |= {"weak_learners": "identity"} if job.method == "exact" else {"n_weak_learners": job.rounds}
        given |= {"at": job.at} if job.at is not None else {}
        given |= {"objective": job.objective} if job.objective is not None else {}
        if job.error_costs is not None:
            given["error_costs"] = read_error_costs(job.error_costs, job.reading, np.unique(self.rows.y))
        if job.whole_queries:
            given["whole_queries"] = True
        return ESTIMATORS[self.task](**given, **options)

    # -- telling -------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """What was read, and what was taken for what, on standard error."""
        job, rows = self.job, self.rows
        kinds = [kind_of(column) for column in rows.X.columns]
        each = ", ".join(f"{kinds.count(kind)} of {_HOLD.get(kind, kind)}" for kind in dict.fromkeys(kinds))
        n_columns = counted(len(kinds), "column")
        say(f"{self.table.name}: {counted(len(rows), 'row')}, {n_columns} to learn from: {each}", quiet=job.quiet)
        found = "" if job.task else ", found from the target (--task says otherwise)"
        if self.task == "classification":
            names = np.unique(rows.y)
            target = f"{len(names)} class{'' if len(names) == 1 else 'es'}: {shorten(names.tolist(), 5)}"
        else:
            target = f"numbers from {rows.y.min():g} to {rows.y.max():g}"
        say(f"target {job.target!r}: {target}; task {self.task}{found}", quiet=job.quiet)
        if job.prices is None:
            say("no --prices: every column costs 1", quiet=job.quiet)
        for name in self.features:
            column = rows.X[name]
            n_values = compute.count_distinct(column).as_py() if kind_of(column) == "category" else 0
            if n_values > max(MANY_VALUES, len(rows) / 2):
                say(
                    f"Warning: column {name!r} is text with {n_values} different values in {len(rows)} rows; leave it "
                    f"out with --drop {quote(name)} unless these are categories"
                )
            elif n_values and _are_dates(column):
                say(
                    f"Warning: column {name!r} holds dates, and each date is taken for a category of its own; leave it "
                    f"out with --drop {quote(name)}, or write a number instead, such as days since a first one"
                )
        self._tell_of_classes()

    def _tell_of_classes(self) -> None:
        """Classes that look like one class spelled in two ways."""
        if self.task != "classification":
            return
        spelled: dict[str, list[str]] = {}
        for name in np.unique(self.rows.y).tolist():
            spelled.setdefault(" ".join(str(name).split()).casefold(), []).append(name)
        for names in spelled.values():
            if len(names) > 1:
                say(
                    f"Warning: the classes {shorten(names)} of {self.job.target!r} differ only in how they are "
                    "written; write them alike if they are one class"
                )


def _are_dates(column: Any) -> bool:
    """Whether all values of a column of text are days, written with numbers."""
    values = compute.unique(as_text(column).drop_null())
    return bool(len(values)) and bool(compute.all(compute.match_substring_regex(values, DATE)).as_py())


_HOLD = {"number": "numbers", "true/false": "true and false", "category": "categories"}


def _task_of(column: Any) -> str:
    kind = kind_of(column)
    if kind in ("category", "true/false"):
        return "classification"
    values = np.unique(np.asarray(column.drop_null()).astype(float)) if kind == "number" else np.array([0.5])
    few = len(values) <= MOST_CLASSES and bool(np.all(values == np.round(values)))
    return "classification" if few else "regression"


def _classes_in(table: TableFile, column: Any, name: str) -> np.ndarray:
    """The class of each row: text, true and false, or whole numbers."""
    if column.null_count:
        labels_of(table, column, name, np.array([]))  # says where
    kind = kind_of(column)
    if kind == "category":
        return np.array(as_text(column).to_pylist())
    values = np.asarray(column)
    if kind == "true/false":
        return values.astype(bool)
    if kind != "number":
        raise ValueError(f"{table.name}, column {name!r} holds {kind}; a target holds text, numbers, or true and false")
    broken = values != np.round(values.astype(float))
    if broken.any():
        at = int(broken.argmax())
        raise ValueError(
            f"{places_in(table)(at, name)}: {values[at]:g} is no class; classes are text or whole numbers, and "
            "--task regression predicts numbers"
        )
    return values.astype(np.int64)
