"""``Phi`` as codes of leaves does what the dense matrix does, by compiled code and by numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cstc.model.native as native
import reference
from builders import (
    LOSSES,
    PROPERTY,
    changed,
    problem_of,
    random_objective,
    random_parameters,
    random_pool,
    random_shape,
    random_table,
    seeds,
    with_constant_leaves,
)
from cstc.matrix import MOST_ROWS
from cstc.model import TreePool
from cstc.paper.codes import LeafCodes, as_array, leaf_table, mean_squares, means, phi_and_codes, standardised
from cstc.paper.features import learn_columns
from cstc.paper.objective import Design

CLOSE = {"rtol": 1e-11, "atol": 1e-11}
SIZES = {"uint8": 16, "uint16": 300, "uint32": 70_000}  # leaves of a learner, for codes of one, two and four bytes


@pytest.fixture(params=["compiled", "numpy"])
def way(request, monkeypatch):
    """The two ways of computing products."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "_native", None)
    elif not native.available():
        pytest.skip("the compiled products were not built")


def random_codes(rng, n, n_learners, n_leaves=16, dtype="uint8"):
    return LeafCodes(rng.integers(0, n_leaves, (n, n_learners)).astype(dtype), rng.normal(size=(n_learners, n_leaves)))


def cells_of(phi):
    """Cell by cell."""
    n, n_learners = phi.shape
    found = [[phi.values[t, phi.codes[i, t]] for t in range(n_learners)] for i in range(n)]
    return np.array(found, dtype=float).reshape(n, n_learners)


# -- both products -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("dtype", "n_leaves"), SIZES.items())
@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 15, 19])
def test_products_are_those_of_the_dense_matrix(n_columns, dtype, n_leaves):
    rng = np.random.default_rng(n_columns)
    for n, n_learners in ((1, 1), (3, 21), (600, 5), (257, 16)):
        phi = random_codes(rng, n, n_learners, n_leaves, dtype)
        dense = cells_of(phi)
        weights, margins = rng.normal(size=(n_learners, n_columns)), rng.normal(size=(n, n_columns))
        np.testing.assert_allclose(phi @ weights, dense @ weights, **CLOSE)
        np.testing.assert_allclose(phi.T @ margins, dense.T @ margins, **CLOSE)
        np.testing.assert_allclose(phi @ weights[:, 0], dense @ weights[:, 0], **CLOSE)
        np.testing.assert_allclose(phi.T @ margins[:, 0], dense.T @ margins[:, 0], **CLOSE)
        np.testing.assert_array_equal(phi.toarray(), dense)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
@pytest.mark.parametrize("n_columns", [0, 1, 2])
def test_nothing_times_something_is_zero(shape, n_columns):
    phi = LeafCodes(np.zeros(shape, dtype=np.uint8), np.ones((shape[1], 2)))
    np.testing.assert_array_equal(phi @ np.ones((shape[1], n_columns)), np.zeros((shape[0], n_columns)))
    np.testing.assert_array_equal(phi.T @ np.ones((shape[0], n_columns)), np.zeros((shape[1], n_columns)))
    assert phi.toarray().shape == shape


@pytest.mark.usefixtures("way")
def test_matrices_of_any_layout_and_precision():
    rng = np.random.default_rng(0)
    phi = random_codes(rng, 40, 9)
    dense, weights, margins = cells_of(phi), rng.normal(size=(18, 6)), rng.normal(size=(40, 6))
    for change in (np.asfortranarray, lambda B: B[:, ::-1], lambda B: B.astype(np.float32), lambda B: B[:, 2]):
        np.testing.assert_allclose(phi @ change(weights[:9]), dense @ change(weights[:9]), **CLOSE)
        np.testing.assert_allclose(phi.T @ change(margins), dense.T @ change(margins), **CLOSE)
    np.testing.assert_allclose(phi @ weights[::2], dense @ weights[::2], **CLOSE)
    for codes in (np.asfortranarray(phi.codes), np.repeat(phi.codes, 2, axis=1)[:, ::2]):
        same = LeafCodes(codes, np.asfortranarray(phi.values))
        np.testing.assert_array_equal(same @ weights[:9], phi @ weights[:9])
        np.testing.assert_array_equal(same.T @ margins, phi.T @ margins)


@pytest.mark.usefixtures("way")
def test_single_precision_rounds_values_and_nothing_else():
    rng = np.random.default_rng(0)
    phi, weights = random_codes(rng, 40, 9), rng.normal(size=(9, 2))
    single = phi.astype(np.float32)
    assert (phi.dtype, single.dtype, single.toarray().dtype) == (np.float64, np.float32, np.float32)
    np.testing.assert_allclose(single @ weights, phi.toarray().astype(np.float32).astype(float) @ weights, **CLOSE)
    assert phi.astype(np.float64, copy=False).values is phi.values


