"""What each row needs, by attributions."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from cstc.lightgbm_engine import attributions, boost
from cstc.losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from cstc.needs import needs_of
from experts.cases import boosting, resolved, rows_of

N = 2000
HALF = np.arange(N) % 2 == 0


def selected(n=N, seed=0):
    """The sign of x0 says whether the label is x1 or x2; x3 is noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.where(X[:, 0] > 0, X[:, 1], X[:, 2])


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_attributions_add_up_to_the_margins(n_classes):
    X, y = selected(600)
    loss = [SquaredLoss, LogisticLoss, lambda: SoftmaxLoss(3)][n_classes - 1]()
    y = y if n_classes == 1 else np.digitize(y, [-0.5, 0.5][: n_classes - 1])
    model = boosting(resolved(np.ones(4)), np.zeros(loss.n_outputs), loss, n_rounds=15)
    booster = boost(model, rows_of(X, y))
    shares = attributions(booster, X, loss.n_outputs)
    assert shares.shape == (600, 5, loss.n_outputs)
    margins = booster.predict(X, raw_score=True).reshape(600, -1)
    np.testing.assert_allclose(shares.sum(axis=1), margins, atol=1e-10)


def test_what_is_lost_without_an_item_by_hand():
    """Squared loss: the square of what the features that require it contributed; half by half, from the other one."""
    X, y = selected()
    costs = resolved({"both": 2.0, "x0": 1.0, "x3": 1.0}, {"x1": ["both"], "x2": ["both"]}, n=4)
    model = boosting(costs, (0.3,))
    found = needs_of(model, rows_of(X, y), HALF, SquaredLoss())
    assert found.lost.shape == (N, 3)
    for side in (True, False):
        taught, hears = HALF == side, HALF != side
        booster = boost(replace(model, depth=8, n_leaves=31), rows_of(X[taught], y[taught]))
        shares = attributions(booster, X[hears], 1)[:, :, 0]
        items = dict(zip(costs.item_names, found.lost[hears].T, strict=True))
        np.testing.assert_allclose(items["both"], (shares[:, 1] + shares[:, 2]) ** 2, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(items["x0"], shares[:, 0] ** 2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss(), SoftmaxLoss(3)], ids=lambda loss: loss.name)
def test_rows_lose_what_they_need(loss):
    X, y = selected()
    if loss.has_classes:
        y = np.digitize(y, [-0.5, 0.5] if loss.n_outputs == 3 else [0.0])
    model = boosting(resolved(np.ones(4)), np.zeros(loss.n_outputs), loss)
    rows = rows_of(X, y)
    found = needs_of(model.starting_at(rows), rows, HALF, loss)
    upper = X[:, 0] > 0
    assert found.worth(upper)[1] > 4 * found.worth(upper)[2]
    assert found.worth(~upper)[2] > 4 * found.worth(~upper)[1]
    assert found.worth(upper)[3] < 0.05 * found.worth(upper)[1]
    assert (found.lost > -1e-6).all()  # margins are taken for the truth, and nothing is better than that


def test_weights_count():
    X, y = selected()
    weights = np.where(X[:, 1] > 0, 3.0, 1.0)
    rows = rows_of(X, y, weights)
    found = needs_of(boosting(resolved(np.ones(4))), rows, HALF, SquaredLoss())
    at = X[:, 0] > 0
    np.testing.assert_allclose(found.worth(at), np.average(found.lost[at], axis=0, weights=weights[at]))


def test_of_many_rows_some_teach_and_fewer_are_attributed(monkeypatch):
    monkeypatch.setattr("cstc.needs.TAUGHT", (500, 100))
    monkeypatch.setattr("cstc.needs.ATTRIBUTED", (300, 50))
    taught = []
    monkeypatch.setattr("cstc.needs.boost", lambda model, rows, **given: taught.append(len(rows)) or boost(model, rows))
    X, y = selected()
    weights, factor = np.arange(1.0, N + 1), np.arange(N) + 0.5
    found = needs_of(boosting(resolved(np.ones(4))), rows_of(X, y, weights), HALF, SquaredLoss(), factor)
    assert sum(taught) == 500
    assert len(found.rows) == len(found.half) == len(found.factor) == 500
    assert len(found.told) == len(found.lost) == len(found.told_rows) == 300
    assert found.half[found.told].sum() == 150
    drawn = np.rint(found.factor - 0.5).astype(int)  # the rows that they are
    np.testing.assert_array_equal(found.rows.X, X[drawn])
    np.testing.assert_array_equal(found.half, HALF[drawn])
    np.testing.assert_array_equal(found.told_rows.X, X[drawn[found.told]])
    at = found.rows.X[:, 0] > 0
    told = at[found.told]
    worth = np.average(found.lost[told], axis=0, weights=weights[drawn[found.told]][told])
    np.testing.assert_allclose(found.worth(at), worth)
    assert (found.worth(np.isin(np.arange(500), found.told, invert=True)) == 0).all()  # of whom nothing is known
    plain = needs_of(boosting(resolved(np.ones(4))), rows_of(X, y, weights), HALF, SquaredLoss())
    np.testing.assert_allclose(found.lost, plain.lost * found.factor[found.told, None], rtol=1e-4)


def test_a_sparse_matrix_needs_what_a_dense_one_needs():
    X, y = selected()
    X[np.abs(X) < 0.3] = 0.0
    model = boosting(resolved(np.ones(4)))
    one, other = (needs_of(model, rows_of(each, y), HALF, SquaredLoss()) for each in (X, scipy.sparse.csr_array(X)))
    np.testing.assert_allclose(one.lost, other.lost, rtol=1e-5, atol=1e-7)
