"""From margins to class probabilities."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from cstc.model import LINKS, probabilities

MARGINS = 5 * np.random.default_rng(11).normal(size=(20, 3))


def test_several_margins_are_raised_and_shared_out():
    np.testing.assert_allclose(probabilities(MARGINS, "softmax"), softmax(MARGINS, axis=1), rtol=1e-12)


def test_one_margin_is_the_log_odds_of_the_second_class():
    shares = probabilities(MARGINS[:, :1], "logistic")
    np.testing.assert_allclose(shares, np.column_stack([expit(-MARGINS[:, 0]), expit(MARGINS[:, 0])]), rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_extreme_margins_are_certain():
    np.testing.assert_array_equal(probabilities(np.array([[1e4], [-1e4]]), "logistic"), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(probabilities(np.array([[1e4, 0.0, -1e4]]), "softmax"), [[1, 0, 0]])


@pytest.mark.parametrize("link", ["logistic", "softmax"])
def test_margins_stay_as_they_were(link):
    margins = MARGINS.copy()
    probabilities(margins, link)
    np.testing.assert_array_equal(margins, MARGINS)


def test_links_are_those_of_the_losses():
    assert LINKS == ("identity", "logistic", "softmax")