@pytest.mark.skipif(not native.available(), reason="the compiled products were not built")
def test_threads_and_further_columns_do_not_change_a_bit(monkeypatch):
    rng = np.random.default_rng(0)
    phi = random_codes(rng, 3 * native.ROWS_OF_A_THREAD + 17, 3 * native.LEARNERS_OF_A_THREAD + 5)
    weights, margins = rng.normal(size=(phi.shape[1], 11)), rng.normal(size=(len(phi), 11))
    one = phi @ weights, phi.T @ margins
    for k in range(11):
        np.testing.assert_array_equal(phi @ weights[:, k], one[0][:, k])
        np.testing.assert_array_equal(phi.T @ margins[:, k], one[1][:, k])
    monkeypatch.setattr(native, "usable_cores", lambda: 3)
    np.testing.assert_array_equal(phi @ weights, one[0])
    np.testing.assert_array_equal(phi.T @ margins, one[1])


@pytest.mark.skipif(not native.available(), reason="the compiled products were not built")
@pytest.mark.parametrize(
    "change",
    [
        {"codes": np.zeros((5, 2), dtype=np.uint8)},
        {"codes": np.zeros((5, 3), dtype=np.uint64)},
        {"codes": np.frombuffer(bytes(31), dtype=np.uint8)[1:].view(np.uint16)},
        {"values": np.zeros((3, 3))},
        {"other": np.zeros((3, 1))},
        {"other": np.frombuffer(bytes(49), dtype=np.uint8)[1:]},
        {"sums": np.zeros((5, 3))},
        {"sizes": (5, 3, 4, 0)},
        {"sizes": (-5, 3, 4, 2)},
        {"sizes": (2**62, 3, 4, 2)},
        {"ends": (-1, 5)},
        {"ends": (0, 6)},
        {"ends": (3, 2)},
    ],
    ids=str,
)
def test_arrays_that_do_not_fit_are_not_read(change):
    right = {"codes": np.zeros((5, 3), dtype=np.uint8), "values": np.ones((3, 4)), "other": np.ones((3, 2))}
    right |= {"sums": np.zeros((5, 2)), "sizes": (5, 3, 4, 2), "ends": (0, 5)}

    def multiply(codes, values, other, sums, sizes, ends):
        native._native.multiply(codes, values, other, sums, sizes, False, *ends)
        return sums

    np.testing.assert_array_equal(multiply(**right), np.full((5, 2), 3.0))
    with pytest.raises(ValueError, match="wrong size, or is not aligned"):
        multiply(**(right | change))


def test_what_does_not_fit_is_said():
    phi = random_codes(np.random.default_rng(0), 5, 3, n_leaves=4)
    with pytest.raises(ValueError, match="weights has 2 rows, and Phi has 3 columns"):
        phi @ np.ones((2, 1))
    with pytest.raises(ValueError, match="margins has 3 rows, and Phi has 5 rows"):
        phi.T @ np.ones(3)
    with pytest.raises(TypeError):
        np.ones((2, 5)) @ phi
    with pytest.raises(ValueError, match="below 4, the number of leaves"):
        LeafCodes(np.full((5, 3), 4, dtype=np.uint8), phi.values)
    with pytest.raises(ValueError, match="unsigned numbers"):
        LeafCodes(np.full((5, 3), -1), phi.values)
    with pytest.raises(ValueError, match=r"\(5, 3\) do not fit values of shape \(2, 4\)"):
        LeafCodes(phi.codes, phi.values[:2])


# -- of weak learners ----------------------------------------------------------------------------------------------


@PROPERTY
@given(seeds)
def test_random_pools_with_missing_values_and_categories(seed):
    rng = np.random.default_rng(seed)
    pool = with_constant_leaves(random_pool(rng, n_trees=int(rng.integers(1, 12)), depth=int(rng.integers(0, 5))))
    X, n_columns = random_table(rng, int(rng.integers(1, 40))), int(rng.integers(1, 12))
    phi, codes = phi_and_codes(pool, X)
    assert isinstance(phi, LeafCodes)
    assert phi.codes is codes
    outputs = np.array([[reference.evaluate_learner(pool, t, x)[0] for t in range(pool.n_learners)] for x in X])
    np.testing.assert_array_equal(phi.toarray(), outputs)
    np.testing.assert_array_equal(leaf_table(pool)[np.arange(pool.n_learners), codes], pool.leaves(X))
    weights, margins = rng.normal(size=(pool.n_learners, n_columns)), rng.normal(size=(len(X), n_columns))
    row_weights, offset = rng.uniform(0.2, 2, len(X)), rng.normal(size=pool.n_learners)
    scaled = (outputs - offset) / 2.5
    assert_same = [
        (phi @ weights, outputs @ weights),
        (phi.T @ margins, outputs.T @ margins),
        (standardised(phi, offset, 2.5) @ weights, scaled @ weights),
        (means(phi, row_weights), np.average(outputs, axis=0, weights=row_weights)),
        (mean_squares(phi, row_weights), np.average(outputs**2, axis=0, weights=row_weights)),
    ]
    for found, expected in assert_same:
        np.testing.assert_allclose(found, expected, **CLOSE)
    # the same of a dense matrix
    np.testing.assert_array_equal(as_array(phi), outputs)
    assert as_array(outputs) is outputs
    np.testing.assert_array_equal(standardised(outputs, offset, 2.5), scaled)
    np.testing.assert_allclose(mean_squares(outputs, row_weights), mean_squares(phi, row_weights), **CLOSE)


