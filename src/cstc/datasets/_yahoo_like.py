"""Synthetic web search with Yahoo's prices: documents of several kinds, each with expensive features of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from ..costs import CostModel
from ._ranking_data import RankingData

__all__ = ["YahooLikeTruth", "make_yahoo_like"]

#: Share of the grades 0 to 4.
GRADE_SHARES = (0.26, 0.36, 0.28, 0.08, 0.02)
#: How frequent documents of each type are, how relevant on the whole, and how much their own features tell.
TYPE_SHARES = (0.24, 0.20, 0.18, 0.15, 0.13, 0.10)
TYPE_LEVELS = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)
TYPE_STRENGTHS = (0.5, 0.7, 0.9, 1.0, 1.1, 1.2)
N_TYPES = len(TYPE_SHARES)
#: The relevance that only features of a type show is a sum of so many parts.
N_PARTS = 4
#: Weights of what all types have in common, and the share that no feature shows.
QUERY_WEIGHT, MATCH_WEIGHT, AUTHORITY_WEIGHT, UNSEEN = 0.4, 0.5, 0.6, 0.7
#: So many features without information vary together.
BLOCK = 8
#: First column of each kind in the matrix of hidden factors; blocks of noise come last.
CUE, PART, WHOLE = 0, N_TYPES, N_TYPES + N_TYPES * N_PARTS
QUERY, MATCH, AUTHORITY, NOISE = range(WHOLE + N_TYPES, WHOLE + N_TYPES + 4)


@dataclass(frozen=True)
class _Family:
    """Features of one price and kind.  `noise` is their standard deviation around what they show."""

    kind: Literal["cue", "match", "query", "part", "whole", "authority", "echo", "noise"]
    price: float
    count: int
    noise: float


#: Families in the order of price.  Kinds: "cue", one type against the others; "match", how well a document
#: fits its query, on which every type depends; "query", the same for all documents of a query; "part", one part of
#: a type's own relevance; "whole", all its parts together; "authority", on which every type depends; "echo", a
#: noisy copy of a feature that costs no more; "noise", nothing.  Of cues, parts and wholes, `count` goes by type
#: (and by part).
FAMILIES = (
    _Family("cue", 1, 2, 0.6),
    _Family("match", 1, 20, 2.0),
    _Family("query", 1, 8, 0.8),
    _Family("echo", 1, 27, 0.7),
    _Family("noise", 1, 56, 1.0),
    _Family("cue", 5, 1, 0.3),
    _Family("match", 5, 6, 1.2),
    _Family("query", 5, 3, 0.3),
    _Family("echo", 5, 8, 0.5),
    _Family("noise", 5, 8, 1.0),
    _Family("part", 20, 2, 1.3),
    _Family("match", 20, 6, 0.9),
    _Family("echo", 20, 57, 0.7),
    _Family("noise", 20, 80, 1.0),
    _Family("part", 50, 1, 0.3),
    _Family("echo", 50, 45, 0.7),
    _Family("noise", 50, 56, 1.0),
    _Family("whole", 100, 1, 0.8),
    _Family("echo", 100, 6, 0.5),
    _Family("noise", 100, 4, 1.0),
    _Family("whole", 150, 1, 0.5),
    _Family("echo", 150, 18, 0.5),
    _Family("noise", 150, 8, 1.0),
    _Family("authority", 200, 1, 0.2),
)


@dataclass(frozen=True, eq=False)
class YahooLikeTruth:
    """What a learner does not see of `make_yahoo_like`: the types, and what each column is for.

    Attributes
    ----------
    document_type : int64 ndarray of shape (n_documents,)
        Type of each document, from 0, whose documents are the least relevant, to 5.
    relevance : ndarray of shape (n_documents,)
        The number that was cut into grades.
    kind : list of str
        Kind of each column: cue, match, query, part, whole, authority, echo or noise.
    feature_type : int64 ndarray of shape (519,)
        Type whose relevance (part, whole) or presence (cue) a column shows; -1 for all other columns.
    """

    document_type: np.ndarray
    relevance: np.ndarray
    kind: list[str]
    feature_type: np.ndarray

    def own_features(self, document_type: int) -> np.ndarray:
        """Columns with the parts of the relevance that only documents of this type depend on."""
        return np.flatnonzero((np.array(self.kind) == "part") & (self.feature_type == document_type))


@overload
def make_yahoo_like(
    n_queries: int, *, docs_per_query: int = ..., random_state: Any = ..., return_truth: Literal[False] = ...
) -> RankingData: ...
@overload
def make_yahoo_like(
    n_queries: int, *, docs_per_query: int = ..., random_state: Any = ..., return_truth: Literal[True]
) -> tuple[RankingData, YahooLikeTruth]: ...


def make_yahoo_like(
    n_queries: int,
    *,
    docs_per_query: int = 24,
    random_state: int | np.random.Generator | None = None,
    return_truth: bool = False,
) -> RankingData | tuple[RankingData, YahooLikeTruth]:
    """Draw a synthetic web search set with the prices of Yahoo! LTRC, in which documents need different features.

    The data are invented; only the prices are Yahoo's.  As in set 1 of the Yahoo! Learning to Rank Challenge there
    are 519 features, in the order of their price: 123 at 1, 31 at 5, 191 at 20, 125 at 50, 16 at 100, 32
    at 150 and one at 200, together 16,948.  Figures on these data say nothing about figures on Yahoo's.

    A document has one of six hidden types, which are relevant to different degrees.  How relevant it is also depends
    on its query, its match with the query, its authority, and four parts that belong to its type:

    - Features of price 1 and 5 tell the type well, and match and query faintly.  20 buys the match more clearly.
    - Each type has features of its own for its four parts: eight faint ones of 20, four clear ones of 50, and two for
      all parts together, of 100 and 150.  In documents of other types they have the same distribution and mean
      nothing.  So a document needs the few expensive features of its type, and a model for all documents at once those
      of six types.  The higher a type, the more depends on them.
    - The one feature of 200 shows authority, for all types.
    - Most other features are noisy copies of those that cost no more, or noise in correlated blocks.

    Parameters
    ----------
    n_queries : int
    docs_per_query : int, default=24
        Mean number of documents of a query; it varies between half and one and a half of that.
    random_state : int, Generator or None, default=None
        Draws also how parts weigh and which features are copied.  Training and test data should therefore be two
        parts of one draw, split by query.
    return_truth : bool, default=False
        Whether to return, too, what is hidden from a learner.

    Returns
    -------
    data : RankingData
        Unpacks as ``X, y, qid, costs``.  Features are in [0, 1]; grades go from 0 to 4, about a quarter 0 and
        2 of 100 the highest; queries have the numbers 1 to `n_queries`.
    truth : YahooLikeTruth
        Only with ``return_truth=True``.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.datasets import make_yahoo_like
    >>> X, y, qid, costs = make_yahoo_like(100, random_state=0)
    >>> X.shape[1], len(np.unique(qid)), sum(costs.prices)
    (519, 100, 16948.0)
    >>> train = qid <= 70  # whole queries
    >>> bool(0.6 < train.mean() < 0.8)
    True
    """
    if not all(isinstance(number, int | np.integer) and number >= 1 for number in (n_queries, docs_per_query)):
        raise ValueError(
            f"n_queries is {n_queries!r}, docs_per_query {docs_per_query!r}; both should be whole numbers, 1 or more"
        )
    rng = np.random.default_rng(random_state)
    part_weights = rng.dirichlet(np.full(N_PARTS, 4.0), size=N_TYPES)
    part_weights /= np.linalg.norm(part_weights, axis=1, keepdims=True)
    columns = _columns(rng)

    sizes = rng.integers(-(-docs_per_query // 2), docs_per_query + docs_per_query // 2, size=n_queries, endpoint=True)
    query = np.repeat(np.arange(n_queries), sizes)
    mixture = rng.dirichlet(3.0 * N_TYPES * np.array(TYPE_SHARES), size=n_queries)
    document_type = _draw_types(rng, mixture[query])
    factors = rng.standard_normal((len(query), max(column.factor for column in columns) + 1))
    factors[:, CUE:PART] = np.where(document_type[:, None] == np.arange(N_TYPES), 1.0, -1.0)
    parts = factors[:, PART:WHOLE].reshape(-1, N_TYPES, N_PARTS)
    factors[:, WHOLE:QUERY] = (parts * part_weights).sum(axis=2)
    factors[:, QUERY] = rng.standard_normal(n_queries)[query]
    relevance = (
        np.array(TYPE_LEVELS)[document_type]
        + QUERY_WEIGHT * factors[:, QUERY]
        + MATCH_WEIGHT * factors[:, MATCH]
        + AUTHORITY_WEIGHT * factors[:, AUTHORITY]
        + np.array(TYPE_STRENGTHS)[document_type] * factors[np.arange(len(query)), WHOLE + document_type]
        + UNSEEN * rng.standard_normal(len(query))
    )
    data = RankingData(
        X=_draw_features(rng, columns, factors, query),
        y=_grades(relevance),
        qid=query + 1,
        costs=CostModel([column.family.price for column in columns]),
        feature_numbers=np.arange(len(columns)) + 1,
        feature_names=[column.name for column in columns],
    )
    if not return_truth:
        return data
    kind: list[str] = [column.family.kind for column in columns]
    return data, YahooLikeTruth(document_type, relevance, kind, np.array([column.type for column in columns]))


@dataclass(frozen=True)
class _Column:
    """One feature: the hidden factor that it shows, or the column that it echoes; the type that it is about."""

    family: _Family
    name: str
    factor: int = -1
    source: int = -1
    type: int = -1


def _columns(rng: np.random.Generator) -> list[_Column]:
    """The 519 features, in the order of price; an echo repeats one of those before it that is no noise or echo."""
    columns: list[_Column] = []
    n_noise = 0
    for family in FAMILIES:
        kind, name = family.kind, f"{family.kind} ({family.price:g})"
        sources = [j for j, column in enumerate(columns) if column.family.kind not in ("echo", "noise")]
        for i in range(family.count):
            if kind == "cue" or kind == "whole":
                first = CUE if kind == "cue" else WHOLE
                columns += [_Column(family, f"{name} type {t} no {i}", first + t, type=t) for t in range(N_TYPES)]
            elif kind == "part":
                columns += [
                    _Column(family, f"{name} type {t} part {p} no {i}", PART + t * N_PARTS + p, type=t)
                    for t in range(N_TYPES)
                    for p in range(N_PARTS)
                ]
            elif kind == "echo":
                source = int(rng.choice(sources))
                columns.append(_Column(family, f"{name} of {columns[source].name} no {i}", source=source))
            elif kind == "noise":
                columns.append(_Column(family, f"{name} no {i}", NOISE + n_noise // BLOCK))
                n_noise += 1
            else:
                factor = {"query": QUERY, "match": MATCH, "authority": AUTHORITY}[kind]
                columns.append(_Column(family, f"{name} no {i}", factor))
    return columns


def _draw_types(rng: np.random.Generator, shares: np.ndarray) -> np.ndarray:
    """One type for each row of shares that add up to 1."""
    below = rng.uniform(size=(len(shares), 1)) > np.cumsum(shares, axis=1)
    return np.minimum(below.sum(axis=1), N_TYPES - 1).astype(np.int64)


def _draw_features(
    rng: np.random.Generator, columns: list[_Column], factors: np.ndarray, query: np.ndarray
) -> np.ndarray:
    """What each feature shows, plus its noise, squeezed into [0, 1] as Yahoo's are."""
    X = rng.standard_normal((len(query), len(columns)))
    kind = np.array([column.family.kind for column in columns])
    of_query = np.flatnonzero(kind == "query")  # one value for all documents of a query
    X[:, of_query] = rng.standard_normal((int(query[-1]) + 1, len(of_query)))[query]
    noise = np.array([column.family.noise for column in columns])
    echo = np.flatnonzero(kind == "echo")
    shows = np.flatnonzero(kind != "echo")
    source = np.array([columns[j].source for j in echo])
    factor = np.array([columns[j].factor for j in shows])
    for begin in range(0, len(X), 4096):
        rows = X[begin : begin + 4096]
        rows *= noise
        rows[:, shows] += factors[begin : begin + 4096, factor]
        rows[:, echo] += rows[:, source]
        rows[:] = 1.0 / (1.0 + np.exp(-rows))
    return X


def _grades(relevance: np.ndarray) -> np.ndarray:
    """Grades 0 to 4 in the shares of `GRADE_SHARES`."""
    cuts = np.quantile(relevance, np.cumsum(GRADE_SHARES)[:-1])
    return np.searchsorted(cuts, relevance).astype(np.int64)
