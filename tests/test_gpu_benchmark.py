"""The benchmark of a GPU, at a tiny size on the CPU: its clock, its parts that take no time, its table."""

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TINY = ["--device", "cpu", "--queries", "40", "--learners", "6", "--threads", "1"]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("gpu")
    for name in ("gpu", "scale_parts", "scale_watch", "paper_claims", "paper_systems"):
        sys.modules.pop(name, None)


def test_the_clock_counts_no_step_twice(benchmark):
    module = SimpleNamespace()

    def inner():
        time.sleep(0.05)

    def outer():
        time.sleep(0.02)
        module.inner()
        return "found"

    module.inner, module.outer = inner, outer
    steps = {"outer": [(module, "outer")], "inner": [(module, "inner")]}
    with benchmark.Clock(steps, {"all": [(module, "outer")]}) as clock:
        assert module.outer() == "found"
        time.sleep(0.01)
    assert (module.inner, module.outer) == (inner, outer)  # as before
    told = clock.told()
    assert 0.02 <= told["steps"]["outer"] < 0.05 <= told["steps"]["inner"]
    assert told["steps"]["rest"] >= 0.01
    assert sum(told["steps"].values()) == pytest.approx(told["seconds"])
    assert told["inside"]["all"] >= 0.07


def test_what_is_timed_is_there(benchmark):
    """A function that got another name would be timed no more."""
    for watched in (benchmark.STEPS, benchmark.INSIDE, benchmark.PAPER_STEPS, benchmark.PAPER_INSIDE):
        for functions in watched.values():
            assert all(callable(vars(owner)[name]) for owner, name in functions)


def test_a_part_writes_its_figures_and_the_table(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--work", str(tmp_path / "rows"), "--out", str(tmp_path)]
    done = subprocess.run([*command, *TINY, "--part", "paper"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "paper.json").read_text())
    assert found["machine"]["gpu"]
    assert len(found["points"]) >= 8  # and what the frontier adds
    assert all(0 <= point["ndcg"] <= 1 for point in found["points"])
    assert found["steps"]["solving"] > 0 < found["inside"]["Phi @ B"]
    assert done.stdout.endswith((tmp_path / "gpu.md").read_text() + "\n")
    refused = subprocess.run([*command, *TINY, "--part", "quality"], capture_output=True, text=True, timeout=600)
    assert refused.returncode != 0
    assert "run --part frontier cores first" in refused.stderr
