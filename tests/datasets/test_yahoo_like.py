"""The Yahoo-like generator: its shape, and that documents of different types really need different features."""

import lightgbm
import numpy as np
import pytest

from cstc.datasets import make_yahoo_like
from cstc.metrics import ndcg


def test_as_many_features_at_each_price_as_yahoo():
    X, _, _, costs = make_yahoo_like(3, random_state=0)
    price, count = np.unique(costs.prices, return_counts=True)
    assert dict(zip(price, count, strict=True)) == {1: 123, 5: 31, 20: 191, 50: 125, 100: 16, 150: 32, 200: 1}
    assert X.shape[1] == len(costs.prices) == 519
    assert sum(costs.prices) == 16948
    assert list(costs.prices) == sorted(costs.prices)


def test_whole_queries_grades_and_values():
    data = make_yahoo_like(300, random_state=0)
    X, y, qid, _ = data
    assert (np.diff(qid) >= 0).all()
    sizes = np.bincount(qid)[1:]
    assert len(sizes) == 300
    assert (sizes.min(), sizes.max()) == (12, 36)
    np.testing.assert_allclose(np.bincount(y) / len(y), [0.26, 0.36, 0.28, 0.08, 0.02], atol=0.002)
    assert X.min() >= 0
    assert X.max() <= 1
    assert len(set(data.feature_names)) == 519
    columns = [j for j, name in enumerate(data.feature_names) if name.startswith("query")]
    first = np.searchsorted(qid, qid)
    np.testing.assert_array_equal(X[:, columns], X[first][:, columns])  # the same in the whole query
    assert len(columns) == 11


@pytest.mark.parametrize("docs_per_query", [1, 2, 7])
def test_size_of_queries(docs_per_query):
    _, _, qid, _ = make_yahoo_like(50, docs_per_query=docs_per_query, random_state=0)
    sizes = np.bincount(qid)[1:]
    assert len(sizes) == 50
    assert sizes.min() >= docs_per_query / 2
    assert sizes.max() <= docs_per_query * 1.5


def test_the_random_state_decides_everything():
    one, same = make_yahoo_like(20, random_state=4), make_yahoo_like(20, random_state=np.random.default_rng(4))
    other = make_yahoo_like(20, random_state=5)
    for a, b in zip(list(one)[:3], list(same)[:3], strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.feature_names == same.feature_names
    assert one.X.shape != other.X.shape or not np.array_equal(one.X, other.X)


def test_bad_sizes():
    with pytest.raises(ValueError, match="n_queries is 0"):
        make_yahoo_like(0)
    with pytest.raises(ValueError, match="docs_per_query 0"):
        make_yahoo_like(3, docs_per_query=0)
    for wrong in (2.5, "3"):
        with pytest.raises(ValueError, match="both should be whole numbers, 1 or more"):
            make_yahoo_like(wrong)


def test_features_of_a_type_mean_something_only_in_its_documents():
    (X, _, _, costs), truth = make_yahoo_like(400, random_state=0, return_truth=True)
    for t in range(6):
        own = truth.own_features(t)
        assert sorted(costs.prices[j] for j in own) == [20] * 8 + [50] * 4
        clear = [j for j in own if costs.prices[j] == 50]
        inside = truth.document_type == t
        for rows, low, high in ((inside, 0.05, 1.0), (~inside, -0.06, 0.06)):
            correlation = np.corrcoef(X[rows][:, clear].T, truth.relevance[rows])[-1, :-1]
            assert (correlation > low).all()
            assert (correlation < high).all()
    authority = truth.kind.index("authority")
    assert costs.prices[authority] == 200
    for t in range(6):
        rows = truth.document_type == t
        assert np.corrcoef(X[rows, authority], truth.relevance[rows])[0, 1] > 0.3


def test_an_oracle_needs_few_features_of_each_document():
    """NDCG@5 of LightGBM on all features, on cheap ones, and on those that the type of a document calls for."""
    data, truth = make_yahoo_like(200, random_state=0, return_truth=True)
    X, y, qid, costs = data
    prices = np.array(costs.prices)
    train = qid <= 140
    test = ~train
    cheap = np.flatnonzero(prices <= 5)

    def quality(scores):
        return ndcg(y[test], scores[test], qid[test])

    def scores(rows, columns, leaves):
        model = lightgbm.LGBMRegressor(
            n_estimators=80, num_leaves=leaves, colsample_bytree=0.4, max_bin=31, n_jobs=1, random_state=0, verbose=-1
        )
        return model.fit(X[np.ix_(train & rows, columns)], y[train & rows]).predict(X[np.ix_(rows, columns)])

    everything = np.ones(len(y), dtype=bool)
    # Cheap features tell the type: the highest cue is nearly always the right one.
    cues = [np.flatnonzero((np.array(truth.kind) == "cue") & (truth.feature_type == t)) for t in range(6)]
    cued_type = np.argmax([X[:, columns].mean(axis=1) for columns in cues], axis=0)
    assert prices[np.concatenate(cues)].sum() == 42
    assert np.mean(cued_type == truth.document_type) > 0.95

    oracle, bill = np.empty(len(y)), np.empty(len(y))
    for t in range(6):
        columns = np.concatenate([cheap, truth.own_features(t), [truth.kind.index("authority")]])
        rows = cued_type == t
        oracle[rows], bill[rows] = scores(rows, columns, leaves=7), prices[columns].sum()

    random = np.mean([quality(np.random.default_rng(i).uniform(size=len(y))) for i in range(5)])
    full = quality(scores(everything, np.arange(519), leaves=15))
    only_cheap = quality(scores(everything, cheap, leaves=15))
    assert full > random + 0.35
    assert random + 0.15 < only_cheap < full - 0.08
    assert quality(oracle) > full - 0.02
    assert bill[test].mean() < 0.05 * prices.sum()
