"""The synthetic experiment of the paper: four quadrants, two cheap features, four expensive ones."""

from __future__ import annotations

import numpy as np

from ..costs import CostModel

__all__ = ["QUADRANT_COSTS", "QUADRANT_FEATURES", "make_quadrants"]

QUADRANT_FEATURES = ("sign(x)", "sign(z)", "y++", "y+-", "y-+", "y--")
#: Prices of the six features: the signs cost 1, the labels of a quadrant 10.
QUADRANT_COSTS = CostModel((1.0, 1.0, 10.0, 10.0, 10.0, 10.0))


def make_quadrants(
    n_samples: int = 1000,
    *,
    means: tuple[float, float, float, float] = (3.0, 1.0, -1.0, -3.0),
    random_state: int | np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the paper's synthetic regression set (section "Synthetic data").

    A point is drawn from the square [-1, 1] x [-1, 1].  Its label is Gaussian with variance 1 around the mean of
    its quadrant.  Two cheap features, ``sign(x)`` and ``sign(z)``, tell the quadrant.  Four expensive ones
    belong to one quadrant each: inside it the feature is the label, outside it a Gaussian number with variance 1
    around the quadrant's own mean.  A perfect predictor pays exactly 12 for each input: both signs, and the
    one expensive feature that matters.  Prices are in `QUADRANT_COSTS`.

    Parameters
    ----------
    n_samples : int, default=1000
    means : tuple of 4 floats, default=(3.0, 1.0, -1.0, -3.0)
        Means of the quadrants ++, +-, -+, --.
    random_state : int, Generator or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 6)
    y : ndarray of shape (n_samples,)

    Examples
    --------
    >>> from cstc.datasets import make_quadrants
    >>> X, y = make_quadrants(100, random_state=0)
    >>> X.shape, y.shape
    ((100, 6), (100,))
    """
    if len(means) != 4:
        raise ValueError(f"means has {len(means)} entries; the quadrants ++, +-, -+, -- need 4")
    rng = np.random.default_rng(random_state)
    points = rng.uniform(-1.0, 1.0, size=(n_samples, 2))
    signs = np.where(points > 0, 1.0, -1.0)
    quadrant = 2 * (signs[:, 0] < 0) + (signs[:, 1] < 0)
    mean = np.asarray(means, dtype=float)
    expensive = rng.normal(mean, 1.0, size=(n_samples, 4))
    y = expensive[np.arange(n_samples), quadrant]
    return np.column_stack([signs, expensive]), y
