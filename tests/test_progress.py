"""How far a fit has come: what is shown where, what is left, silence by default, and leaving when interrupted."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

from cstc import CSTCClassifier, CSTCRegressor, Exact, Experts, Frontier, Paper
from cstc.baselines import CEGB, StageWiseRegression
from cstc.progress import EVERY, QUIET, Progress, display_here

QUICK = {"costs": [1.0, 2.0, 4.0], "n_weak_learners": 10, "random_state": 0}
SOON = 3.0  # seconds; it takes a third of a second where nothing else runs


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Shown:
    """A display that keeps all lines."""

    every = 0.0

    def __init__(self):
        self.lines = []

    def show(self, line):
        self.lines.append(line)

    end = show


class Terminal(io.StringIO):
    def isatty(self):
        return True


def watched(**options):
    clock, display = Clock(), Shown()
    return Progress(verbose=1, display=display, clock=clock, **options), clock, display.lines


def percent(line):
    return int(re.search(r"(\d+)%", line)[1])


def data(n=300):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, X[:, 0] + X[:, 1] * X[:, 2]


# -- what is left ----------------------------------------------------------------------------------------------------


def test_the_line_says_what_is_done_of_how_much_and_the_time_left():
    progress, clock, lines = watched()
    progress.begin("experts", 100.0, 10)
    for _ in range(4):
        clock.now += 3.0
        progress.did(10.0, n_pieces=1)
    progress.draw()
    assert lines == ["cstc fit:  40% [========>           ] experts 4 of 10, 12 s, about 18 s left"]
    progress.close()
    assert lines[1:] == ["cstc fit: 100% [====================] done in 12 s"]


def test_the_time_left_falls_at_a_steady_pace():
    progress, clock, lines = watched()
    progress.begin("experts", 50.0, 50)
    left = []
    for _ in range(50):
        clock.now += 2.0
        progress.did(1.0, n_pieces=1)
        progress.draw()
        left.append(progress.seconds_left())
    np.testing.assert_allclose(left, np.arange(98.0, -1.0, -2.0), atol=1e-9)
    assert (np.diff([percent(line) for line in lines]) >= 0).all()
    assert max(map(percent, lines)) == 99  # all of it is said at the end


def test_a_guess_holds_until_the_part_begins():
    progress, clock, _ = watched()
    progress.plan("experts", 30.0, once=True)
    progress.begin("orders of buying", 10.0)
    clock.now = 5.0
    progress.did(10.0)
    assert progress.seconds_left() == 15.0
    progress.plan("experts", 50.0)
    assert progress.seconds_left() == 25.0
    progress.begin("experts", 20.0, 2)
    assert progress.seconds_left() == 10.0
    progress.plan("experts", 1000.0)  # too late: it runs
    assert progress.seconds_left() == 10.0


def test_totals_grow_and_what_is_not_needed_is_not_left():
    progress, clock, lines = watched()
    progress.begin("gates", 10.0, 10)
    clock.now = 4.0
    progress.did(4.0, n_pieces=4)
    progress.begin("lazy experts", 4.0, 1)  # six gates were not needed
    assert progress.seconds_left() == 4.0
    clock.now = 8.0
    progress.did(4.0, n_pieces=1)
    progress.begin("lazy experts", 8.0, 2)  # more was found
    assert progress.seconds_left() == 8.0
    progress.draw()
    assert "lazy experts 1 of 3" in lines[-1]
    progress.did(100.0, n_pieces=7)  # more than anybody expected
    progress.draw()
    assert "lazy experts 8 of 8" in lines[-1]
    assert progress.seconds_left() == 0.0
    assert percent(lines[-1]) == 99


def test_steps_of_which_the_most_is_known_go_by_their_own_pace():
    progress, clock, lines = watched()
    progress.begin("weak learners", 1.0)
    clock.now = 50.0
    progress.did(1.0)
    progress.begin("step", 1000.0, 100, most=True)
    progress.draw()
    assert lines[-1].endswith("step 0 of at most 100, 50 s")
    clock.now = 52.0
    progress.did(10.0, n_pieces=1)
    progress.draw()
    assert lines[-1].endswith("step 1 of at most 100, 52 s, at most 3 min left")
    assert progress.seconds_left() == 198.0
    progress.begin("step", 1000.0, 100, most=True)  # the next stage counts its own
    clock.now = 53.0
    progress.did(10.0, n_pieces=1)
    assert progress.seconds_left() == 99.0


def test_the_first_fit_of_a_frontier_says_nothing_of_the_others():
    progress, clock, lines = watched(title="cstc frontier", n_models=10)
    progress.begin_model()
    assert progress.seconds_left() is None
    progress.plan("gates", 10.0)
    progress.begin("experts", 90.0, 9, once=True)
    clock.now = 45.0
    progress.did(45.0, n_pieces=4)
    progress.draw()
    # the other half, then gates for this model and for nine more
    assert lines[-1].startswith("cstc frontier:  23% [====>               ] model 1 of at most 10, experts 4 of 9, 4")
    assert progress.seconds_left() == 45.0 + 10 * 10.0
    clock.now = 90.0
    progress.did(45.0, n_pieces=5)
    progress.end_model()
    for number in range(2, 6):
        progress.begin_model()
        progress.begin("gates", 10.0, 2)
        clock.now += 4.0
        progress.did(10.0, n_pieces=2)
        progress.end_model()
        if number >= 4:
            assert progress.seconds_left() == 4.0 * (10 - number)
    progress.begin_model()
    progress.end_model(fitted=False)  # found in the checkpoint: that takes no time, and says nothing
    progress.begin_model()
    assert progress.seconds_left() == 4.0 * 4
    progress.close()
    assert lines[-1].endswith("7 models done in 106 s")


def test_pieces_end_in_many_threads():
    progress, _, _ = watched()
    progress.begin("experts", 4000.0, 4000)
    threads = [threading.Thread(target=lambda: [progress.did(1.0, 1) for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "experts 4000 of 4000" in progress.line()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7300, "2 h 1 min"), (90000, "25 h 0 min")]
)
def test_durations(seconds, text):
    progress, clock, lines = watched()
    clock.now = seconds
    progress.close(finished=False)
    assert lines == [f"cstc fit: stopped after {text}"]
    progress.draw()
    progress.close()
    assert len(lines) == 1  # nothing comes after the last line


# -- where it is shown -----------------------------------------------------------------------------------------------


def test_one_line_that_moves_on_a_terminal(monkeypatch):
    stream, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "40")
    progress = Progress(verbose=1, clock=clock)
    progress.begin("a part with a name that is far too long for this terminal", 10.0, 10)
    for _ in range(100):
        clock.now += EVERY / 10
        progress.did(0.1)
        progress.draw()
    progress.close()
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    shown = text[:-1].split("\r")
    assert 9 <= len(shown) <= 13  # ten times a second, not a hundred
    assert {len(line) for line in shown[1:]} == {39}
    assert "done in 1 s" not in shown[-2]


def test_a_shorter_line_covers_a_longer_one(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    display = display_here()
    display.show("a long line")
    display.end("short")
    assert stream.getvalue() == "\ra long line\rshort      \n"


def test_lines_now_and_then_in_a_log(monkeypatch):
    stream, clock = io.StringIO(), Clock()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress(verbose=1, clock=clock)
    progress.begin("experts", 100.0, 100)
    for _ in range(100):
        clock.now += 0.5
        progress.did(1.0, n_pieces=1)
        progress.draw()
    progress.close()
    lines = stream.getvalue().splitlines()
    assert [line.split("] ")[1] for line in lines[:2]] == [
        "experts 20 of 100, 10 s, about 40 s left",
        "experts 40 of 100, 20 s, about 30 s left",
    ]
    assert len(lines) == 6
    assert lines[-1].endswith("done in 50 s")
    assert "\r" not in stream.getvalue()


def test_one_output_is_updated_in_a_notebook(monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(("update", content, raw))

    def display(content, raw, display_id):
        shown.append(("display", content, raw))
        return Handle() if display_id else None

    notebook, displays = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    notebook.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    displays.display = display
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    clock = Clock()
    progress = Progress(verbose=1, clock=clock)
    for _ in range(3):
        clock.now += 1.0
        progress.draw()
    progress.close()
    assert [kind for kind, _, _ in shown] == ["display", "update", "update", "update"]
    assert all(raw for _, _, raw in shown)
    assert shown[-1][1] == {"text/plain": "cstc fit: 100% [====================] done in 3 s"}
    assert capsys.readouterr() == ("", "")
    notebook.get_ipython = lambda: types.SimpleNamespace()  # IPython on a terminal
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    display_here().show("text")
    assert sys.stderr.getvalue() == "text\n"


def test_nothing_without_a_console(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    progress = Progress(verbose=1)
    assert not progress.shown
    progress.draw()
    progress.close()


# -- fits ------------------------------------------------------------------------------------------------------------


def fits(verbose):
    X, y = data()
    yield lambda: CSTCRegressor(method=Experts(folds=2), verbose=verbose, **QUICK).fit(X, y)
    yield lambda: CSTCRegressor(method=Paper(depth=2), verbose=verbose, **QUICK).fit(X, y)
    plain = {"weak_learners": "identity", "costs": [1.0, 2.0, 4.0], "random_state": 0}
    yield lambda: CSTCRegressor(method=Exact(depth=2), verbose=verbose, **plain).fit(X, y)
    estimator = CSTCRegressor(method=Experts(folds=2), **QUICK)
    yield lambda: Frontier(estimator, n_weights=4, verbose=verbose).fit(X, y)
    yield lambda: CEGB(**QUICK).frontier(X, y, n_points=3, verbose=verbose)
    yield lambda: StageWiseRegression(**QUICK).frontier(X, y, n_points=3, verbose=verbose)


def test_quiet_by_default(capfd):
    for fit in fits(0):
        fit()
    assert capfd.readouterr() == ("", "")
    assert not QUIET.shown


def test_each_fit_shows_one_line_that_moves(monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("cstc.progress._Terminal.every", 0.0)
    monkeypatch.setattr("cstc.parallel.WAKE", 0.002)
    titles = ["cstc fit"] * 3 + ["cstc frontier", "cstc CEGB", "cstc StageWiseRegression"]
    for title, fit in zip(titles, fits(1), strict=True):
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        fit()
        text = stream.getvalue()
        assert text.count("\n") == 1
        lines = text.strip().split("\r")
        assert all(line.startswith(f"{title}: ") for line in lines)
        assert len(lines) >= 2 or "StageWiseRegression" in title
        assert max(percent(line) for line in lines[:-1] or ["0%"]) <= 99
        assert re.search(r"100% \[=+\] .*done in \d+ s", lines[-1])
        for line in lines:
            counted = re.search(r"(\d+) of (?:at most )?(\d+)", line.split("model")[0])
            assert counted is None or int(counted[1]) <= int(counted[2])
    assert capfd.readouterr().out == ""


def test_the_parts_of_a_fit(monkeypatch):
    begun = []
    begin = Progress.begin

    def noted(self, part, *rest, **more):
        begun.append(part)
        begin(self, part, *rest, **more)

    monkeypatch.setattr(Progress, "begin", noted)
    X, y = data(1200)
    CSTCRegressor(method=Experts(folds=2), cost_weight=0.05, **QUICK).fit(X, y)
    assert begun[:3] == ["orders of buying", "experts", "gates"]
    assert "lazy experts" in begun
    assert set(begun) <= {"orders of buying", "experts", "gates", "lazy experts"} | {
        "orders of buying of groups", "what rows need", "experts of groups"
    }


def test_all_boosters_that_were_expected_are_grown(monkeypatch):
    counted = []
    settle = Progress._settle

    def keep(self):
        part = self._parts.get(self._current or "")
        if self._current == "experts" and part is not None:
            counted.append((part.ended, part.n_pieces, part.done / part.work))
        settle(self)

    monkeypatch.setattr(Progress, "_settle", keep)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    X, y = data()
    CSTCRegressor(method=Experts(folds=3), verbose=1, **QUICK).fit(X, y)
    (ended, expected, share), *_ = counted
    assert ended == expected > 0
    assert share == pytest.approx(1.0, abs=0.02)


def test_every_step_as_a_line(capsys):
    X, y = data()
    CSTCRegressor(method=Paper(depth=2), verbose=2, **QUICK).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("[CSTCRegressor] ") for line in lines)
    assert any("sweep 1: loss" in line for line in lines)


# -- leaving ---------------------------------------------------------------------------------------------------------


class Fails(Experts):
    def train(self, problem):
        raise KeyboardInterrupt


def test_an_interrupted_estimator_is_what_it_was(capsys):
    X, y = data()
    new = CSTCRegressor(method=Fails(), **QUICK)
    before = dict(vars(new))
    with pytest.raises(KeyboardInterrupt):
        new.fit(X, y)
    assert vars(new) == before
    fitted = CSTCRegressor(method=Experts(folds=2), verbose=1, **QUICK).fit(X, y)
    told = fitted.predict(X)
    fitted.set_params(method=Fails(), costs=None)
    capsys.readouterr()
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(np.ones((50, 7)), np.arange(50.0))
    assert capsys.readouterr().err == "cstc fit: stopped after 0 s\n"
    assert fitted.n_features_in_ == 3
    np.testing.assert_array_equal(fitted.predict(X), told)
    labels = CSTCClassifier(method=Fails(), **QUICK)
    with pytest.raises(KeyboardInterrupt):
        labels.fit(X, y > 0)
    assert not hasattr(labels, "classes_")


def test_an_interrupted_system_is_what_it_was(monkeypatch):
    X, y = data()
    system = CEGB(**QUICK)
    before = dict(vars(system))

    def interrupted(self, *rest):
        raise KeyboardInterrupt

    monkeypatch.setattr(CEGB, "_fit_model", interrupted)
    with pytest.raises(KeyboardInterrupt):
        system.fit(X, y)
    assert vars(system) == before


SCRIPT = """
import sys
import numpy as np
from cstc import CSTCClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(100_000, 20))
y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=len(X)) > 0).astype(int)
model = CSTCClassifier(costs=list(range(1, 21)), n_jobs=int(sys.argv[1]), method=sys.argv[2], verbose=2)
try:
    model.fit(X, y)
except KeyboardInterrupt:
    assert not hasattr(model, "n_features_in_")
    raise
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("n_jobs", "method", "after"),
    [(1, "auto", "orders of"), (2, "auto", "orders of"), (2, "auto", "experts on"), (1, "paper", "start")],
)
def test_an_interrupt_leaves_a_fit_soon(n_jobs, method, after):
    command = [sys.executable, "-c", SCRIPT, str(n_jobs), method]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while after not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.5)
        sent = time.perf_counter()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        took = time.perf_counter() - sent
    assert process.returncode != 0
    assert said.strip().endswith("KeyboardInterrupt")
    assert "Stopped" not in said
    assert took < SOON
