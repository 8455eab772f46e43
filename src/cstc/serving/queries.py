"""Whole queries on demand: all documents of a query go node by node, and buy what their next step needs.

At a node, a document is a session on the expert, then one on the gate, with gap and place among what is known; where
documents need different features, one on the splits comes first and tells its group.  What an earlier session of a
document has bought, put aside or lost is the same in the next one, so that no source is called twice and no item is
paid twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..model.qids import query_numbers
from ..model.queries import QueryTree, made_columns, splits_of
from .answer import Answer
from .compiled import compile_tree
from .session import Session

__all__ = ["QueryServing", "refuse_rows"]

ENDS = ("deadline", "stopped")  # statuses after which no further step begins


def refuse_rows(instead: str) -> None:
    """For all that is about one row."""
    raise ValueError(f"this model looks at whole queries, and one row is answered here; {instead}")


class QueryServing:
    """A `QueryTree`, prepared for serving.

    Attributes
    ----------
    compiled : CompiledTree
        What names, items and prices are looked up in; it knows no name of a column that is made of scores.
    """

    def __init__(self, model: QueryTree) -> None:
        self.model = model
        n = model.n_features
        self.compiled = compile_tree(model.charged_tree, n)
        self._steps = {
            node: (compile_tree(expert, n), None if gate is None else compile_tree(gate, n))
            for node, (expert, gate) in model.wide_steps.items()
        }
        self._splits = None if model.wide_splits is None else compile_tree(model.wide_splits, n)
        self._split_nodes = np.flatnonzero(splits_of(model.shape)).tolist()

    def answers(
        self,
        rows: list[Any],
        qid: Any,
        known: list[Any],
        drive: Callable[[list[Session], list[Any]], None],
        *,
        unavailable: Iterable[str],
        **options: Any,
    ) -> list[Answer]:
        """Answers for rows, each with its query and what is known of it.

        `drive` takes sessions and their rows, and brings the sessions to their ends; `options` are those of a session.
        """
        n = len(rows)
        down = self.model.columns_named(unavailable).tolist()  # the trees of single steps know no sources
        query, scores = query_numbers(qid, n, rows_of="the call"), np.full(n, self.model.constant[0])
        trails: list[list[tuple[int, Session]]] = [[] for _ in range(n)]
        ends = [-1] * n

        def step(
            compiled: Any, node: int, here: list[int], made: np.ndarray | None = None
        ) -> list[tuple[int, Session]]:
            """One session for each row that is here; those that can go on."""
            sessions, seen = [], self.model.made_at(node).tolist()
            for row in here:
                before = trails[row][-1][1] if trails[row] else None
                own = None if made is None else dict(zip(seen, made[row].tolist(), strict=True))
                own_known = known[row] if before is None else None  # later sessions have it from the one before
                chained: dict[str, Any] = {"_after": before, "_made": own, "_down": down, "_level": 0}
                sessions.append(Session(compiled, known=own_known, **chained, **options))
                trails[row].append((node, sessions[-1]))
            drive(sessions, [rows[row] for row in here])
            return [pair for pair in zip(here, sessions, strict=True) if pair[1].answer().status not in ENDS]

        groups: dict[int, list[int]] = {0: list(range(n))}
        if self._splits is not None:
            told = step(self._splits, 0, groups[0])
            groups = {}
            for row, session in told:
                if (group := session.reached) is not None:
                    groups.setdefault(group, []).append(row)
        for level in range(max(map(len, self.model.chains))):
            # 1. All who are there have their scores.
            nodes = {group: self.model.chains[group][level] for group, here in groups.items() if here}
            for group, node in nodes.items():
                scored = [row for row, _ in step(self._steps[node][0], node, groups[group])]
                # whom a deadline stops keeps the score of the node before; without one, what is known has to do
                for row in scored if level else groups[group]:
                    said = trails[row][-1][1].answer()
                    scores[row], ends[row] = said.margins[0], node if said.node >= 0 else -1
                groups[group] = scored
            # 2. Those decide who goes on.
            made, going = made_columns(scores, query, self.model.at), {}
            for group, node in nodes.items():
                if (gate := self._steps[node][1]) is not None and groups[group]:
                    asked = step(gate, node, groups[group], made)
                    going[group] = [row for row, session in asked if session.answer().terminal == 1]
            groups = going
            if not groups:
                break
        return [self._together(trails[row], float(scores[row]), ends[row]) for row in range(n)]

    def _together(self, trail: list[tuple[int, Session]], score: float, node: int) -> Answer:
        """One answer of all sessions of a row."""
        parts = [(at, session.answer()) for at, session in trail]
        incomplete = [answer for _, answer in parts if answer.status != "complete"]
        # what failed first is out in all later sessions, which say no more than that
        last = next((answer for answer in incomplete if answer.status in ENDS), incomplete[0] if incomplete else None)
        bought, evaluated, events = 0, 0, []
        warned: dict[str, None] = {}
        for at, answer in parts:
            bought, evaluated = bought | answer._bought, evaluated + answer.n_evaluated
            warned |= dict.fromkeys(answer.warnings)
            is_split = self._splits is not None and answer is parts[0][1]
            events += [self._at_split(event) if is_split else self._at_node(event, at) for event in answer._events]
        if last is None:  # a learner that two nodes share is evaluated once
            evaluated = int(self.model.terminal_learners[self.model.terminal_of[node]].sum())
        compiled = self.compiled
        return Answer(
            score,
            None,
            compiled.price_of(bought) + compiled.evaluation * evaluated,
            "complete" if last is None else last.status,
            "" if last is None else last.reason,
            node,
            int(self.model.terminal_of[node]) if last is None else None,
            self._path(parts),
            [score],
            evaluated,
            error=None if last is None else last.error,
            _compiled=compiled,
            _bought=bought,
            _events=events,
            basis="" if last is None else last.basis,
            expected_loss=0.0 if last is None else None,
            warnings=tuple(warned),
            _whole_query=True,
        )

    def _at_node(self, event: Any, node: int) -> Any:
        """An event of a session on one step, at its node."""
        if event[0] != "gate":
            return (event[0], node, *event[2:])
        _, _, margin, threshold, child = event
        shape = self.model.shape
        return "gate", node, margin, threshold, int(shape.upper[node] if child >= 0 else shape.lower[node])

    def _path(self, parts: list[tuple[int, Answer]]) -> list[int]:
        """All nodes that a row came to."""
        node, answer = parts[-1]
        if self._splits is not None and len(parts) == 1:  # it did not come to its group
            return [self._split_nodes[split] for split in answer.path]
        return np.flatnonzero(self.model.shape.node_paths[node]).tolist()

    def _at_split(self, event: Any) -> Any:
        """An event of the session that tells the group."""
        splits = self._split_nodes
        if event[0] != "gate":
            return (event[0], splits[event[1]], *event[2:])
        _, split, margin, threshold, child = event
        to = splits[child] if child >= 0 else self.model.chains[-1 - child][0]
        return "gate", splits[split], margin, threshold, to
