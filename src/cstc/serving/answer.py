"""What a prediction on demand returns: the answer, what it cost, and the trail that says why."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from .compiled import CompiledTree
from .sources.extractors import describe

if TYPE_CHECKING:
    from .explain import Explanation

__all__ = [
    "STATUSES",
    "Answer",
    "BudgetReached",
    "DeadlineReached",
    "Event",
    "IncompleteAnswer",
    "SourceFailed",
]

#: Why an answer is what it is; all but the first are early stops.
STATUSES = ("complete", "budget", "deadline", "failed", "unavailable", "stopped")


class IncompleteAnswer(Exception):
    """Strict mode: the path was not completed.

    Attributes
    ----------
    answer : Answer
        What would have been returned otherwise; of many rows, the first that is not complete.
    answers : list of Answer
        The answers of all rows, in their order.
    """

    def __init__(self, answer: Answer, answers: list[Answer] | None = None) -> None:
        self.answer = answer
        self.answers = [answer] if answers is None else answers
        n_early = sum(not each.complete for each in self.answers)
        further = f" ({n_early} of {len(self.answers)} rows are not complete)" if len(self.answers) > 1 else ""
        super().__init__(f"{answer.status}: {answer.reason}{further}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.answer, self.answers)


class BudgetReached(IncompleteAnswer):
    """Strict mode: what the path needs next does not fit into the budget."""


class DeadlineReached(IncompleteAnswer):
    """Strict mode: the deadline came before the path was complete."""


class SourceFailed(IncompleteAnswer):
    """Strict mode: a source failed, timed out, returned nonsense, or there is none for a feature."""


_ERRORS = {
    "budget": BudgetReached,
    "deadline": DeadlineReached,
    "failed": SourceFailed,
    "unavailable": SourceFailed,
}


#: ``("gate", node, margin, threshold, child)``: the row was weighed at a node and went on, or stopped there.
#: ``("bought", node, wave, features, items, source, seconds, outcome)``: a source was asked, or a value that had come
#: along was used; `items`, as bits, are those that were not paid before.
Event = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """What is left of the model in an answer that was pickled or copied."""

    items: dict[str, float]
    trail: list[dict[str, Any]]
    classes: list | None


@dataclass(eq=False, slots=True)
class Answer:
    """The answer for one row.

    Attributes
    ----------
    value : float, or a class
        None where errors have prices and the row is referred to a person.
    probabilities : list of float or None
        In the order of the model's classes; None for regression and ranking.
    cost : float
        Items bought for this row, each once, and the weak learners evaluated.
    status : {"complete", "budget", "deadline", "failed", "unavailable", "stopped"}
        Whether the row reached the end of its path, or why not.
    reason : str
        The status in words; empty if complete.
    node : int
        The node whose prediction this is; -1 for the constant prediction before the root.
    terminal : int or None
        The terminal that the row reached, as `apply` numbers them; None if it stopped early.
    path : list of int
        The nodes that the row came through.
    margins : list of float
        As `decision_function` gives them.
    basis : str
        What the answer rests on: "5 of 9 features: heavy metals failed"; empty if complete.
    expected_loss : float or None
        What that costs on average, in the loss that the model was trained with: 0 if complete, None if it is not known.
    seconds : float or None
        From the call to the answer; None in a session that the caller fetches for.
    error : BaseException or None
        What the failed source raised.
    warnings : tuple of str
        What was taken as missing, though training did not see it so: see `cstc.UnseenValueWarning`.
    taken : str
        Which of the two models of a `cstc.Mixture` answered, and why; empty for any other model.  `node`, `terminal`
        and `path` are those of that model.
    """

    value: Any
    probabilities: list[float] | None
    cost: float
    status: str
    reason: str
    node: int
    terminal: int | None
    path: list[int]
    margins: list[float]
    n_evaluated: int
    seconds: float | None = None
    error: BaseException | None = field(default=None, repr=False)
    _compiled: CompiledTree | None = field(default=None, repr=False)
    _bought: int = field(default=0, repr=False)
    _events: list[Event] = field(default_factory=list, repr=False)
    _record: Record | None = field(default=None, repr=False)
    basis: str = ""
    expected_loss: float | None = 0.0
    warnings: tuple[str, ...] = ()
    _known: dict[int, Any] | None = field(default=None, repr=False)  # all values that the answer could rest on
    _paid: int = field(default=0, repr=False)  # items, those too that were paid before
    taken: str = ""
    _first: tuple[int, int] = field(default=(0, 0), repr=False)  # node and terminal of its model in a mixture
    _whole_query: bool = field(default=False, repr=False)  # answered together with the others of its query

    @property
    def complete(self) -> bool:
        """Whether the row reached the end of its path."""
        return self.status == "complete"

    @property
    def items(self) -> dict[str, float]:
        """The items bought for this row, with their prices."""
        if self._record is not None:
            return dict(self._record.items)
        return self._compiled.item_prices(self._bought) if self._compiled else {}

    @property
    def trail(self) -> list[dict[str, Any]]:
        """Why each item was bought, in order.

        An entry ``"bought"`` names the node that needed it, the margin and the threshold of the gate that sent the
        row there (None at the root), the features, the items with their prices, the source, its latency in seconds
        and the outcome.  An entry ``"gate"`` says how a node decided.
        """
        if self._record is not None:
            return [dict(step) for step in self._record.trail]
        if self._compiled is None:
            return []
        names = self._compiled.feature_names
        trail: list[dict[str, Any]] = []
        margin = threshold = None
        for event in self._events:
            if event[0] == "gate":
                _, node, margin, threshold, child = event
                to = f"node {child}" if child >= 0 else f"terminal {-1 - child}"
                trail.append({"event": "gate", "node": node, "margin": margin, "threshold": threshold, "to": to})
                continue
            _, node, wave, features, items, source, seconds, outcome = event
            trail.append(
                {
                    "event": "bought",
                    "node": node,
                    "wave": wave,
                    "margin": margin,
                    "threshold": threshold,
                    "features": [names[f] for f in features],
                    "items": self._compiled.item_prices(items),
                    "price": self._compiled.price_of(items),
                    "source": source,
                    "latency": seconds,
                    "outcome": outcome,
                }
            )
        return trail

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        probabilities: Any = self.probabilities
        if probabilities is not None and (classes := self._classes()):
            probabilities = dict(zip(map(str, classes), probabilities, strict=True))
        taken = {"taken": self.taken} if self.taken else {}
        return taken | {
            "value": self.value,
            "probabilities": probabilities,
            "cost": self.cost,
            "status": self.status,
            "reason": self.reason,
            "basis": self.basis,
            "expected_loss": self.expected_loss,
            "node": self.node,
            "terminal": self.terminal,
            "path": self.path,
            "margins": self.margins,
            "items": self.items,
            "seconds": self.seconds,
            "warnings": list(self.warnings),
            "trail": self.trail,
        }

    def to_json(self, **options: Any) -> str:
        """`to_dict` as JSON, for an audit; `options` go to `json.dumps`."""
        return json.dumps(self.to_dict(), **({"default": str} | options))

    def explain(self) -> Explanation:
        """Step by step, what was bought and why, what it changed, why it stopped and what would be bought next.

        Not of an answer that was pickled or copied: it has neither the model nor the values any more.
        """
        if self._whole_query:
            raise ValueError(
                "this answer is that of a document among the others of its query, and is not explained by itself; its "
                "trail tells what was bought and how gates decided"
            )
        from .explain.of_answer import explain_answer

        return explain_answer(self)

    def raise_if_incomplete(self, answers: list[Answer] | None = None) -> None:
        """Strict mode: raise what the status says; `answers` are those of all rows, if there are others."""
        if self.status != "complete":
            raise _ERRORS.get(self.status, IncompleteAnswer)(self, answers) from self.error

    def _classes(self) -> list | None:
        known = self._record or self._compiled
        return None if known is None else known.classes

    # An answer holds the compiled model, which can neither be pickled nor should travel with every answer.

    def __getstate__(self) -> dict[str, Any]:
        state = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        record = self._record or Record(self.items, self.trail, self._classes())
        left_behind: dict[str, Any] = {"_compiled": None, "_known": None, "_events": []}
        return state | left_behind | {"_record": record, "error": _portable(self.error)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def _portable(error: BaseException | None) -> BaseException | None:
    """An exception that survives pickling: the same, or its text where it holds a connection or the like."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(describe(error))
    return error
