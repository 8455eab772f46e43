"""A frontier on a Dask cluster: what it adds, what more cores would save, and more rows than a worker can hold.

    python benchmarks/cluster.py                                  overhead, cores and bytes; nothing else may run
    python benchmarks/cluster.py --part beyond --work FOLDER      20 million x 50 rows with two small workers; an hour
    python benchmarks/cluster.py --out results/cluster.md         also write what is printed

overhead    the frontier of 50,000 x 20 by two workers of one thread, against two threads of this process.
cores       the same frontier on 8, 32 and 128 cores, computed from the times of its tasks and from what depends on
            what: a task begins when a core is free and what it needs is there, the widest first.  What the driver does
            alone is taken as it is; so is the longest chain of tasks, which no core can shorten.
bytes       what workers read for 50 million x 50 rows in single precision, from names and sizes of row groups alone.
beyond      rows in Parquet (written into --work once), two workers limited to 1.5 GiB each: the frontier of all rows,
            and the same method where every ensemble learns from the same rows, one sample that a worker can hold.
            Rows that judge, and so the stages, are the same; here workers have no limit, since they keep what they
            read again and again.  Both are judged by the same new rows, in pairs.
            Then all rows are predicted for, by a process with the same limit.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import heapq
import json
import os
import platform
import resource
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import dask
import distributed
import lightgbm
import numpy as np
from distributed import Client, LocalCluster
from sklearn.datasets import make_classification

import cstc
from cstc import CSTCClassifier, Experts, Frontier
from cstc.cluster import InFolder, core_of_folder
from cstc.cluster.samples import FolderSamples
from cstc.cluster.workers import Workers
from cstc.folders import Folder, RowGroup

N, D = 50_000, 20
CORES = (8, 32, 128)
GIB = 1 << 30
MEMORY = 1.5  # GiB of a worker
BEYOND = {"rows": 20_000_000, "columns": 50, "group": 250_000, "groups_of_a_file": 4}
ROWS_PER_FIT = 2_000_000  # of 50 columns in single precision: three quarters of what a worker may hold
TEST_ROWS = 200_000


def say(line: str, out: Path | None) -> None:
    print(line, flush=True)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def prices(n_columns: int) -> np.ndarray:
    return np.random.default_rng(0).choice([1.0, 2.0, 5.0, 10.0, 20.0], n_columns)


def small_world() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(N, D, n_informative=10, n_redundant=4, flip_y=0.05, random_state=0)


def small_frontier() -> Frontier:
    estimator = CSTCClassifier(costs=prices(D), method=Experts(fallbacks=False), random_state=0)
    return Frontier(estimator)


def local_cluster(**options: Any) -> LocalCluster:
    warnings.filterwarnings("ignore", "Port .* is already in use")
    return LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", **options)


# -- overhead and cores ------------------------------------------------------------------------------------------------


class Ran(NamedTuple):
    """A task that was given out."""

    key: str
    batch: int  # those that were asked for together
    after: tuple[int, ...]  # batches that had ended when it was given out
    size: int
    kind: str


class Watched(Workers):
    """Workers that remember which tasks were asked for together, and after which ones."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        Watched.last = self
        self.ran: list[Ran] = []
        self.waits: list[tuple[float, float]] = []  # while somebody waited
        self._batches, self._ended = 0, []
        self._asked = threading.local()

    def results(self, wanted, done=lambda task: None):
        with self._lock:
            self._asked.batch, self._asked.after = self._batches, tuple(self._ended)
            self._batches += 1
        batch = self._asked.batch
        began = time.perf_counter()
        try:
            return super().results(wanted, done)
        finally:
            with self._lock:
                self.waits.append((began, time.perf_counter()))
                self._ended.append(batch)

    def submit(self, task):
        future = super().submit(task)
        self.ran.append(Ran(future.key, self._asked.batch, self._asked.after, task.size, type(task).__name__))
        return future


def overhead(out: Path | None, keep: dict[str, Any]) -> None:
    X, y = small_world()
    here, there = [], []
    with local_cluster() as cluster, Client(cluster) as client:
        for _ in range(3):
            began = time.perf_counter()
            small_frontier().fit(X, y)
            here.append(time.perf_counter() - began)
            began = time.perf_counter()
            small_frontier().fit(X, y, executor=client)
            there.append(time.perf_counter() - began)
    ratio = min(there) / min(here)
    say(
        f"overhead: frontier of {N:,} x {D}: two workers of one thread {min(there):.1f} s, two threads here "
        f"{min(here):.1f} s: {ratio:.2f} (must 1.2; best of three, in turns)",
        out,
    )
    keep["overhead"] = {"here": here, "there": there, "ratio": ratio}


