"""The two products on a device, with numpy, and PyTorch where it is installed, in the place of a GPU."""

import re
from dataclasses import replace

import numpy as np
import pytest

from builders import LOSSES
from cstc import CSTCClassifier, Paper
from cstc.model import TreeShape
from cstc.on_device import Arrays, TorchArrays
from cstc.paper import products
from cstc.paper.codes import LeafCodes
from cstc.paper.objective import Design, NodeParameters, Penalty, TreeObjective
from cstc.paper.products import DesignOnDevice, arrays_for_products

N, T, LEAVES = 53, 7, 5


def stands_in(name):
    if name == "numpy":
        return Arrays(np)
    return TorchArrays(pytest.importorskip("torch", reason="PyTorch is not installed"), "cpu")


each_library = pytest.mark.parametrize("name", ["numpy", "torch"])


def phi(dtype=np.uint8, seed=0):
    rng = np.random.default_rng(seed)
    return LeafCodes(rng.integers(0, LEAVES, (N, T)).astype(dtype), rng.normal(size=(T, LEAVES)))


@each_library
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("cells", [1, 3 * T, 10 * T, 1 << 20])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_products_are_those_of_the_dense_matrix(name, dtype, cells, shape):
    rng, codes = np.random.default_rng(1), phi(dtype)
    design, dense = DesignOnDevice(codes, stands_in(name), cells), codes.toarray()
    weights, margins = rng.normal(size=(T, *shape)), rng.normal(size=(N, *shape))
    np.testing.assert_allclose(design.matmul(weights), dense @ weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(design.rmatmul(margins), dense.T @ margins, rtol=0, atol=1e-12)


@each_library
def test_sums_are_in_double_precision(name):
    """Values of single precision, as `Paper(dtype="float32")` has them, are added without rounding again."""
    codes = phi().astype(np.float32)
    design = DesignOnDevice(codes, stands_in(name))
    weights = np.random.default_rng(1).normal(size=(T, 2))
    found = design.matmul(weights)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, codes.toarray().astype(float) @ weights, rtol=0, atol=1e-12)


@each_library
@pytest.mark.parametrize("loss_name", list(LOSSES))
def test_the_loss_and_its_gradient_are_the_same(name, loss_name):
    rng, codes, loss = np.random.default_rng(2), phi(), LOSSES[loss_name]
    y = rng.integers(0, loss.n_outputs + 1 if loss.n_outputs == 1 else loss.n_outputs, N)
    n_columns = loss.n_outputs + (loss.n_outputs > 1)
    shape = TreeShape.full(2)
    penalty = Penalty(rng.random((T, 4)), rng.random(4), np.full(T, 0.1), cost_weight=0.3, l1_weight=0.01)
    weights = rng.normal(size=(T, shape.n_nodes, n_columns))
    parameters = NodeParameters(weights, rng.normal(size=(shape.n_nodes, n_columns)), rng.normal(size=shape.n_nodes))
    found = [
        TreeObjective(design, y, np.ones(N), loss, shape, penalty).value_and_gradient(parameters)
        for design in (Design(codes), DesignOnDevice(codes, stands_in(name), 5 * T))
    ]
    (value, gradient), (there, gradient_there) = found
    assert there == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient_there.flatten(), gradient.flatten(), atol=1e-12)


@each_library
def test_the_paper_is_the_same_on_a_device(name, monkeypatch):
    """Weak learners of the CPU, so that nothing but the last bits of the products differs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    options = {"method": Paper(depth=2, max_iter=30), "n_weak_learners": 20, "random_state": 0, "cost_weight": 0.01}
    usual = CSTCClassifier(**options).fit(X, y)
    used, of = [], DesignOnDevice.matmul
    monkeypatch.setattr(DesignOnDevice, "matmul", lambda self, weights: used.append(1) or of(self, weights))
    monkeypatch.setattr("cstc.engines.check_cuda", lambda: None)
    monkeypatch.setattr(products, "arrays_on", lambda device: stands_in(name))
    monkeypatch.setattr("cstc.paper.features.grow", lambda boosting, *rows: grow_on_cpu(boosting, *rows))
    there = CSTCClassifier(device="cuda", **options).fit(X, y)
    assert used
    assert there.loss_history_[0][-1] == pytest.approx(usual.loss_history_[0][-1], rel=1e-4)  # steps magnify them


def grow_on_cpu(boosting, *rows):
    from cstc.engines import grow

    return grow(replace(boosting, engine="lightgbm", device="cpu"), *rows)


# -- what is missing -----------------------------------------------------------------------------------------------


class Small(Arrays):
    """A device with next to no memory."""

    def free(self):
        return 100


def test_too_little_memory_is_one_sentence():
    expected = f"{N} rows and {T} weak learners need about 0.0 GiB on the GPU, and 0.0 are free; take a smaller"
    with pytest.raises(MemoryError, match=re.escape(expected)):
        DesignOnDevice(phi(), Small(np))


class Crowded(Arrays):
    """A device that others fill after the codes lie there; its library has an error of its own, as PyTorch has."""

    def __init__(self, module, n_puts):
        super().__init__(module)
        self.left = n_puts

    def put(self, values):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().put(values)


@pytest.mark.parametrize("n_puts", [0, 2, 3])
def test_a_device_that_fills_up_later_is_the_same_sentence(n_puts):
    expected = f"{N} rows and {T} weak learners need about 0.0 GiB on the GPU, and 0.0 are free; take a smaller"
    for product in (lambda design: design.matmul(np.ones(T)), lambda design: design.rmatmul(np.ones(N))):
        with pytest.raises(MemoryError, match=re.escape(expected)):
            product(DesignOnDevice(phi(), Crowded(np, n_puts)))
    broken = DesignOnDevice(phi(), Arrays(np))
    with pytest.raises(ValueError, match="matmul"):  # what is something else stays what it is
        broken.matmul(np.ones(T + 1))


def test_neither_library_is_one_sentence(monkeypatch):
    monkeypatch.setattr(products, "arrays_on", lambda device: None)
    with pytest.raises(ImportError, match=re.escape("method=Paper() with device='cuda' needs CuPy or PyTorch")):
        arrays_for_products("cuda")
