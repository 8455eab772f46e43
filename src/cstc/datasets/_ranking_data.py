"""What a ranking data set is: documents with grades, in whole queries, and what their features cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..costs import CostModel

__all__ = ["RankingData"]


@dataclass(frozen=True, eq=False)
class RankingData:
    """Documents of queries, with grades and prices; unpacks as ``X, y, qid, costs``.

    Attributes
    ----------
    X : ndarray of shape (n_documents, n_features)
    y : int64 ndarray of shape (n_documents,)
        Grades, 0 or more.
    qid : int64 ndarray of shape (n_documents,)
        Query of each document.  The documents of a query stand together.
    costs : CostModel or None
        Price of each column of `X`, by position; None if no prices were given.
    feature_numbers : int64 ndarray of shape (n_features,)
        Number of each column of `X` in the file, where feature 1 is the first.
    feature_names : list of str or None
        Names of the columns of `X`, if the file of prices has them, or the generator gives them.
    comments : list of str or None
        What stood after the ``#`` on the line of each document, if it was asked for.
    """

    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray
    costs: CostModel | None
    feature_numbers: np.ndarray
    feature_names: list[str] | None = None
    comments: list[str] | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y, self.qid, self.costs))
