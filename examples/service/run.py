"""A service with real sources, from start to end: a table in SQLite and a laboratory behind a slow HTTP service.

    pip install 'cstc[serve,frames]'
    python examples/service/run.py

Trains a model that meets a mean cost on scikit-learn's diabetes data, saves it, starts the laboratory and
``cstc serve``, asks for the progression of patients that none of this has seen, and prints what was paid and what was
saved.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

from cstc import CSTCRegressor
from cstc.datasets import load_diabetes_with_costs

HERE = Path(__file__).parent
MEASURED, SERUM = ["age", "sex", "bmi", "bp"], ["s1", "s2", "s3", "s4", "s5", "s6"]
LABORATORY_SECONDS = 0.1


# ------------------------------------------------------------------------------------------- sources


def fill_clinic(path: Path, patients: pd.DataFrame) -> None:
    """The table that `sources.clinic` reads."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE patients (id INTEGER PRIMARY KEY, age REAL, sex REAL, bmi REAL, bp REAL)")
        rows = [
            (int(i), *map(float, row)) for i, row in zip(patients.index, patients[MEASURED].to_numpy(), strict=True)
        ]
        database.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?)", rows)
    database.close()


class Laboratory:
    """The HTTP service that `sources.laboratory` asks; it takes its time, and counts what it did."""

    def __init__(self, patients: pd.DataFrame) -> None:
        self.analyses: Counter[str] = Counter()
        values = {int(i): row for i, row in zip(patients.index, patients[SERUM].to_dict("records"), strict=True)}
        counts = self.analyses

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                names = query["values"][0].split(",")
                time.sleep(LABORATORY_SECONDS)
                counts.update(names)
                found = values[int(query["patient"][0])]
                content = json.dumps({name: found[name] for name in names}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


# ------------------------------------------------------------------------------------------- service


class Service:
    """``cstc serve`` in a process of its own, and a client for it."""

    def __init__(self, model: Path, database: Path, laboratory: str) -> None:
        self._token = secrets.token_urlsafe(24)
        own = {"CSTC_TOKEN": self._token, "CLINIC_DATABASE": str(database), "LABORATORY": laboratory}
        command = [sys.executable, "-m", "cstc", "serve", str(model), "--extractors", "sources:sources", "--port", "0"]
        self._process = subprocess.Popen(
            command, cwd=HERE, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if " on http" not in line:
            raise RuntimeError(f"the service did not start: {line}{self._process.stdout.read()}")
        self.address = line.split(" on ")[1].split()[0]

    def ask(self, path: str, body: dict | None = None) -> dict:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self.address + path, content, headers), timeout=30) as response:
            return json.load(response)

    def close(self) -> int:
        """Ask the service to end; it answers what is in flight first."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(30)
        finally:
            self._process.kill()
            self._process.communicate()


# ---------------------------------------------------------------------------------------------- story


def train(mean_cost: float) -> tuple[CSTCRegressor, pd.DataFrame, pd.Series]:
    """A model that costs so much on average, and patients that fitting has not seen."""
    X, y, names, costs = load_diabetes_with_costs()
    table, target = pd.DataFrame(X, columns=names), pd.Series(y)
    seen, test = train_test_split(table.index, test_size=0.25, random_state=0)
    model = CSTCRegressor(costs=costs, mean_cost=mean_cost, random_state=0, n_jobs=1)
    return model.fit(table.loc[seen], target[seen]), table.loc[test], target[test]


def show(answer: dict) -> None:
    print(f"  {answer['value']:6.1f}  cost {answer['cost']:4.1f}  {answer['status']:9}", end="")
    print(f"{1000 * answer['seconds']:6.0f} ms  bought {', '.join(answer['items']) or 'nothing'}")


def ask_and_tell(service: Service, patient: pd.Series) -> dict:
    """The other way round: this client fetches by itself what the service says it wants."""
    known = {"age": patient["age"], "sex": patient["sex"]}
    state = service.ask("/sessions", {"known": known, "id": int(patient.name)})  # as in /predict, where it is the row
    while not state["finished"]:
        print(f"  wanted: {', '.join(state['wanted'])} for {sum(state['items'].values()):g}")
        values = {name: patient[name] for name in state["wanted"]}
        state = service.ask(f"/sessions/{state['id']}/tell", {"values": values})
    return service.ask(f"/sessions/{state['id']}/answer", {})


def tell_story(
    service: Service, laboratory: Laboratory, patients: pd.DataFrame, target: pd.Series, full: float
) -> None:
    ids = [int(i) for i in patients.index]
    print("\nFive patients, each bought what its own path needs:")
    for i in ids[:5]:
        show(service.ask("/predict", {"row": i}))
    print("\nThe first again: with a budget of 6, with 50 ms, with the blood already drawn:")
    for limit in ({"budget": 6}, {"deadline": 0.05}, {"paid": ["blood draw"]}):
        show(service.ask("/predict", {"row": ids[0]} | limit))
    print("\nThe first once more, by a client that fetches by itself:")
    answer = ask_and_tell(service, patients.loc[ids[0]])
    print(f"  {answer['value']:6.1f}  cost {answer['cost']:4.1f}")

    began, before = time.perf_counter(), sum(laboratory.analyses.values())
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda i: service.ask("/predict", {"row": i}), ids))
    seconds = time.perf_counter() - began
    cost = np.array([answer["cost"] for answer in answers])
    spared = sum(not any(name in SERUM for name in answer["items"]) for answer in answers)
    print(f"\nAll {len(ids)} patients, 16 at a time, in {seconds:.1f} s:")
    print(f"  paid             {cost.sum():7.0f}, {cost.mean():.1f} for each")
    print(f"  buying all       {full * len(ids):7.0f}, {full:.1f} for each")
    print(f"  saved            {1 - cost.mean() / full:7.0%}")
    print(f"  no blood drawn   {spared / len(ids):7.0%} of the patients")
    print(f"  analyses made    {sum(laboratory.analyses.values()) - before:7} of {6 * len(ids)}")
    print(f"  R²               {r2_score(target, [answer['value'] for answer in answers]):7.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mean-cost", type=float, default=20.0, help="what a patient may cost on average (default 20)")
    options = parser.parse_args()
    began = time.perf_counter()
    model, patients, target = train(options.mean_cost)
    full = model.model_.costs.full_cost
    print(f"trained in {time.perf_counter() - began:.1f} s; all features of a patient cost {full:g}")
    print(f"found for a mean cost of {options.mean_cost:g}: cost_weight_={model.cost_weight_}")
    with tempfile.TemporaryDirectory() as folder:
        path, database = Path(folder) / "model.cstc", Path(folder) / "clinic.sqlite"
        model.save(path)
        fill_clinic(database, patients)
        laboratory = Laboratory(patients)
        print(f"the laboratory answers on {laboratory.address}, after {1000 * LABORATORY_SECONDS:.0f} ms")
        try:
            service = Service(path, database, laboratory.address)
            try:
                print(f"cstc serves on {service.address}")
                tell_story(service, laboratory, patients, target, full)
            finally:
                status = service.close()
            print(f"\nThe service has ended with status {status}.")
        finally:
            laboratory.close()
    print(f"Done in {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
