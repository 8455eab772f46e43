"""What a predictor has done so far, as plain numbers and in Prometheus' text format."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from ..model import Training
from .answer import STATUSES, Answer
from .compiled import CompiledTree, bits
from .drift import Drift
from .histogram import LATENCY_BOUNDS, Histogram, cost_bounds, histogram_samples
from .mixture import CompiledMixture
from .prometheus import family

__all__ = ["Counters"]

LOG_LENGTH = 256
SETS_KEPT = 1024  # of items that were bought together


class Counters:
    """Spend per item, path mix, early stops, calls and failures of the sources, and drift from training.

    Safe to use from many threads.

    Examples
    --------
    >>> from cstc.serving.counters import Counters
    >>> counters = Counters()
    >>> counters.count_call("lab", 1, 0.25, "timeout")
    >>> counters.as_dict()["sources"]["lab"]
    {'calls': 1, 'rows': 1, 'seconds': 0.25, 'not_made': 0, 'failures': {'timeout': 1}}
    """

    def __init__(self, compiled: CompiledTree | CompiledMixture | None = None) -> None:
        self._compiled = compiled
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begin again at zero."""
        with self._lock:
            self._log: deque[tuple] = deque()
            self._statuses = dict.fromkeys(STATUSES, 0)
            self._paths: dict[tuple[int, int | None], int] = {}
            self._items: dict[int, int] = {}
            self._sets: dict[int, int] = {}  # answers by the set of items that they bought, not yet in `_items`
            self._evaluated = 0
            self._spend = 0.0
            self._seconds = 0.0
            compiled = self._compiled
            self._latencies = Histogram(LATENCY_BOUNDS)
            self._costs = Histogram(cost_bounds(compiled.highest_cost if compiled else 0.0))
            self._drift = Drift(compiled.training, compiled.n_terminals) if compiled else Drift(Training(), 0)
            self._sources: dict[str, list[Any]] = {}  # calls, rows, seconds, not made, failures by kind

    def count_answer(self, answer: Answer) -> None:
        """Add an answer."""
        where = (answer.node, answer.terminal)
        if answer._first != (0, 0):  # the second model of a mixture is counted after the first
            node, terminal = answer._first
            where = (
                answer.node + node if answer.node >= 0 else answer.node,
                None if answer.terminal is None else answer.terminal + terminal,
            )
        self._note((answer.status, where, answer._bought, answer.n_evaluated, answer.cost, answer.seconds))

    def count_call(
        self, source: str, n_rows: int, seconds: float | None, failure: str = "", *, made: bool = True
    ) -> None:
        """Add a call of a source; `failure` is its kind, or empty."""
        self._note((source, n_rows, seconds, failure, made))

    def _note(self, entry: tuple) -> None:
        # appending is quick and safe without a lock; the sums are made when someone looks, or when it gets long
        self._log.append(entry)
        if len(self._log) > LOG_LENGTH:
            with self._lock:
                self._sum_up()

    def _sum_up(self) -> None:
        log = self._log
        answers = []
        for _ in range(len(log)):
            entry = log.popleft()
            if len(entry) == 6:
                answers.append(entry)
                self._sum_answer(*entry)
            else:
                self._sum_call(*entry)
        if answers:
            self._spread(answers)

    def _spread(self, answers: list[tuple]) -> None:
        """Histograms and drift, of many answers at a time."""
        statuses, wheres, _, _, costs, seconds = zip(*answers, strict=True)
        self._costs.add(costs)
        self._latencies.add([each for each in seconds if each is not None] if None in seconds else seconds)
        if statuses.count("complete") < len(statuses):
            kept = [k for k, status in enumerate(statuses) if status == "complete"]
            wheres, costs = tuple(wheres[k] for k in kept), tuple(costs[k] for k in kept)
        self._drift.add([terminal for _, terminal in wheres], costs)

    def _sum_answer(
        self, status: str, where: tuple, bought: int, evaluated: int, cost: float, seconds: float | None
    ) -> None:
        self._statuses[status] += 1
        self._paths[where] = self._paths.get(where, 0) + 1
        self._sets[bought] = self._sets.get(bought, 0) + 1
        if len(self._sets) >= SETS_KEPT:
            self._sum_sets()
        self._evaluated += evaluated
        self._spend += cost
        self._seconds += seconds or 0.0

    def _sum_sets(self) -> None:
        for bought, count in self._sets.items():
            for r in bits(bought):
                self._items[r] = self._items.get(r, 0) + count
        self._sets = {}

    def _sum_call(self, source: str, n_rows: int, seconds: float | None, failure: str, made: bool) -> None:
        entry = self._sources.setdefault(source, [0, 0, 0.0, 0, {}])
        if made:
            entry[0] += 1
            entry[1] += n_rows
        else:
            entry[3] += 1
        entry[2] += seconds or 0.0
        if failure:
            entry[4][failure] = entry[4].get(failure, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        """All counters: plain numbers in plain dictionaries."""
        with self._lock:
            self._sum_up()
            self._sum_sets()
            names = self._compiled.item_names if self._compiled else []
            prices = self._compiled.prices if self._compiled else []
            bought = self._items
            return {
                "answers": sum(self._statuses.values()),
                "statuses": dict(self._statuses),
                "early_stops": sum(self._statuses.values()) - self._statuses["complete"],
                "spend": self._spend,
                "seconds": self._seconds,
                "weak_learners_evaluated": self._evaluated,
                "items": {names[r]: {"bought": bought[r], "spend": bought[r] * prices[r]} for r in sorted(bought)},
                "paths": [
                    {"node": node, "terminal": terminal, "answers": count}
                    for (node, terminal), count in sorted(self._paths.items(), key=lambda entry: str(entry[0]))
                ],
                "sources": {
                    name: {
                        "calls": calls,
                        "rows": rows,
                        "seconds": seconds,
                        "not_made": not_made,
                        "failures": dict(failures),
                    }
                    for name, (calls, rows, seconds, not_made, failures) in self._sources.items()
                },
                "latency": self._latencies.as_dict(),
                "cost": self._costs.as_dict(),
                "drift": self._drift.as_dict(),
            }

    def prometheus(self, prefix: str = "cstc") -> str:
        """The counters in Prometheus' text format."""
        counts = self.as_dict()
        sources = counts["sources"]
        families: list[tuple[str, str, list[tuple[dict[str, Any], float]]]] = [
            ("answers_total", "Answers given, by status.", [({"status": s}, n) for s, n in counts["statuses"].items()]),
            (
                "paths_total",
                "Answers given, by the node that predicted and the terminal reached.",
                [
                    ({"node": p["node"], "terminal": "" if p["terminal"] is None else p["terminal"]}, p["answers"])
                    for p in counts["paths"]
                ],
            ),
            (
                "items_bought_total",
                "Purchases of an item.",
                [({"item": i}, v["bought"]) for i, v in counts["items"].items()],
            ),
            ("item_spend_total", "Spend on an item.", [({"item": i}, v["spend"]) for i, v in counts["items"].items()]),
            ("spend_total", "Spend on items and weak learners.", [({}, counts["spend"])]),
            ("weak_learners_total", "Weak learners evaluated.", [({}, counts["weak_learners_evaluated"])]),
            ("answer_seconds_total", "Seconds from call to answer.", [({}, counts["seconds"])]),
            ("source_calls_total", "Calls of a source.", [({"source": n}, s["calls"]) for n, s in sources.items()]),
            (
                "source_rows_total",
                "Rows that a source was called for.",
                [({"source": n}, s["rows"]) for n, s in sources.items()],
            ),
            (
                "source_seconds_total",
                "Seconds spent in a source.",
                [({"source": n}, s["seconds"]) for n, s in sources.items()],
            ),
            (
                "source_calls_not_made_total",
                "Calls that waited for a thread in vain.",
                [({"source": n}, s["not_made"]) for n, s in sources.items()],
            ),
            (
                "source_failures_total",
                "Failed calls of a source, by kind.",
                [({"source": n, "kind": k}, c) for n, s in sources.items() for k, c in s["failures"].items()],
            ),
        ]
        lines = []
        for name, text, samples in families:
            plain = [("", labels, value) for labels, value in samples]
            lines += family(f"{prefix}_{name}", "counter", text, plain)
        latency, cost = histogram_samples(counts["latency"]), histogram_samples(counts["cost"])
        lines += family(f"{prefix}_latency_seconds", "histogram", "Seconds from call to answer.", latency)
        lines += family(f"{prefix}_cost", "histogram", "Spend of an answer.", cost)
        for name, text, value in self._gauges(counts["drift"]):
            if value is not None:
                lines += family(f"{prefix}_{name}", "gauge", text, [("", {}, value)])
        shares = self._drift.training_shares
        if shares is not None:
            text = "Share of the training rows at a terminal."
            found = [("", {"terminal": k}, share) for k, share in enumerate(shares.tolist())]
            lines += family(f"{prefix}_training_path_share", "gauge", text, found)
        return "\n".join(lines) + "\n"

    def _gauges(self, drift: dict[str, Any]) -> list[tuple[str, str, float | None]]:
        return [
            ("training_mean_spend", "Mean spend of a training row.", drift["training_spend"]),
            ("drift_answers", "Latest complete answers, which drift is taken from.", drift["answers"]),
            ("drift_mean_spend", "Their mean spend.", drift["mean_spend"]),
            ("drift_spend_ratio", "Their mean spend, divided by that of training.", drift["spend_ratio"]),
            ("drift_path_distance", "Total variation of their path mix from that of training.", drift["path_distance"]),
        ]
