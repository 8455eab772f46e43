"""What tests of the command share: calling it, and a small world of files."""

import csv
import io

import numpy as np
from click.testing import CliRunner

from cstc.cli import main

QUICK = ("--rounds", "5", "--jobs", "1")


def call(*arguments, status=0, stdin=None):
    """The result of a command; what it prints and what it says apart."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == status, result.output + repr(result.exception)
    assert "Traceback" not in result.output
    return result


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def small_table(n=160, seed=0):
    """Numbers, true and false, text, missing values, and three targets, as lines of CSV: a header, then rows."""
    rng = np.random.default_rng(seed)
    age, glucose, bmi = rng.normal(50, 10, n), rng.normal(100, 20, n), rng.normal(28, 4, n)
    risk = (age - 50) / 10 + (glucose - 100) / 10 + rng.normal(size=n)
    smoker, city = rng.random(n) < 0.3, rng.choice(["Köln", "Paris", "Rome"], n)
    lines = [["id", "age", "glucose", "bmi", "smoker", "city", "ill", "stage", "risk", "query"]]
    for k in range(n):
        sugar = "" if k % 11 == 5 else f"{glucose[k]:.1f}"
        numbers = [f"p{k}", f"{age[k]:.2f}", sugar, f"{bmi[k]:.2f}", str(bool(smoker[k])).lower(), str(city[k])]
        stage = ["none", "early", "late"][int(np.digitize(risk[k], [-1, 1]))]
        lines.append([*numbers, str(int(risk[k] > 0)), stage, f"{risk[k]:.4f}", f"q{k // 8}"])
    return lines


def as_text(lines, separator=","):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(lines)
    return text.getvalue()


def without(lines, *names):
    kept = [at for at, name in enumerate(lines[0]) if name not in names]
    return [[line[at] for at in kept] for line in lines]


PRICES = """column,price,requires
age,1,
glucose,15.5,blood draw
bmi,1,
smoker,0,
city,0.5,
blood draw,2.1,
"""
DROPPED = ("--drop", "id", "--drop", "stage", "--drop", "risk", "--drop", "query")
