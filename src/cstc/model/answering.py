"""What every fitted model can be asked, be it one tree, a mixture or one of whole queries: answers, costs, a file.

All of it comes down to one question, the margins and the costs of the rows of a matrix (`Answering.decide`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from .decisions import Decisions
from .links import most_likely, probabilities
from .schema import Schema

__all__ = ["COUNTINGS", "Answering", "check_counting"]

COUNTINGS = ("branch", "learner")


class Answering:
    """The questions that are the same for all models."""

    if TYPE_CHECKING:  # one tree has them, others look them up

        @property
        def schema(self) -> Schema: ...
        @property
        def link(self) -> str: ...
        @property
        def decisions(self) -> Decisions | None: ...

    def columns_named(self, unavailable: Any) -> np.ndarray:
        """The columns that are lost with some sources, items or features, each given by its name."""
        raise NotImplementedError

    def _matrix(self, X: Any, ignored: np.ndarray | None = None) -> Any:
        """Rows as the matrix that the model computes with; in the columns `ignored` nothing is missed."""
        raise NotImplementedError

    def decide(
        self,
        X: Any,
        counting: str = "branch",
        budget: Any = None,
        gone: np.ndarray | None = None,
        ids: Any = None,
        qid: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """`decision_and_cost` of a matrix that was looked at already, without the columns `gone`."""
        raise NotImplementedError

    def decision_function(self, X: Any, *, ids: Any = None, qid: Any = None) -> np.ndarray:
        """Margins of shape (n, n_outputs) at the terminal that each row reaches, or where its limit leaves it."""
        return self.decision_and_cost(X, ids=ids, qid=qid)[0]

    def answers(self, margins: np.ndarray) -> np.ndarray:
        """Predictions from margins: values, or classes; None where a row is referred to a person (`decisions`)."""
        if self.schema.classes is None:
            return margins[:, 0]
        if self.decisions is not None:
            return self.decisions.answers(probabilities(margins, self.link), self.schema.classes)
        return self.schema.classes[most_likely(margins, self.link)]

    def predict(
        self,
        X: Any,
        *,
        return_cost: bool = False,
        budget: float | None = None,
        unavailable: Iterable[str] = (),
        ids: Any = None,
        qid: Any = None,
    ) -> Any:
        """Predicted values or classes.

        Parameters
        ----------
        X : matrix or table
        return_cost : bool, default=False
            Also what each row pays, from the same walk.
        budget : float, optional
            No row pays more: one whose path would is answered with what can be had for that.  Of a model that has a
            limit, the smaller one of both counts.
        unavailable : iterable of str, optional
            Sources, items or features that are down: rows are answered without them, and nothing of them is paid.
        ids : sequence of str or number, optional
            What tells each row from others.  The coin that decides which model of a `Mixture` a row takes is drawn from
            that, or without ids from the number of the row in X; one model alone all rows take, whatever their ids are.
        qid : array-like of shape (n,), optional
            The query of each row; the rows of a query stand together.  A `QueryTree` needs it; a model that answers
            row by row looks whether it can be right, and answers as without it.
        """
        return self._answered(X, self.answers, return_cost, budget, unavailable, ids, qid)

    def predict_proba(
        self,
        X: Any,
        *,
        return_cost: bool = False,
        budget: float | None = None,
        unavailable: Iterable[str] = (),
        ids: Any = None,
        qid: Any = None,
    ) -> Any:
        """Class probabilities, in the order of ``schema.classes``; everything else as in `predict`."""
        if self.schema.classes is None:
            raise ValueError("predict_proba needs a classifier; this model predicts numbers: use predict")
        return self._answered(
            X, lambda margins: probabilities(margins, self.link), return_cost, budget, unavailable, ids, qid
        )

    def _answered(
        self,
        X: Any,
        answers: Callable[[np.ndarray], np.ndarray],
        return_cost: bool,
        budget: float | None,
        unavailable: Iterable[str],
        ids: Any,
        qid: Any,
    ) -> Any:
        if not return_cost and budget is None and _is_nothing(unavailable):
            return answers(self.decision_function(X, ids=ids, qid=qid))
        margins, cost = self.decision_and_cost(X, budget=budget, unavailable=unavailable, ids=ids, qid=qid)
        return (answers(margins), cost) if return_cost else answers(margins)

    def predict_cost(
        self,
        X: Any,
        counting: str = "branch",
        *,
        budget: float | None = None,
        unavailable: Iterable[str] = (),
        ids: Any = None,
        qid: Any = None,
    ) -> np.ndarray:
        """Exact cost of each row: every item and every weak learner on its path is paid once.

        `budget`, `unavailable`, `ids` and `qid` as in `predict`; a budget is counted by branches, as it is paid.
        """
        return self.decision_and_cost(X, counting, budget=budget, unavailable=unavailable, ids=ids, qid=qid)[1]

    def decision_and_cost(
        self,
        X: Any,
        counting: str = "branch",
        *,
        budget: float | None = None,
        unavailable: Iterable[str] = (),
        ids: Any = None,
        qid: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """`decision_function` and `predict_cost` in one walk; everything else as in `predict`."""
        check_counting(counting)
        gone = None if _is_nothing(unavailable) else self.columns_named(unavailable)
        return self.decide(self._matrix(X, gone), counting, budget, gone, ids, qid)

    def total_cost(
        self,
        X: Any,
        y: Any,
        *,
        budget: float | None = None,
        unavailable: Iterable[str] = (),
        ids: Any = None,
        qid: Any = None,
    ) -> np.ndarray:
        """What each row costs in all: its features, and its decision, where `y` are the true classes.

        Of a model with prices of errors only (`decisions`).  `budget`, `unavailable`, `ids` and `qid` as in `predict`.
        """
        decisions = self.priced_decisions
        margins, cost = self.decision_and_cost(X, budget=budget, unavailable=unavailable, ids=ids, qid=qid)
        truth = self.schema.class_numbers(y, len(margins))
        return cost + decisions.observed(truth, probabilities(margins, self.link))

    def expected_total_cost(
        self,
        X: Any,
        *,
        budget: float | None = None,
        unavailable: Iterable[str] = (),
        ids: Any = None,
        qid: Any = None,
    ) -> np.ndarray:
        """What each row is expected to cost in all, by its own probabilities; everything else as in `total_cost`."""
        decisions = self.priced_decisions
        margins, cost = self.decision_and_cost(X, budget=budget, unavailable=unavailable, ids=ids, qid=qid)
        return cost + decisions.expected(probabilities(margins, self.link)).min(axis=1)

    @property
    def priced_decisions(self) -> Decisions:
        """What errors cost; an error where they have no prices."""
        if self.decisions is None:
            raise ValueError("this model has no prices of errors; fit CSTCClassifier(error_costs=...) to count them")
        return self.decisions

    def save(self, path: str | PathLike[str], *, trained: Any = None) -> None:
        """Write the model into one file; see `cstc.save`."""
        from .. import save  # by the package's own door: the file stands above this module, which knows nothing of it

        save(self, path, trained=trained)


def _is_nothing(unavailable: Any) -> bool:
    """Whether nothing is said to be down; arrays of names are compared with nothing."""
    return unavailable is None or (isinstance(unavailable, tuple) and not unavailable)


def check_counting(counting: Any) -> None:
    if counting not in COUNTINGS:
        raise ValueError(f"counting is {counting!r}; it must be one of {COUNTINGS}")