@PROPERTY
@given(seeds)
def test_some_rows_and_columns(seed):
    rng = np.random.default_rng(seed)
    phi = random_codes(rng, 30, 8)
    dense, mask = cells_of(phi), rng.random(30) < 0.5
    rows, columns = rng.integers(0, 30, int(rng.integers(0, 50))), rng.permutation(8)[: int(rng.integers(0, 9))]
    for at in (rows, mask, np.ix_(rows, columns), np.ix_(mask, columns)):
        np.testing.assert_array_equal(phi[at].toarray(), dense[at])
        assert phi[at].shape == dense[at].shape
    assert len(phi) == 30


def test_a_leaf_that_passes_on_a_column_makes_phi_dense():
    rng = np.random.default_rng(0)
    pool, X = random_pool(rng), random_table(rng, MOST_ROWS + 20)
    phi, codes = phi_and_codes(pool, X)
    np.testing.assert_array_equal(phi, pool.transform(X))
    np.testing.assert_array_equal(leaf_table(pool)[np.arange(pool.n_learners), codes], pool.leaves(X))


def test_codes_take_a_byte_as_long_as_they_can():
    for n_leaves, size in ((2, 1), (256, 1), (257, 2), (70_000, 4)):
        phi, codes = phi_and_codes(comb(n_leaves), np.arange(n_leaves)[::-1, None].astype(float)[:50])
        assert codes.itemsize == size
        np.testing.assert_array_equal(phi.toarray()[:, 0], np.arange(n_leaves)[::-1][:50])


def comb(n_leaves):
    """One learner with a leaf for each of the values 0, 1, ...; as balanced as can be, for the sake of its depth."""
    feature, threshold, left, right, value = [], [], [], [], []

    def grow(first, last):
        here = len(feature)
        middle = (first + last) // 2
        for column, entry in zip((feature, threshold, left, right, value), (-1, 0.0, here, here, first), strict=True):
            column.append(entry)
        if first < last:
            feature[here], threshold[here] = 0, middle + 0.5
            left[here], right[here] = grow(first, middle), grow(middle + 1, last)
        return here

    grow(0, n_leaves - 1)
    n = len(feature)
    return TreePool(
        roots=np.array([0]),
        feature=np.array(feature),
        threshold=np.array(threshold),
        left=np.array(left),
        right=np.array(right),
        missing_left=np.zeros(n, dtype=bool),
        zero_is_missing=np.zeros(n, dtype=bool),
        category_start=np.full(n, -1),
        category_count=np.zeros(n, dtype=int),
        category_left=np.zeros(0, dtype=bool),
        value=np.array(value, dtype=float),
        linear_feature=np.full(n, -1),
    )


# -- in training ---------------------------------------------------------------------------------------------------


@PROPERTY
@given(seeds, st.sampled_from(sorted(LOSSES)))
def test_the_loss_and_its_gradient_are_those_of_the_dense_matrix(seed, loss_name):
    rng = np.random.default_rng(seed)
    phi = random_codes(rng, 25, 5, n_leaves=4)
    dense = random_objective(rng, random_shape(rng), LOSSES[loss_name])
    dense = changed(dense, design=Design(phi.toarray()))
    coded = changed(dense, design=Design(phi))
    parameters = random_parameters(rng, dense)
    (value, gradient), (same, alike) = (each.value_and_gradient(parameters) for each in (dense, coded))
    assert same == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(alike.flatten(), gradient.flatten(), **CLOSE)
    margins = dense.margins(parameters)
    np.testing.assert_allclose(coded.margins(parameters), margins, **CLOSE)
    node = int(rng.integers(dense.shape.n_nodes))
    by_node = [each.node_value_and_gradient(node, parameters, margins)[1] for each in (dense, coded)]
    np.testing.assert_allclose(by_node[1], by_node[0], **CLOSE)


@pytest.mark.parametrize("loss_name", sorted(LOSSES))
def test_boosted_trees_are_codes_of_a_byte_and_plain_inputs_a_dense_matrix(loss_name):
    columns = learn_columns(problem_of(loss_name), 0.2)
    for seen in (columns.train, columns.validation):
        assert isinstance(seen.phi, LeafCodes)
        assert seen.phi.codes is seen.codes  # once in memory
        assert seen.codes.dtype == np.uint8
    plain = learn_columns(problem_of(loss_name, weak_learners="identity"), 0.2)
    assert isinstance(plain.train.phi, np.ndarray)
    assert isinstance(plain.validation.phi, np.ndarray)