def total(spans: list[tuple[float, float]]) -> float:
    """The time that is covered by at least one of some spans."""
    found, end = 0.0, -np.inf
    for first, last in sorted(spans):
        found += max(0.0, last - max(first, end))
        end = max(end, last)
    return found


def makespan(ran: list[Ran], seconds: dict[str, float], n_cores: int) -> float:
    """Time of all tasks on so many cores: each begins when its predecessors are done and a core is free."""
    batches: dict[int, list[Ran]] = defaultdict(list)
    for task in ran:
        batches[task.batch].append(task)
    left = {batch: len(tasks) for batch, tasks in batches.items()}
    waiting = {batch: {other for other in tasks[0].after if other in left} for batch, tasks in batches.items()}
    ready: list[tuple[int, str]] = []
    owner = {task.key: task for task in ran}
    begun: set[int] = set()

    def release() -> None:
        for batch, needs in waiting.items():
            if batch not in begun and not needs:
                begun.add(batch)
                for task in batches[batch]:
                    heapq.heappush(ready, (-task.size, task.key))

    release()
    now, running = 0.0, []
    while ready or running:
        while ready and len(running) < n_cores:
            _, key = heapq.heappop(ready)
            heapq.heappush(running, (now + seconds[key], key))
        now, key = heapq.heappop(running)
        batch = owner[key].batch
        left[batch] -= 1
        if not left[batch]:
            for needs in waiting.values():
                needs.discard(batch)
            release()
    return now


def cores(out: Path | None, keep: dict[str, Any]) -> None:
    X, y = small_world()
    plain, cstc.cluster.workers.Workers = cstc.cluster.workers.Workers, Watched
    try:
        with local_cluster() as cluster, Client(cluster) as client, distributed.get_task_stream(client) as stream:
            began = time.perf_counter()
            small_frontier().fit(X, y, executor=client)
            whole = time.perf_counter() - began
            time.sleep(1)
    finally:
        cstc.cluster.workers.Workers = plain
    workers = Watched.last
    seconds = defaultdict(float)
    for each in stream.data:
        for step in each["startstops"]:
            seconds[each["key"]] += step["stop"] - step["start"]
    alone = whole - total(workers.waits)
    busy = sum(seconds[task.key] for task in workers.ran)
    chain = makespan(workers.ran, seconds, 1 << 20)
    kinds = []
    for kind, name in (("Grow", "ensembles"), ("Hear", "predictions")):
        own = [seconds[task.key] for task in workers.ran if task.kind == kind]
        kinds.append(f"{len(own)} {name} {sum(own):.1f} s")
    say(
        f"cores: {len(workers.ran)} tasks ({', '.join(kinds)}), {busy:.1f} s of one core; the driver alone "
        f"{alone:.1f} s (orders, gates and validation, with two cores); longest chain of tasks {chain:.1f} s; measured "
        f"on 2 cores {whole:.1f} s",
        out,
    )
    for n_cores in (2, *CORES):
        found = alone + makespan(workers.ran, seconds, n_cores)
        say(f"  {n_cores:>3} cores: {found:.1f} s computed, of which {alone + chain:.1f} s no core can shorten", out)
        keep[f"{n_cores} cores"] = found
    keep |= {"tasks": len(workers.ran), "driver": alone, "chain": chain, "of one core": busy, "2 cores measured": whole}


