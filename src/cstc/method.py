"""What every method is given, and what it returns: the seam between the estimators and `paper`, `experts`."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from .boosting import Boosting
from .capacity import FEW, Capacity
from .costs import ResolvedCosts
from .engines import engine_on
from .losses import Loss, stakes_of
from .model import Decisions, Schema
from .progress import QUIET, Progress
from .rows import Rows

__all__ = ["CandidateRow", "Method", "OutOfFold", "Preview", "Problem", "Ranking", "Trained"]


@dataclass(frozen=True)
class Ranking:
    """What is asked of a ranking.

    Attributes
    ----------
    at : int
        Places that count: it is judged by NDCG@`at`.
    objective : {"auto", "regression", "lambdarank"}
        What experts are boosted for.
    """

    at: int
    objective: str


@dataclass(frozen=True, eq=False)
class Problem:
    """All that a method learns from.

    Attributes
    ----------
    rows : Rows
        Checked and encoded; targets in the units of the user.
    validation : Rows or None
        Rows that judge, if the user gave any.
    loss : Loss
    costs : ResolvedCosts
    schema : Schema
    cost_weight : float
        The paper's lambda: how much risk one unit of cost is worth.
    weak_learners : {"boosted", "identity"}
    boosting : Boosting
        How trees are boosted, if they are.
    random_state : int
    progress : Progress
        Is told what is going on, and how much of it is done.
    shared : dict
        What fits to the same rows with other cost weights can use again; a method keeps there what it likes.
    decisions : Decisions or None
        What errors cost, where that is weighed instead of the loss.
    whole_queries : int or None
        Gates see the places of documents, by the so many best of their query; None: they see rows alone.
    ranking : Ranking or None
        Where rows are documents that are ranked within their queries.
    start : object
        `Trained.solution` of a fit with a cost weight that is a little larger, if there is one.
    """

    rows: Rows
    validation: Rows | None
    loss: Loss
    costs: ResolvedCosts
    schema: Schema
    cost_weight: float
    weak_learners: str
    boosting: Boosting
    random_state: int = 0
    progress: Progress = QUIET
    shared: dict[str, Any] = field(default_factory=dict)
    decisions: Decisions | None = None
    whole_queries: int | None = None
    ranking: Ranking | None = None
    start: Any = None

    @property
    def stakes(self) -> Loss:
        """What is weighed against cost: the loss, or what errors cost."""
        return stakes_of(self.loss, self.decisions)

    def report(self, text: str) -> None:
        """Say what is going on."""
        self.progress.say(text)


class CandidateRow(NamedTuple):
    """One of the models that a method had to choose from."""

    name: str
    expected_loss: float  # risk + cost_weight * cost, in the units of the user; NaN where it was not grown
    mean_cost: float  # NaN where it was not grown
    verdict: str  # "taken", or why not


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """What a model says of training rows that did not teach what answers them.

    Attributes
    ----------
    rows : int ndarray of shape (m,)
        Numbers of training rows, rising; those of weight 0 are not counted.
    margins : float32 ndarray of shape (m, n_outputs)
        In the units of the user.  Single precision: a frontier keeps them for every model.
    """

    rows: np.ndarray
    margins: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Text that JSON keeps to the last bit."""
        rows, margins = self.rows.astype("<i4"), self.margins.astype("<f4")
        return {
            "rows": b64encode(rows.tobytes()).decode(),
            "margins": b64encode(margins.tobytes()).decode(),
            "n_outputs": margins.shape[1],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> OutOfFold:
        rows = np.frombuffer(b64decode(document["rows"]), dtype="<i4").astype(np.intp)
        margins = np.frombuffer(b64decode(document["margins"]), dtype="<f4").astype(np.float32)
        return cls(rows, margins.reshape(len(rows), document["n_outputs"]))


@dataclass(frozen=True, eq=False)
class Trained:
    """A fitted tree, and how it came about.

    Attributes
    ----------
    model : FittedTree, Mixture or QueryTree
        A method trains trees; of two of them the estimator makes a mixture.
    loss_history : list of ndarray
        For each stage of training, the loss after every step.
    converged : bool
    reached : ndarray of shape (n_terminals,)
        Share of the training rows at each terminal: soft, or out of fold for experts.
    solution : object or None
        Where a fit with another cost weight can start.
    candidates : list of CandidateRow
    out_of_fold : OutOfFold or None
        What the model says of training rows that did not teach it; None where the method is not cross-fitted.
    objective : {"regression", "lambdarank"}
        What a ranking was boosted for.
    """

    model: Any
    loss_history: list[np.ndarray]
    converged: bool
    reached: np.ndarray
    solution: Any = None
    candidates: Sequence[CandidateRow] = ()
    out_of_fold: OutOfFold | None = None
    objective: str = "regression"


@dataclass(frozen=True, eq=False)
class Preview:
    """A model that is not built yet: what rows would pay, and the way to it.

    Attributes
    ----------
    rows : Rows
        Rows that did not teach what sends them their way: training rows out of fold, or rows that are held out.
    costs : ndarray of shape (n,)
        What each of them pays.
    build : callable
        Returns `Trained`.
    """

    rows: Rows
    costs: np.ndarray
    build: Callable[[], Trained]


class Method(BaseEstimator):
    """A way from rows to a fitted tree, with parameters of its own.

    A method is a parameter of an estimator and is nested there as scikit-learn nests estimators: `clone`, `get_params`
    and ``set_params(method__name=value)`` work.
    """

    #: What it can be built on.
    takes: tuple[str, ...] = ("boosted", "identity")
    #: Whether `fit` can use validation rows that the user has.
    uses_validation = True
    #: Whether it can weigh errors in money.
    weighs_errors = False
    #: Whether it can boost for the order of documents within queries.
    boosts_order = False
    #: Whether it has work for workers (`cluster`).
    uses_workers = False
    #: Whether its gates can see whole queries.
    sees_queries = False
    #: Of more rows than this, a fit reads some; None: all of them.
    rows_per_fit: int | None = None

    def check(self) -> None:
        """Raise ValueError for a parameter that cannot be."""

    def capacity(self, n_rows: int) -> Capacity:
        """What is grown on so many rows, where the user says nothing."""
        return FEW

    def engine_on(self, device: str) -> str:
        """What grows ensembles there."""
        return engine_on(device)

    def train(self, problem: Problem) -> Trained:
        """Fit a tree of classifiers."""
        raise NotImplementedError

    def preview(self, problem: Problem) -> Preview:
        """What `train` would find, with as little work as tells its costs; nothing that is shared is done twice."""
        raise NotImplementedError

    def n_ensembles(self, shared: dict[str, Any]) -> int:
        """Boosted ensembles in what was shared."""
        return 0

    # -- checks that several methods need ----------------------------------------------------------------------

    def _check_numbers(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, Real) or not np.isfinite(float(value)) or value < 0:
                raise ValueError(f"{name} is {value!r}; it must be a finite number, 0 or more")

    def _check_counts(self, *names: str, least: int = 1, or_none: bool = False) -> None:
        for name in names:
            value = getattr(self, name)
            if or_none and value is None:
                continue
            if not isinstance(value, Integral) or value < least:
                none = "None or " if or_none else ""
                raise ValueError(f"{name} is {value!r}; it must be {none}a whole number, {least} or more")

    def _check_choice(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"{name} is {value!r}; it must be one of {allowed}")
