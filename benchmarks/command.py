"""The command beside Python: the time of `cstc fit`, and the memory and time of `cstc predict`.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/command.py                  # 50,000 rows to fit, 1,000,000 to answer
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/command.py --fit-rows 5000 --predict-rows 100000

The rows are generated: 20 columns, two of them text, five per cent of the values missing.  The command starts, reads,
fits and writes.  It is held to the fit alone in Python, of a table that is in memory, and to a Python program that
starts, reads the same file and fits; all with the same parameters.  They take turns, and the shortest time of each
counts: of wall-clock time, and of the processor's, which says more on a machine that others use, too.  Memory is the
largest resident set of the process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PRICES = "column,price\n" + "".join(f"c{j},{1 + j % 5}\n" for j in range(20))
IN_PYTHON = """
import sys, time
from cstc import CSTCClassifier
from cstc.cli._reading import Reading
from cstc.cli._tables import as_held, open_table, raw_table
table = open_table(sys.argv[1], Reading())
whole = as_held(table, raw_table(table, table.names), table.names, Reading())
X, y = whole.drop_columns(["y"]), whole["y"].to_numpy().astype(int)
started = time.perf_counter(), time.process_time()
CSTCClassifier(costs=sys.argv[2], random_state=0, n_jobs=1).fit(X, y)
print(time.perf_counter() - started[0], time.process_time() - started[1])
"""


def write_rows(path: Path, n: int, seed: int) -> None:
    """A table of 20 columns and a target of two classes, written in blocks."""
    import pyarrow
    import pyarrow.csv

    rng, writer = np.random.default_rng(seed), None
    for start in range(0, n, 100_000):
        m = min(100_000, n - start)
        X = rng.normal(size=(m, 20))
        margin = X[:, 0] + X[:, 1] * (X[:, 2] > 0) + 0.5 * X[:, 3] - (X[:, 4] > 1) + rng.normal(size=m)
        columns = {f"c{j}": np.round(X[:, j], 6) for j in range(18)}
        columns |= {f"c{j}": np.array(["red", "green", "blue"])[(X[:, j] > 0) * 1 + (X[:, j] > 1)] for j in (18, 19)}
        gone = rng.random((m, 20)) < 0.05
        arrays = {name: pyarrow.array(values, mask=gone[:, j]) for j, (name, values) in enumerate(columns.items())}
        block = pyarrow.table(arrays | {"y": (margin > 0).astype(int)})
        writer = writer or pyarrow.csv.CSVWriter(str(path), block.schema)
        writer.write_table(block)
    if writer is not None:
        writer.close()


def run(command: list[str]) -> tuple[float, float, float, str]:
    """Seconds, seconds of the processor, MiB at the most, and what was printed."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    printed, said = process.stdout.read(), process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {said}")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit-rows", type=int, default=50_000)
    parser.add_argument("--predict-rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    cstc = [sys.executable, "-m", "cstc"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, new, prices, model = (
            str(folder / each) for each in ("train.csv", "new.csv", "prices.csv", "model.cstc")
        )
        Path(prices).write_text(PRICES)
        write_rows(Path(train), options.fit_rows, 0)
        fit = [*cstc, "fit", train, "--target", "y", "--prices", prices, "-o", model, "--jobs", "1", "--quiet"]
        python, command, memory = [], [], 0.0
        for _ in range(options.repeats):
            wall, processor, _, printed = run([sys.executable, "-c", IN_PYTHON, train, prices])
            python.append([*map(float, printed.split()), wall, processor])
            *times, used, _ = run(fit)
            command.append(times)
            memory = max(memory, used)
        alone, whole, ours = np.min(python, 0)[:2], np.min(python, 0)[2:], np.min(command, 0)
        for k, what in enumerate(("wall clock", "processor")):
            print(f"fit of {options.fit_rows:,} x 20, {what}: {ours[k]:.1f} s by the command; {memory:.0f} MiB")
            print(f"  {ours[k] / alone[k]:.2f} times the fit alone in Python, {alone[k]:.1f} s")
            print(f"  {ours[k] / whole[k]:.2f} times a program that starts, reads and fits, {whole[k]:.1f} s")
        write_rows(Path(new), options.predict_rows, 1)
        for target in ("answers.csv", "answers.parquet"):
            seconds, _, memory, _ = run([*cstc, "predict", model, new, "-o", str(folder / target), "--quiet"])
            print(f"predict of {options.predict_rows:,} x 20 into {target}: {seconds:.1f} s, {memory:.0f} MiB at most")


if __name__ == "__main__":
    main()
