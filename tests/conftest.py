"""One thread for all numerical libraries: small problems are slower on several, and much slower on busy cores."""

import os
import sys

import pytest

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


@pytest.fixture(autouse=True)
def _close_figures():
    """Of many that stay open, matplotlib warns, and warnings are errors here."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
