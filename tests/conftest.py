"""One thread for all numerical libraries: small problems are slower on several, and much slower on busy cores."""

import os
import sys
from pathlib import Path

import pytest

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


# matplotlib's list of fonts belongs to this environment: one that another left behind may name fonts that are gone
os.environ.setdefault("MPLCONFIGDIR", str(Path(sys.prefix) / ".matplotlib"))


@pytest.fixture(autouse=True)
def _close_figures():
    """Of many that stay open, matplotlib warns, and warnings are errors here."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
