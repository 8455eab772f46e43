"""The benchmark of the paper's size, at a tiny one: it runs, goes on where it was killed, and writes as it goes."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCALE = Path(__file__).parent.parent / "benchmarks" / "scale.py"
TINY = ["--queries", "60", "--threads", "1", "--rounds", "4", "--weights", "2", "--learners", "12"]


def run(work, *arguments):
    command = [sys.executable, str(SCALE), "--work", str(work), "--out", str(work / "out.md"), *TINY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    work = tmp_path_factory.mktemp("scale")
    done = run(work, "--part", "lightgbm", "frontier", "paper")
    assert done.returncode == 0, done.stderr
    return work, done.stdout


def test_every_part_has_its_time_its_memory_and_its_models(finished):
    work, said = finished
    found = json.loads((work / "out.json").read_text())
    assert found["settings"]["queries"] == 60
    for part in ("lightgbm", "frontier", "paper"):
        (run_of_it,) = found[part]["runs"]
        assert run_of_it["finished"]
        assert 0 < run_of_it["seconds"]
        assert 0 <= run_of_it["beyond_gib"] < run_of_it["maxrss_gib"] < 4
        for points in found[part]["points"].values():
            assert all(0 <= point["test"]["quality"] <= 1 for point in points)
    free, *_, full = sorted(found["frontier"]["points"]["default method"], key=lambda point: point["test"]["branch"])
    assert free["test"]["branch"] == 0 < full["test"]["branch"]
    (theirs,) = found["lightgbm"]["points"]["LightGBM"]
    assert theirs["test"]["trees"] == 4
    assert said.endswith((work / "out.md").read_text() + "\n")


def test_the_paper_has_all_its_weights_step_by_step(finished):
    found = json.loads((finished[0] / "out.json").read_text())["paper"]
    shared = found["steps"].pop("")
    assert shared["boosting"]["seconds"] > 0 < shared["leaves"]["seconds"]
    points = found["points"]
    for system in ("CSTC", "CSTC without fine-tuning", "CSTC unpruned"):
        assert len(points[system]) == 8
        assert {repr(point["parameter"]) for point in points[system]} <= found["steps"].keys()
    assert {point["nodes"] for point in points["CSTC unpruned"]} == {7}
    assert [point["test"]["trees"] for point in points["stage-wise regression"]][-1] == 12
    # the whole ensemble is what the solver starts from the learners of: no tree pays more
    most = points["stage-wise regression"][-1]["test"]["learner"]
    assert all(point["test"]["learner"] <= most for point in points["CSTC"])


def test_the_table_says_what_was_measured(finished):
    text = (finished[0] / "out.md").read_text()
    for line in ("| lightgbm |", "| frontier |", "| paper |", "all / boosting", "## Claims", "### default method"):
        assert line in text
    assert "fine-tuning lowers MSE" in text


def test_finished_parts_are_not_run_again_and_unfinished_ones_go_on(finished):
    work, _ = finished
    before = json.loads((work / "lightgbm.json").read_text())
    paper = json.loads((work / "paper.json").read_text())
    del paper["done"]
    paper["runs"][0]["finished"] = False
    last = paper["points"]["CSTC"].pop()
    unfitted = repr(last["parameter"])
    (work / "paper" / f"model-{unfitted}.json").unlink()  # as if it had been killed before the last weight
    (work / "paper.json").write_text(json.dumps(paper))
    done = run(work, "--part", "lightgbm", "paper")
    assert done.returncode == 0, done.stderr
    assert json.loads((work / "lightgbm.json").read_text()) == before
    again = json.loads((work / "paper.json").read_text())
    assert len(again["runs"]) == 2
    assert again["done"]
    assert len(again["points"]["CSTC"]) == 8
    # all models but one came from the checkpoint, and that one is the same again
    changed = {weight for weight in again["steps"] if again["steps"][weight] != paper["steps"][weight]}
    assert changed == {"", unfitted}
    assert again["points"]["CSTC"][-1] == last
    assert "finished, 2 runs" in done.stdout


def main(work, monkeypatch, *arguments):
    """In this process: nothing is fitted."""
    monkeypatch.syspath_prepend(str(SCALE.parent))
    monkeypatch.setattr(sys, "argv", [str(SCALE), "--work", str(work), *TINY, *arguments])
    importlib.import_module("scale").main()


def test_a_folder_that_was_begun_with_other_settings_is_refused(finished, monkeypatch):
    with pytest.raises(SystemExit, match="was begun with --queries 60 --learners 12; give the same, or another folder"):
        main(finished[0], monkeypatch, "--queries", "61", "--learners", "13")


def test_a_report_of_nothing_says_so(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="has nothing to report; run a part first"):
        main(tmp_path, monkeypatch, "--report")
