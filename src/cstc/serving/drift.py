"""How far the rows that are served have drifted from those of training: in what they pay, and in where they end.

Only answers that completed their path are looked at, the last few thousand of them: an early stop is somebody's budget
or a source that failed, and is counted elsewhere.  Features that callers bring along and items that they have paid
make answers cheaper than in training; that is drift too, of another kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..model import Training

__all__ = ["Drift"]

WINDOW = 5000  # answers, and a few more; between one and two windows are looked at


class _Window:
    """Some answers: how many, what they paid, and where they ended."""

    __slots__ = ("ends", "n", "spend")

    def __init__(self, n_terminals: int) -> None:
        self.n = 0
        self.spend = 0.0
        self.ends = np.zeros(n_terminals, dtype=np.int64)


class Drift:
    """What answers pay and where they end, against training.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.model import Training
    >>> from cstc.serving.drift import Drift
    >>> drift = Drift(Training(mean_cost=10.0, reached=np.array([0.5, 0.5])), 2)
    >>> drift.add([0, 1, 1, 1], [5.0, 20.0, 20.0, 15.0])
    >>> drift.as_dict()
    {'answers': 4, 'mean_spend': 15.0, 'training_spend': 10.0, 'spend_ratio': 1.5, 'path_distance': 0.25}
    """

    def __init__(self, training: Training, n_terminals: int) -> None:
        self._training_spend = training.mean_cost
        self.training_shares = training.reached
        self._n_terminals = n_terminals
        self._now, self._before = _Window(n_terminals), _Window(n_terminals)

    def add(self, terminals: Sequence[int], costs: Sequence[float]) -> None:
        """Answers that completed their paths."""
        window = self._now
        window.n += len(terminals)
        window.spend += sum(costs)
        window.ends += np.bincount(np.array(terminals, dtype=np.intp), minlength=self._n_terminals)
        if window.n >= WINDOW:
            self._now, self._before = _Window(self._n_terminals), window

    def as_dict(self) -> dict[str, Any]:
        """What was found; None where training, or the answers, say nothing.

        The ratio is that of the mean spend to training's.  The distance of the path mix is the total variation, from
        0 to 1: the share of answers that would have to end elsewhere for the mix to be that of training.
        """
        before, now = self._before, self._now
        n = before.n + now.n
        spend = (before.spend + now.spend) / n if n else None
        ratio = spend / self._training_spend if spend is not None and self._training_spend else None
        distance = None
        if n and self.training_shares is not None:
            distance = float(np.abs((before.ends + now.ends) / n - self.training_shares).sum() / 2)
        return {
            "answers": n,
            "mean_spend": spend,
            "training_spend": self._training_spend,
            "spend_ratio": ratio,
            "path_distance": distance,
        }
