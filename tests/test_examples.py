"""The examples run from start to end as plain scripts, quickly, and write their pictures."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
EXAMPLES = Path(__file__).parent.parent / "examples"
DEPRECATIONS = ["-W", "error::DeprecationWarning", "-W", "error::FutureWarning"]


def run(script, *options, folder):
    command = [sys.executable, *DEPRECATIONS, str(EXAMPLES / script), *map(str, options)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def test_demo(tmp_path):
    done = run("demo.py", "--quick", folder=tmp_path)
    assert is_picture(tmp_path / "out" / "demo.png")
    assert "out/demo.png" in done.stdout
    assert done.stdout.count("boosted trees") == 2
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("cost_weight ")]
    assert len(rows) == 4
    for cheap, expensive in ((rows[1], rows[0]), (rows[3], rows[2])):  # a higher cost_weight buys less
        assert float(cheap[1]) > float(expensive[1])
        assert float(cheap[2]) <= float(expensive[2])
    assert not done.stderr


def test_command(tmp_path):
    done = run("command.py", "--quick", folder=tmp_path)
    out = tmp_path / "out" / "command"
    assert {"train.csv", "test.csv", "prices.csv", "frontier"} <= {path.name for path in out.iterdir()}
    assert "blood draw,5,," in (out / "prices.csv").read_text().splitlines()
    typed = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("$ cstc ")]
    assert typed[:5] == ["prices", "frontier", "predict", "explain", "evaluate"]
    assert (typed[5:] == ["report"]) == (out / "report.html").exists()
    costs = next(line.split() for line in done.stdout.splitlines() if line.startswith("mean cost "))
    assert float(costs[2]) < float(costs[5])  # ours, then that of plain LightGBM
    run("command.py", "--quick", folder=tmp_path)  # a second time, over the files of the first


def test_quadrants(tmp_path):
    done = run("quadrants.py", "--rows", 500, "--cost-weights", 0.03, "--out", "quadrants.png", folder=tmp_path)
    pictures = {"quadrants.png", "quadrants-tree.png", "quadrants-paper.png", "quadrants-paper-tree.png"}
    assert {path.name for path in tmp_path.iterdir()} == pictures
    assert all(is_picture(tmp_path / name) for name in pictures)
    exact, paper = done.stdout.split("Paper(): means (60, 20, -20, -60)")
    assert "Exact(): means (3, 1, -1, -3)" in exact
    assert "mean cost 12.00" in exact
    assert exact.count("buys sign(x), sign(z), y") == 4
    assert "mean cost 12.00" not in paper  # it needs a larger cost_weight
    assert not done.stderr


def test_quadrants_by_the_paper(tmp_path):
    done = run("quadrants.py", "--method", "paper", "--cost-weights", 0.12, folder=tmp_path)
    assert is_picture(tmp_path / "out" / "quadrants.png")
    assert "test MSE 0.00000   mean cost 12.00" in done.stdout
    assert done.stdout.count("cost 12.00   buys sign(x), sign(z), y") == 4
    assert "Exact" not in done.stdout


def test_quadrants_repeated(tmp_path):
    options = ("--states", 2, "--rows", 500, "--cost-weights", 0.03, "--method", "exact")
    done = run("quadrants.py", *options, folder=tmp_path)
    (line,) = (line for line in done.stdout.splitlines() if "MSE < 0.01" in line)
    assert "2 of 2;  all paths buy 2 cheap + 1 expensive: 2 of 2" in line
    assert not list(tmp_path.iterdir())


def test_quadrants_by_distance(tmp_path):
    options = ("--distance", "--states", 1, "--scales", 20, "--cost-weights", 0.05, 0.12)
    options += ("--out", "q.png", "--table", "t/q.md")
    done = run("quadrants.py", *options, folder=tmp_path)
    assert is_picture(tmp_path / "q-distance.png")
    table = (tmp_path / "t" / "q.md").read_text()
    (row,) = (line for line in table.splitlines() if line.startswith("| ("))
    means, distance, exact, *paper = row.strip("| ").split(" | ")
    assert (means, distance) == ("(60, 20, -20, -60)", "40")
    assert exact == paper[0] == "1 of 1 (0 at 12.0)"
    assert len(paper) == 3  # slope 1 and two sharper ones
    assert f"python examples/quadrants.py {' '.join(map(str, options))}" in table
    assert table in done.stdout


def saves_money(printed):
    paid = float(re.search(r"this model   AUC [\d.]+ for ([\d.]+) on average", printed)[1])
    return 0 < paid < 20 and "Why it stopped: " in printed


def saves_time(printed):
    (ours, paid), (plain, all_of_it) = re.findall(r"NDCG@5 ([\d.]+) for ([\d.]+) ms", printed)
    return float(paid) < float(all_of_it) / 3 and float(ours) > 0.95 * float(plain)


def costs_least_in_all(printed):
    totals = dict(re.findall(r"^([a-z ]+?) +look-ups .*in all +([\d.]+)$", printed, re.MULTILINE))
    return len(totals) == 4 and min(totals, key=lambda name: float(totals[name])) == "this model"


TUTORIALS = {"laboratory_tests": saves_money, "paid_lookups": costs_least_in_all, "search_ranking": saves_time}


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorials(name, tmp_path):
    done = run(f"tutorials/{name}.py", folder=tmp_path)
    assert TUTORIALS[name](done.stdout), done.stdout
    assert not done.stderr  # no warning, either
    assert not list(tmp_path.iterdir())


def test_no_tutorial_is_left_out():
    assert set(TUTORIALS) == {path.stem for path in (EXAMPLES / "tutorials").glob("*.py")}


def test_service(tmp_path):
    done = run("service/run.py", folder=tmp_path)
    lines = dict(line.strip().rsplit("  ", 1) for line in done.stdout.splitlines() if "  " in line.strip())
    saved = next(value for name, value in lines.items() if name.startswith("saved"))
    assert 0 < int(saved.strip().rstrip("%")) < 100
    assert done.stdout.count(" complete ") >= 5
    assert "wanted: " in done.stdout
    assert "ended with status 0" in done.stdout
    assert not done.stderr
    assert not list(tmp_path.iterdir())
