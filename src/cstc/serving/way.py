"""The way of one row down the tree: where it is, what it evaluates there, and how it came there.

The learners of a node are evaluated in steps: those that route, then those that predict where the row leaves the tree.
A step goes as far as the known features allow, and the row goes on when all of its learners are evaluated.  A row that
cannot go on may turn to another expert; then that one is its last step.

Nothing here buys anything: the session does, and says when to go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add
from typing import Any

from .answer import Event
from .compiled import Classifier, CompiledExpert, CompiledTree, Option, Step
from .values import Values
from .walk.choice import Walk

__all__ = ["Way", "new_events"]


class Way:
    """How far one row has come.

    Attributes
    ----------
    compiled : CompiledTree
        The model that is walked: the one that does without what is lost.
    walk : Walk
        The row among the learners of the current step.
    node : Classifier
        Where the row is.
    path : list of int
        The nodes that it came through.
    terminal : int or None
        The terminal that it has reached.
    step : Step
        The learners that are evaluated now.
    leaving : bool
        Whether they predict; otherwise they route.
    instead : Option or None
        What the row has turned to, since it could not go on.
    is_in_part : bool
        Whether that is an expert that is averaged over all but a part of its features.
    evaluated : int
        Learners of all steps that were taken up, those included that still wait for features.
    margins : list of float or None
        What was predicted at the end; None before.
    events : list of Event
        How gates decided, and what was bought in between.
    """

    __slots__ = (
        *("compiled", "evaluated", "events", "instead", "is_in_part", "leaving", "margins", "node", "path", "step"),
        *("terminal", "walk"),
    )
    node: Classifier
    step: Step
    leaving: bool

    def __init__(self, compiled: CompiledTree, walk: Walk) -> None:
        self.compiled = compiled
        self.walk: Any = walk  # that of compiled code can do more than a `Walk`
        self.path: list[int] = []
        self.terminal: int | None = None
        self.instead: Option | None = None
        self.is_in_part = False
        self.evaluated = 0
        self.margins: list[float] | None = None
        self.events: list[Event] = []

    # -- from step to step -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take up the first step of the root."""
        self._enter(self.compiled.nodes[0])

    def begin_swiftly(self) -> tuple[int, ...]:
        """Stand at the root, where compiled code begins; the features that all learners there look at first."""
        root = self.compiled.nodes[0]
        self.node = root
        self.path.append(0)
        return (root.route or root.leave).first

    def _enter(self, node: Classifier) -> None:
        self.node = node
        self.path.append(node.number)
        if node.route is None:
            self._take_up(node.leave, node.leave.size, leaving=True)
        else:
            self._take_up(node.route, node.route.size, leaving=False)

    def _take_up(self, step: Step, n_new: int, *, leaving: bool) -> None:
        self.step = step
        self.leaving = leaving
        self.walk.begin(step.learners)
        self.evaluated += n_new

    def decide(self) -> None:
        """All learners of the step are evaluated: predict, or choose the way and take up the next step."""
        node = self.node
        if self.leaving:
            by = node if self.instead is None else self.instead.expert
            if self.terminal is None:
                self.terminal = -1 - node.upper
            self.margins = list(map(add, self.walk.sums(by.weights), by.intercepts))
            return
        margin = self.walk.sums(node.route_weights)[0]
        child = node.upper if margin > node.threshold else node.lower
        self.events.append(("gate", node.number, margin, node.threshold, child))
        if child >= 0:
            self._enter(self.compiled.nodes[child])
        else:
            self.terminal = -1 - child
            self._take_up(node.leave, node.leave.size, leaving=True)

    def turn_to(self, option: Option, n_new: int) -> None:
        """Leave the tree here: the row is answered by another expert, of which so many learners are new."""
        self.evaluated = self.evaluated_so_far()
        self.instead, self.is_in_part = option, option.part is not None
        if self.is_in_part:
            self.walk.begin(self.compiled.nothing)
            self.evaluated += n_new
        else:
            self._take_up(option.expert.step, n_new, leaving=True)
            self.walk.advance()  # past all that is evaluated already

    def look_where(self) -> None:
        """Compiled code has gone down the tree by itself: find out where it is now."""
        walk = self.walk
        self.node = self.compiled.nodes[walk.node]
        self.evaluated = walk.evaluated
        if walk.terminal >= 0:
            self.terminal = walk.terminal

    # -- what is needed ----------------------------------------------------------------------------------------

    def missing_on_branches(self, known: Mapping[int, Any]) -> tuple[int, ...]:
        """Send the row through the learners of this step as far as it gets; the features that are missing."""
        step = self.step
        if step.first and self.walk.pending == step.size and known.keys().isdisjoint(step.first):
            return step.first  # nothing of it is known: no learner gets past its root
        return tuple(self.walk.advance())

    @property
    def node_step(self) -> Step:
        """The step of the node, whatever the row has turned to."""
        node = self.node
        return node.leave if node.route is None or self.terminal is not None else node.route

    # -- what is evaluated -------------------------------------------------------------------------------------

    def evaluated_so_far(self) -> int:
        """The learners that are evaluated, without those that wait."""
        return self.evaluated - (0 if self.margins is not None else self.walk.pending)

    def n_new(self, expert: CompiledExpert, values: Values) -> int:
        """How many learners of an expert are still to be paid; nobody counts where they cost nothing."""
        compiled, step = self.compiled, expert.step
        if not compiled.evaluation:
            return step.size
        own = self.node_step
        begun = [own]
        if self.instead is not None:
            begun.append(self.instead.expert.step)
        elif self.walk.pending == own.size:
            begun = []
        gates = self.path if own is self.node.leave else self.path[:-1]
        return compiled.n_new(step, gates, begun, values.numbers())

    def node_of(self, expert: CompiledExpert | None) -> int:
        """The node whose prediction an answer is called: that of its expert, if the row came through it."""
        return self.node.number if expert is None or expert.number not in self.path else expert.number

    # -- from the root once more -------------------------------------------------------------------------------

    def change(self, compiled: CompiledTree, walk: Walk) -> None:
        """Another model, on another walk."""
        self.compiled, self.walk = compiled, walk

    def back_to_the_root(self) -> list[Event]:
        """Forget where the row was; what happened on its way there."""
        before, self.events = self.events, []
        self.path, self.evaluated = [], 0
        self.instead, self.is_in_part, self.terminal = None, False, None
        return before


def new_events(before: list[Event], events: list[Event]) -> list[Event]:
    """What happened on a second way down; gates that the row passed in the same way before are left out."""
    passed = [(event[1], event[-1]) for event in before if event[0] == "gate"]
    new, n_same = [], 0
    for event in events:
        if event[0] == "gate" and n_same < len(passed) and (event[1], event[-1]) == passed[n_same]:
            n_same += 1
        else:
            new.append(event)
    return new
