"""Learning-to-rank data from files: LETOR text (MQ2007, MSLR and their kind) and Yahoo! LTRC, with prices."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..costs import CostModel
from ._prices import FeaturePrices, read_feature_prices
from ._ranking_data import RankingData
from ._svmlight import Documents, read_svmlight

__all__ = ["load_letor", "load_yahoo"]

#: Yahoo! LTRC numbers the features of set 1 and set 2 together.
YAHOO_FEATURES = 700
#: Yahoo's prices from here on mean that the price is not known: 10000 in copies, 100000000 in the original file.
UNKNOWN_PRICE = 10_000.0


def load_letor(
    path: str | Path,
    *,
    n_features: int | None = None,
    costs: str | Path | None = None,
    comments: bool = False,
    dtype: type = np.float64,
) -> RankingData:
    """Read SVMlight text with query ids: MQ2007, MSLR-WEB and other sets in the format of LETOR.

    A document is a line ``grade qid:query number:value number:value ... # comment``.  Grades are whole numbers,
    0 or more.  Features have the numbers 1, 2, ...; they ascend within a line, as SVMlight demands, and those
    left out are 0.  The documents of a query stand together.  Empty lines, and lines with a comment only, are
    passed over.  What does not keep to this is an error that names file and line.

    Parameters
    ----------
    path : path
        Plain text, or text compressed by gzip.
    n_features : int, optional
        Number of columns of X.  By default the highest feature number in the file; to be given when the last
        features may be 0 throughout a file, so that parts of a set get the same columns.
    costs : path, optional
        A file of prices: plain numbers, feature 1 first, or CSV with a header and a column ``cost`` and, optionally,
        ``index`` (feature numbers) and ``feature`` (names).  It should have one price for each feature.
    comments : bool, default=False
        Whether to keep what stands after ``#``, where LETOR names the document.
    dtype : {np.float64, np.float32}, default=np.float64
        Type of X.

    Returns
    -------
    data : RankingData
        Unpacks as ``X, y, qid, costs``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from cstc.datasets import load_letor
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.txt").write_text("2 qid:10 1:0.5 3:1 #docid = A\\n0 qid:10 2:0.25 #docid = B\\n")
    >>> _ = (folder / "prices.txt").write_text("1\\n5\\n20\\n")
    >>> X, y, qid, costs = load_letor(folder / "train.txt", costs=folder / "prices.txt")
    >>> X
    array([[0.5 , 0.  , 1.  ],
           [0.  , 0.25, 0.  ]])
    >>> y, qid, costs.price_of([0, 2])
    (array([2, 0]), array([10, 10]), 21.0)
    """
    if n_features is not None and (not isinstance(n_features, int | np.integer) or n_features < 1):
        raise ValueError(f"n_features is {n_features!r}; it should be a whole number, 1 or more")
    if costs is None:
        read = read_svmlight(path, n_features=n_features, dtype=dtype, comments=comments)
        return _ranking_data(read, np.arange(read.X.shape[1]), None, comments)
    prices = read_feature_prices(costs)
    if n_features is not None and len(prices) != n_features:
        raise ValueError(f"{prices.path} has {len(prices)} prices, n_features is {n_features}")
    read = read_svmlight(
        path, n_features=len(prices), said_by=f"the number of prices in {prices.path}", dtype=dtype, comments=comments
    )
    if n_features is None and read.last_feature < len(prices):
        raise ValueError(
            f"{prices.path} has {len(prices)} prices, but the last feature in {path} is {read.last_feature}; "
            f"if the further features are 0 in all of its documents, pass n_features={len(prices)}"
        )
    return _ranking_data(read, np.arange(len(prices)), prices, comments)


def load_yahoo(
    path: str | Path,
    costs: str | Path,
    *,
    unknown_price: float = UNKNOWN_PRICE,
    comments: bool = False,
    dtype: type = np.float64,
) -> RankingData:
    """Read a file of the Yahoo! Learning to Rank Challenge (C14B), and drop the features without a known price.

    The files (``set1.train.txt`` and so on) are under an agreement with Yahoo and must be asked for there.  They
    have the format that `load_letor` describes, and features 1 to 700.  Which columns are kept depends on the
    prices alone, so all files read with the same prices have the same columns: 519 with those of set 1.

    Parameters
    ----------
    path : path
        ``set1.train.txt``, ``set2.test.txt`` and so on, plain or compressed by gzip.
    costs : path
        700 prices, feature 1 first: Yahoo's ``featurecost.csv``, or one of the forms of `load_letor`.
    unknown_price : float, default=10000
        This price, or a higher one, means that the price is not known: 100000000 in Yahoo's own file, 10000 in
        copies of it.
    comments, dtype
        As for `load_letor`.

    Returns
    -------
    data : RankingData
        Unpacks as ``X, y, qid, costs``; ``data.feature_numbers`` has Yahoo's numbers of the columns.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from cstc.datasets import load_yahoo
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "set1.train.txt").write_text("1 qid:1 2:0.5 699:0.25\\n0 qid:1 3:0.75 700:1\\n")
    >>> _ = (folder / "prices.txt").write_text("10000\\n20\\n" + "10000\\n" * 697 + "150\\n")
    >>> data = load_yahoo(folder / "set1.train.txt", folder / "prices.txt")
    >>> data.X, data.costs.prices, data.feature_numbers
    (array([[0.5, 0. ],
           [0. , 1. ]]), (20.0, 150.0), array([  2, 700]))
    """
    prices = read_feature_prices(costs)
    if len(prices) != YAHOO_FEATURES:
        raise ValueError(f"{prices.path} has {len(prices)} prices; Yahoo! LTRC has {YAHOO_FEATURES} features")
    known = np.flatnonzero(prices.prices < unknown_price)
    if not len(known):
        raise ValueError(f"{prices.path}: every price is {unknown_price:g} or more, which means unknown")
    read = read_svmlight(
        path, n_features=YAHOO_FEATURES, said_by="Yahoo! LTRC", columns=known, dtype=dtype, comments=comments
    )
    return _ranking_data(read, known, prices, comments)


def _ranking_data(read: Documents, columns: np.ndarray, prices: FeaturePrices | None, comments: bool) -> RankingData:
    return RankingData(
        X=read.X,
        y=read.y,
        qid=read.qid,
        costs=None if prices is None else CostModel(prices.prices[columns]),
        feature_numbers=columns + 1,
        feature_names=None if prices is None or prices.names is None else [prices.names[j] for j in columns],
        comments=read.comments if comments else None,
    )
