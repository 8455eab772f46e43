"""From a CSV file to a decision by the command alone: prices, frontier, predict, explain, evaluate, report.

    python examples/command.py             about half a minute; all files are in out/command afterwards
    python examples/command.py --quick     fewer and smaller models, for a first look or a test

The data are scikit-learn's diabetes patients, and the prices are an illustration: six values come from one blood draw.
Each line that begins with $ is what you would type yourself.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from cstc.datasets import load_diabetes_with_costs

TARGET = "progression"


def write_tables() -> None:
    """The patients as two files, as a hospital would export them: three of four to learn from, the others to test."""
    X, y, names, _ = load_diabetes_with_costs()
    order = np.random.default_rng(0).permutation(len(y))
    for name, rows in (("train.csv", order[: 3 * len(y) // 4]), ("test.csv", order[3 * len(y) // 4 :])):
        with open(name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*names, TARGET])
            writer.writerows([*map(float, X[row]), float(y[row])] for row in rows)


def fill_in_prices() -> None:
    """What a person does in a spreadsheet: a price on each line, the shared item, and who needs it."""
    costs = load_diabetes_with_costs()[3]
    lines = Path("prices.csv").read_text(encoding="utf-8").splitlines()
    head = lines.index("column,price,requires,holds")
    rows = [line.split(",", 3) for line in lines[head + 1 :]]
    filled = [
        f"{name},{costs.prices[name]:g},{';'.join(costs.requires.get(name, ()))},{rest}" for name, _, _, rest in rows
    ]
    shared = [f"{name},{price:g},," for name, price in costs.prices.items() if name not in {row[0] for row in rows}]
    Path("prices.csv").write_text("\n".join([*lines[: head + 1], *filled, *shared]) + "\n", encoding="utf-8")


def type_in(*arguments: str, most: int | None = None) -> None:
    """Show a command, run it, and show what it prints, the first lines at least."""
    print(f"\n$ {shlex.join(['cstc', *arguments])}", flush=True)
    done = subprocess.run([sys.executable, "-m", "cstc", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    lines = done.stdout.splitlines()
    print("\n".join(lines[:most]), *(["..."] if most is not None and len(lines) > most else []), sep="\n", flush=True)


def affordable(budget: float) -> str:
    """The best model that costs no more on average, from the table that a spreadsheet would open."""
    with open("frontier/table.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if float(row["mean_cost"]) <= budget]
    return f"frontier/{max(rows, key=lambda row: float(row['quality']))['model']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller models")
    parser.add_argument("--out", type=Path, default=Path("out/command"))
    options = parser.parse_args()
    start = perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(options.out / "frontier", ignore_errors=True)  # of the last time
    os.chdir(options.out)
    write_tables()
    print(f"Patients in {options.out}: train.csv and test.csv. What do they cost, and what is worth it?")
    type_in("prices", "train.csv", "--target", TARGET, "-o", "prices.csv")
    fill_in_prices()
    print("(prices.csv is filled in here as you would do it in a spreadsheet; its last line is a blood draw for six)")
    size = ["--n-weights", "4", "--rounds", "10"] if options.quick else ["--n-weights", "12"]
    type_in("frontier", "train.csv", "--target", TARGET, "--prices", "prices.csv", "-o", "frontier", *size)
    model = affordable(12.0)
    print(f"\nFor a mean cost of at most 12 a patient, {model} is the best.")
    type_in("predict", model, "test.csv", "-o", "-", most=4)
    type_in("explain", model, "test.csv", "--row", "1")
    type_in("evaluate", model, "test.csv", "--target", TARGET, "--train", "train.csv")
    if importlib.util.find_spec("cstc.report") is not None:
        type_in("report", "frontier", "--test", "test.csv", "-o", "report.html")
    print(f"\nDone in {perf_counter() - start:.0f} s. All files are in {options.out}; docs/command.md says more.")


if __name__ == "__main__":
    main()
