"""The examples run from start to end as plain scripts, quickly, and write their pictures."""

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
    for cheap, dear in ((rows[1], rows[0]), (rows[3], rows[2])):  # a higher cost_weight buys less
        assert float(cheap[1]) > float(dear[1])
        assert float(cheap[2]) <= float(dear[2])
    assert not done.stderr


def test_quadrants(tmp_path):
    done = run("quadrants.py", "--rows", 500, "--cost-weights", 0.03, "--out", "quadrants.png", folder=tmp_path)
    assert is_picture(tmp_path / "quadrants.png")
    default, paper = done.stdout.split('method="paper"')
    assert "mean cost 12.00" in default
    assert default.count("buys sign(x), sign(z), y") == 4
    assert "test MSE" in paper


def test_quadrants_repeated(tmp_path):
    done = run("quadrants.py", "--states", 2, "--rows", 500, "--cost-weights", 0.03, folder=tmp_path)
    lines = [line for line in done.stdout.splitlines() if "MSE < 0.01" in line]
    assert len(lines) == 2
    assert "2 of 2;  all paths buy 2 cheap + 1 expensive: 2 of 2" in lines[0]


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
