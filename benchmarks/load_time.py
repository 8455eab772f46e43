"""How long `cstc.load` takes in a fresh process, beside `import numpy`.

    OMP_NUM_THREADS=1 python benchmarks/load_time.py [--model FILE] [--runs 15]

Each time is that of a process of its own, measured inside it: from before the first import until numpy is there,
or until the model is loaded (numpy included).  The two take turns, and the medians are compared.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 3.0
TIMED = "import sys, time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
IMPORT_NUMPY = TIMED.format("import numpy")
LOAD = TIMED.format("import cstc; cstc.load(sys.argv[1])")


def seconds(code: str, *arguments: str) -> float:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout)


def make_model(path: Path) -> None:
    """The defaults of the estimators on a data set with 30 features, without any pruning of learners by cost."""
    from sklearn.datasets import load_breast_cancer

    import cstc

    X, y = load_breast_cancer(return_X_y=True)
    cstc.CSTCClassifier(cost_weight=0.0, early_stopping=None, random_state=0, n_jobs=1).fit(X, y).save(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model file; one is trained if none is given")
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or Path(folder) / "model.cstc"
        if options.model is None:
            make_model(path)
        seconds(IMPORT_NUMPY), seconds(LOAD, str(path))  # once for the file cache
        numpy_times, load_times = [], []
        for _ in range(options.runs):
            numpy_times.append(seconds(IMPORT_NUMPY))
            load_times.append(seconds(LOAD, str(path)))
        size = os.path.getsize(path)
    numpy_time, load_time = statistics.median(numpy_times), statistics.median(load_times)
    ratio = load_time / numpy_time
    print(f"model file                {size / 1024:8.1f} KiB")
    print(f"import numpy              {1000 * numpy_time:8.1f} ms")
    print(f"import cstc, cstc.load    {1000 * load_time:8.1f} ms")
    print(f"ratio                     {ratio:8.2f}    at most {LIMIT:g}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
