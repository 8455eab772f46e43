"""scikit-learn's diabetes data with a bill: four cheap measurements, six values from one blood draw."""

from __future__ import annotations

import numpy as np

from ..costs import CostModel

__all__ = ["load_diabetes_with_costs"]


def load_diabetes_with_costs() -> tuple[np.ndarray, np.ndarray, list[str], CostModel]:
    """The diabetes regression data of scikit-learn, unscaled, and prices for its ten features.

    The prices are an illustration in arbitrary units: age, sex, BMI and blood pressure cost 1 each; the six
    blood serum values come from one blood draw (5) and cost 2 to 6 more each for the laboratory.

    Returns
    -------
    X : ndarray of shape (442, 10)
    y : ndarray of shape (442,)
    feature_names : list of str
    costs : CostModel
        Prices by name; the six serum values require the item ``"blood draw"``.

    Examples
    --------
    >>> from cstc.datasets import load_diabetes_with_costs
    >>> X, y, names, costs = load_diabetes_with_costs()
    >>> costs.price_of(["age", "bmi"]), costs.price_of(["s1", "s2"])
    (2.0, 9.0)
    """
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    names = [str(name) for name in data.feature_names]
    laboratory = {"s1": 2.0, "s2": 2.0, "s3": 2.0, "s4": 2.0, "s5": 4.0, "s6": 6.0}
    prices = dict.fromkeys(names[:4], 1.0) | {"blood draw": 5.0} | laboratory
    costs = CostModel(prices, requires={name: ["blood draw"] for name in laboratory})
    return data.data, data.target, names, costs
