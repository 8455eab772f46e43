"""The oldest versions that pyproject.toml allows are those that `make test-oldest` tests."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def numbers(version):
    return [int(part) for part in version.split(".")]


def test_the_bounds_are_the_versions_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"]]
    named += [entry for extra in ("plot", "frames", "dask", "cli", "gpu") for entry in extras[extra]]
    bounds = dict(re.sub(r"\[\w+\]", "", entry).split(">=") for entry in named)
    bounds["xgboost-cpu"] = bounds.pop("xgboost")  # the same without CUDA
    del bounds["click"]  # of the command line, which is not tested with the oldest versions
    tested = dict(re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "tests/oldest.txt").read_text(encoding="utf-8"), re.M))
    for name, bound in bounds.items():
        tested_of, bound_of = numbers(tested[name]), numbers(bound)
        assert tested_of[: len(bound_of)] == bound_of, name
        assert not any(tested_of[len(bound_of) :]), name