def reading(out: Path | None, keep: dict[str, Any]) -> None:
    """50 million rows: what is read, from the names of row groups; stages as of a chain that doubles its columns."""
    n, d, group = 50_000_000, 50, 250_000
    groups = tuple(RowGroup(f"{k // 4}.parquet", k % 4, group) for k in range(n // group))
    stored = InFolder(Folder("/", groups, (*(f"x{j}" for j in range(d)), "y")), "y")
    core, samples = core_of_folder(stored, ROWS_PER_FIT, None)
    widths = [d, *np.unique(np.linspace(1, d, 12).astype(int)).tolist() * 2]
    n_members, cell = 2, 4
    fits = [samples.of(k) for k in range(len(widths) * n_members)]
    read = [len(part) * (width + 1) * cell for part, width in zip(fits, np.repeat(widths, n_members), strict=True)]
    seen = {piece for part in fits for piece in part.stored.pieces or ()}
    rows = sum(piece.n_rows for piece in seen)
    say(
        f"bytes: {n:,} x {d} in single precision ({n * (d + 1) * cell / 1e9:.1f} GB), rows_per_fit={ROWS_PER_FIT:,}: "
        f"{len(fits)} ensembles (12 stages of two orders, 2 members) read {sum(read) / 1e9:.1f} GB, each "
        f"{min(read) / 1e6:.0f} to {max(read) / 1e6:.0f} MB; they learn from {rows / n:.0%} of the rows; the driver "
        f"holds {core.n_rows:,} rows",
        out,
    )
    for n_workers in (2, 8, 32):
        say(f"  {n_workers:>2} workers: {sum(read) / n_workers / 1e9:.2f} GB each", out)
    keep["bytes"] = {"read": sum(read), "largest": max(read), "rows taught": rows}


# -- beyond memory -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Rows whose classes are noisy, so that more of them are worth something; drawn in blocks."""

    n_columns: int

    def block(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([7, seed])
        X = rng.normal(size=(n, self.n_columns)).astype(np.float32)
        score = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.7 * X[:, 3] * (X[:, 4] > 0) + 0.5 * np.abs(X[:, 5])
        score += 0.3 * (X[:, 6:26] * np.linspace(0.2, 1, 20)).sum(axis=1)
        for k in range(26, 46, 2):
            score += 0.3 * X[:, k] * np.sign(X[:, k + 1])
        return X, (score + 1.5 * rng.logistic(size=n) > 0.3).astype(np.int8)


def write_rows(folder: Path, n: int, options: argparse.Namespace) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    world, group, per_file = World(options.columns), BEYOND["group"], BEYOND["groups_of_a_file"]
    folder.mkdir(parents=True, exist_ok=True)
    n_files = -(-n // (group * per_file))
    for number in range(n_files):
        path = folder / f"part-{number:03d}.parquet"
        if path.exists():
            continue
        writer = None
        for k in range(number * per_file, (number + 1) * per_file):
            size = min(group, n - k * group)
            if size <= 0:
                break
            X, y = world.block(size, k)
            table = pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y})
            writer = writer or pq.ParquetWriter(path.with_suffix(".tmp"), table.schema, compression="none")
            writer.write_table(table, row_group_size=group)
        if writer:
            writer.close()
            path.with_suffix(".tmp").rename(path)
        print(f"  written {number + 1} of {n_files} files", flush=True)


def beyond(out: Path | None, keep: dict[str, Any], options: argparse.Namespace) -> None:
    work = options.work
    rows = work / "rows"
    write_rows(rows, options.rows, options)
    world = World(options.columns)
    X_val, y_val = world.block(50_000, 1_000_000)
    X_new, y_new = world.block(TEST_ROWS, 1_000_001)
    names = [f"x{j}" for j in range(options.columns)]
    import pandas as pd

    val, new = (pd.DataFrame(X, columns=names) for X in (X_val, X_new))
    val["y"] = y_val
    found = {}
    for name in ("all rows", "one sample"):
        frontier = Frontier(
            CSTCClassifier(
                costs=prices(options.columns),
                n_weak_learners=options.rounds,
                learning_rate=options.learning_rate,
                method=Experts(rows_per_fit=options.rows_per_fit, folds=options.members, fallbacks=False),
                random_state=0,
            ),
            n_weights=options.weights,
            checkpoint=work / f"checkpoint {name}",
        )
        one = one_sample() if name == "one sample" else contextlib.nullcontext()
        memory = 0 if name == "one sample" else f"{MEMORY}GiB"  # 0: no limit; who reads the same rows again keeps them
        with local_cluster(memory_limit=memory) as cluster, Client(cluster) as client, one:
            began = time.perf_counter()
            frontier.fit(rows, target="y", X_val=val, executor=client)
            took = time.perf_counter() - began
            peaks = client.run(largest)
        found[name] = frontier
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        say(
            f"beyond: {name}: {sum(g.n_rows for g in Folder.open(rows).groups):,} x {options.columns}, "
            f"{options.members} members of {options.rows_per_fit:,} rows, {options.rounds} rounds of "
            f"{options.learning_rate:g}, {took:.0f} s; workers at most "
            f"{max(peaks.values()) / GIB:.2f} GiB of {memory}, the driver {own / GIB:.2f} GiB",
            out,
        )
        keep[name] = {"seconds": took, "workers": list(peaks.values()), "driver": own}
    compare(found, new, y_new, out, keep)
    model = found["all rows"].models_[-1]
    model.save(work / "model.cstc")
    predict_all(work, rows, out, keep)


@contextlib.contextmanager
def one_sample() -> Iterator[None]:
    """All ensembles get the rows of the first one."""
    of = FolderSamples.of
    FolderSamples.of = lambda self, number: of(self, 0)
    try:
        yield
    finally:
        FolderSamples.of = of


def largest() -> int:
    """What this process held at most, in bytes; `ru_maxrss` would begin with what its parent held when it was born."""
    with open("/proc/self/status") as lines:
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def losses(model: Any, new: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = np.clip(model.predict_proba(new)[np.arange(len(y)), y], 1e-9, 1)
    return -np.log(p), model.predict_cost(new)


def compare(found: dict[str, Frontier], new: Any, y: np.ndarray, out: Path | None, keep: dict[str, Any]) -> None:
    """At each of some budgets, log loss of what each frontier offers, in pairs."""
    full = max(float(model.predict_cost(new[:2000]).mean()) for model in found["all rows"].models_)
    for share in (0.1, 0.25, 0.5, 1.0):
        told = {name: losses(frontier.best(mean_cost=share * full * 1.001), new, y) for name, frontier in found.items()}
        worse = told["all rows"][0] - told["one sample"][0]
        error = worse.std() / np.sqrt(len(worse))
        say(
            f"  at {share:g} of the full cost: log loss all rows {told['all rows'][0].mean():.4f} (cost "
            f"{told['all rows'][1].mean():.1f}), one sample {told['one sample'][0].mean():.4f} (cost "
            f"{told['one sample'][1].mean():.1f}); difference {worse.mean():+.4f}, standard error {error:.4f}",
            out,
        )
        keep[f"at {share:g}"] = {"difference": float(worse.mean()), "error": float(error)}


def predict_all(work: Path, rows: Path, out: Path | None, keep: dict[str, Any]) -> None:
    code = (
        "import sys, time, cstc\n"
        "began, n, cost = time.perf_counter(), 0, 0.0\n"
        "for part in cstc.predict_partitions(cstc.load(sys.argv[1]), sys.argv[2]):\n"
        "    n += part.num_rows; cost += sum(part['cost'].to_numpy())\n"
        "took = time.perf_counter() - began\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(n, cost / n, 1024 * int(peak.split()[1]), took)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(work / "model.cstc"), str(rows)], check=True, capture_output=True, text=True
    )
    n, cost, peak, took = map(float, done.stdout.split())
    say(
        f"  predicted for {n:,.0f} rows in {took:.0f} s, mean cost {cost:.1f}; the process at most "
        f"{peak / GIB:.2f} GiB",
        out,
    )
    keep["predict"] = {"rows": n, "seconds": took, "peak": peak}


PARTS = ("overhead", "cores", "bytes", "beyond")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS[:3]))
    parser.add_argument("--out", type=Path, help="also write what is printed to this file; figures go beside it")
    parser.add_argument("--work", type=Path, help="folder for the rows of `beyond`, about 4 GB, and its checkpoints")
    parser.add_argument("--rows", type=int, default=BEYOND["rows"])
    parser.add_argument("--columns", type=int, default=BEYOND["columns"])
    parser.add_argument("--rows-per-fit", type=int, default=ROWS_PER_FIT)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=0.2, help="of `beyond`: large, since rounds are few")
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--weights", type=int, default=8)
    options = parser.parse_args()
    if "beyond" in options.part and options.work is None:
        parser.error("--part beyond needs --work, a folder with room for 5 GB")
    say(
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, cstc {cstc.__version__}, LightGBM {lightgbm.__version__}, Dask "
        f"{dask.__version__}, distributed {distributed.__version__}\n",
        options.out,
    )
    keep: dict[str, Any] = {}
    for part in options.part:
        if part == "beyond":
            beyond(options.out, keep, options)
        else:
            {"overhead": overhead, "cores": cores, "bytes": reading}[part](options.out, keep)
        if options.out:
            options.out.with_suffix(".json").write_text(json.dumps(keep, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
