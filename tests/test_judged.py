"""The benchmark that judges on sets that did not choose: who chooses, what is varied, and what is cut."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from cstc.experts import chain, purchases

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def judged(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("judged")
    for name in ("judged", "ahead", "scale_watch"):
        sys.modules.pop(name, None)


def test_a_set_has_no_say_in_what_it_is_judged_by(judged):
    ratios = np.array([[1.0, 0.1], [1.0, 1.2], [1.0, 1.1]])
    chosen, tuned = judged.judge(ratios)
    assert tuned == 1  # one set pulls it there
    assert chosen.tolist() == [0, 1, 1]  # and that set is judged by what the others prefer


def test_constants_are_varied_wherever_they_were_taken_and_come_back(judged):
    before = purchases.FIRST_STAGES
    with judged.varied({"FIRST_STAGES": 3}):
        assert purchases.FIRST_STAGES == chain.FIRST_STAGES == 3
    assert purchases.FIRST_STAGES == chain.FIRST_STAGES == before
    with pytest.raises(ValueError, match="no module of cstc has a constant ANY"), judged.varied({"ANY": 1}):
        pass


def test_every_setting_varies_something_that_is_there(judged):
    assert len(judged.SETTINGS) <= 8
    for constants in judged.SETTINGS.values():
        with judged.varied(constants):
            pass


def test_fewer_rows_are_whole_queries(judged, monkeypatch):
    monkeypatch.setattr(judged, "MOST_ROWS", 50)
    qid = np.repeat(np.arange(30), 7)
    rows = judged.Data(np.arange(210.0)[:, None], np.zeros(210), np.ones(1), "ranking", qid, qid % 5 + 1)
    few = judged.fewer(rows)
    assert len(few.y) == 49
    assert np.unique(few.qid, return_counts=True)[1].tolist() == [7] * 7
    np.testing.assert_array_equal(few.part, few.qid % 5 + 1)
    assert judged.fewer(few) is few
