"""Figures of drawn samples, against the same figures of rows that are really drawn; standard errors, known ones."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score, roc_auc_score

import cstc.resampling
from cstc.metrics import cost_summary, ndcg, ndcg_by_query
from cstc.resampling import N_DRAWS, Resamples, auc_draws, cost_draws, r2_draws, standard_error

SOME = 12  # samples that are looked at one by one


def drawn(n, seed, weighted=False, queries=False):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, n).astype(float) if weighted else None
    qid = np.sort(rng.integers(0, max(2, n // 4), n)) if queries else None
    return rng, weights, Resamples.of(n, weights, qid, seed)


def test_units_are_drawn_as_often_as_there_are_units():
    resamples = Resamples.of(50, seed=3)
    assert resamples.unit_counts.shape == (50, N_DRAWS)
    assert (resamples.unit_counts.sum(axis=0) == 50).all()
    assert abs(resamples.unit_counts.mean(axis=1) - 1).max() < 0.5
    np.testing.assert_array_equal(resamples.unit_counts, Resamples.of(50, seed=3).unit_counts)
    assert (resamples.unit_counts != Resamples.of(50, seed=4).unit_counts).any()


def test_rows_without_weight_are_never_drawn():
    weights = np.where(np.arange(40) < 10, 0.0, 1.0)
    resamples = Resamples.of(40, weights)
    assert (resamples.unit_counts[:10] == 0).all()
    assert (resamples.unit_counts.sum(axis=0) == 30).all()


def test_queries_are_drawn_whole():
    qid = np.repeat(["b", "a", "c"], [2, 3, 4])
    resamples = Resamples.of(9, None, qid)
    for draw in range(SOME):
        rows = resamples.rows(draw)
        counts = np.bincount(rows, minlength=9)
        for query in "abc":
            assert len(set(counts[qid == query])) == 1
    assert (resamples.unit_counts.sum(axis=0) == 3).all()


@pytest.mark.parametrize(
    ("weights", "expected"), [(None, 6.0), (np.full(6, 0.1), 6.0), ([3, 3, 0, 0, 0, 0], 2.0), ([4, 1, 1, 0, 0, 0], 2.0)]
)
def test_effective_number_of_rows(weights, expected):
    assert Resamples.of(6, weights).n_effective == pytest.approx(expected)
    assert Resamples.of(6, weights, np.array([1, 1, 2, 2, 3, 3])).n_effective in (3.0, 2.0, 1.0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), weighted=st.booleans(), n_values=st.sampled_from([2, 5, 1000]))
def test_auc_of_samples_is_that_of_rows_that_are_drawn(seed, weighted, n_values):
    rng, weights, resamples = drawn(30, seed, weighted)
    y, scores = rng.random(30) < 0.4, rng.integers(0, n_values, 30) / n_values  # ties, few or many
    found = auc_draws(scores, y, resamples)
    for draw in range(SOME):
        at = resamples.rows(draw)
        counted = at if weights is None else at[weights[at] > 0]
        if len(set(y[counted])) < 2:
            assert np.isnan(found[draw])
        else:
            expected = roc_auc_score(y[at], scores[at], sample_weight=None if weights is None else weights[at])
            assert found[draw] == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), weighted=st.booleans())
def test_r2_of_samples_is_that_of_rows_that_are_drawn(seed, weighted):
    rng, weights, resamples = drawn(25, seed, weighted)
    y = 1e3 + rng.normal(size=25)
    predicted = y + rng.normal(size=25)
    found = r2_draws(y, predicted, resamples)
    for draw in range(SOME):
        at = resamples.rows(draw)
        expected = r2_score(y[at], predicted[at], sample_weight=None if weights is None else weights[at])
        assert found[draw] == pytest.approx(expected, rel=1e-6)


def test_r2_of_equal_targets_is_unknown():
    assert np.isnan(r2_draws(np.ones(5), np.zeros(5), Resamples.of(5))).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), weighted=st.booleans(), queries=st.booleans())
def test_costs_of_samples_are_those_of_rows_that_are_drawn(seed, weighted, queries):
    rng, weights, resamples = drawn(40, seed, weighted, queries)
    costs = rng.integers(0, 12, 40).astype(float)
    found = cost_draws(costs, resamples)
    for draw in range(SOME):
        at = resamples.rows(draw)
        given_weights = np.ones(len(at)) if weights is None else weights[at]
        if given_weights.sum() > 0:
            expected = cost_summary(costs[at], given_weights)
            assert {name: found[name][draw] for name in expected} == pytest.approx(expected)


def test_means_over_queries_are_those_of_queries_that_are_drawn():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(20), 5)
    grades, scores = rng.integers(0, 3, 100) * (qid % 4 > 0), rng.normal(size=100)  # some have nothing relevant
    resamples = Resamples.of(100, None, qid)
    each = ndcg_by_query(grades, scores, qid)
    assert np.isnan(each).sum() >= 5
    found = resamples.means(each)
    for draw in range(SOME):
        at = resamples.rows(draw)
        again = np.repeat(np.arange(len(at) // 5), 5)  # a query that is drawn twice is two queries
        assert found[draw] == pytest.approx(ndcg(grades[at], scores[at], again))


def test_blocks_of_samples_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    y, scores = rng.random(50) < 0.5, rng.normal(size=50)
    whole = auc_draws(scores, y, Resamples.of(50)), cost_draws(scores, Resamples.of(50))
    monkeypatch.setattr(cstc.resampling, "BLOCK_CELLS", 50 * 7)
    np.testing.assert_array_equal(auc_draws(scores, y, Resamples.of(50)), whole[0])
    for name, values in cost_draws(scores, Resamples.of(50)).items():
        np.testing.assert_allclose(values, whole[1][name])


def test_many_rows_have_fewer_samples(monkeypatch):
    monkeypatch.setattr(cstc.resampling, "MOST_CELLS", 100 * 80)
    assert Resamples.of(100).n_draws == 80
    assert Resamples.of(1000).n_draws == cstc.resampling.FEWEST_DRAWS
    assert Resamples.of(10).n_draws == N_DRAWS


def test_standard_errors_are_those_that_theory_knows():
    """Of a mean, sigma over the root of n; of an AUC without any skill, the root of (n + 1) / (12 n_0 n_1)."""
    rng = np.random.default_rng(1)
    costs = rng.normal(5, 2, 4000)
    error = standard_error(cost_draws(costs, Resamples.of(4000))["mean"])
    assert error == pytest.approx(2 / np.sqrt(4000), rel=0.15)
    y, scores = np.arange(4000) < 1500, rng.normal(size=4000)
    expected = np.sqrt(4001 / (12 * 1500 * 2500))
    assert standard_error(auc_draws(scores, y, Resamples.of(4000))) == pytest.approx(expected, rel=0.15)


def test_standard_error_of_samples_that_could_not_be_judged():
    assert standard_error(np.array([np.nan, 1.0, 3.0])) == pytest.approx(np.sqrt(2))
    assert standard_error(np.array([np.nan, 1.0])) is None


def test_ten_thousand_rows_take_a_moment():
    rng = np.random.default_rng(0)
    resamples = Resamples.of(10_000)
    y, scores = rng.random(10_000) < 0.3, rng.normal(size=10_000)
    started = time.perf_counter()
    auc_draws(scores, y, resamples)
    cost_draws(scores, resamples)
    assert time.perf_counter() - started < 5.0  # a tenth of that, on a machine that is not busy
