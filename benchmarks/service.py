"""The service under load: requests per second and latencies, beside an empty endpoint of the same framework.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/service.py
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/service.py --requests 500 --rounds 2     # a quick look

Two servers are started on 127.0.0.1, each a uvicorn in a process of its own: the service, with a model of 20 features
and sources that answer from memory; and a Starlette application whose only endpoint reads nothing and returns nothing.
Clients with one open connection each send the same request again as soon as the answer is there.  The two servers
take turns, block by block, so that whatever else the machine does hits both.  The generator is plain asyncio streams
with prepared bytes: on a machine with few cores its own time is part of what is measured, for both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cstc

N_FEATURES = 20
N_ROWS = 500
MOST_REQUESTS = 100_000


# --------------------------------------------------------------------------------------------- servers


def train(path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, N_FEATURES))
    y = X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * (X[:, 4] > 0) * X[:, 5] + 0.3 * rng.normal(size=6000)
    prices = rng.choice([1.0, 5.0, 20.0], size=N_FEATURES)
    model = cstc.CSTCRegressor(costs=prices, cost_weight=0.001, random_state=0, n_jobs=1)
    model.fit(X[:5500], y[:5500])
    model.save(path / "model.cstc")
    np.save(path / "rows.npy", X[5500:])
    shape = model.model_.shape
    print(f"model: {shape.n_nodes} nodes, {model.model_.pool.n_learners} weak learners, {N_FEATURES} features")


def serve_model(folder: str) -> None:
    from cstc.serving import OnDemandPredictor, extractor
    from cstc.serving.http.server import serve

    rows = np.load(Path(folder) / "rows.npy").tolist()
    names = [f"x{j}" for j in range(N_FEATURES)]

    @extractor(provides=names[:10], instant=True)
    def first(i: int) -> list[float]:
        return rows[i][:10]

    @extractor(provides=names[10:], instant=True)
    def second(i: int) -> list[float]:
        return rows[i][10:]

    predictor = OnDemandPredictor(cstc.load(Path(folder) / "model.cstc"), [first, second])
    serve(predictor, port=0, on_ready=lambda address: print(address, flush=True))


def serve_nothing() -> None:
    """The same server around an endpoint that does nothing."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    from cstc.serving.http.server import _address, _listen

    async def empty(request):
        return Response(b"{}", media_type="application/json")

    listener = _listen("127.0.0.1", 0)
    print(_address(listener), flush=True)
    app = Starlette(routes=[Route("/predict", empty, methods=["POST"])])
    config = uvicorn.Config(app, ws="none", lifespan="off", log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listener])


class Server:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().strip().rpartition(":")[2])

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.communicate()


# -------------------------------------------------------------------------------------------- clients


def prepare(bodies: list[dict], path: str) -> list[bytes]:
    requests = []
    for body in bodies:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        requests.append(head.encode() + content)
    return requests


async def one_client(port: int, requests: list[bytes], seconds: list[float], statuses: dict[int, int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for request in requests:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            seconds.append(time.perf_counter() - began)
            status = int(head[9:12])
            statuses[status] = statuses.get(status, 0) + 1
    finally:
        writer.close()
        await writer.wait_closed()


class Block(NamedTuple):
    rate: float
    seconds: list[float]


def load(port: int, requests: list[bytes], n_clients: int) -> Block:
    """One block: the requests, shared out among the clients."""
    seconds: list[float] = []
    statuses: dict[int, int] = {}

    async def all_clients() -> float:
        began = time.perf_counter()
        async with asyncio.timeout(120):
            await asyncio.gather(
                *(one_client(port, requests[k::n_clients], seconds, statuses) for k in range(n_clients))
            )
        return time.perf_counter() - began

    wall = asyncio.run(all_clients())
    if set(statuses) != {200}:
        raise RuntimeError(f"not all requests were answered: {statuses}")
    return Block(len(requests) / wall, seconds)


def compare(
    service: Server, empty: Server, bodies: list[dict], path: str, n_clients: int, rounds: int, what: str
) -> float:
    """Print both, and the ratio; the service's requests per second."""
    requests = prepare(bodies, path)
    beside = [request.replace(path.encode(), b"/predict", 1) for request in requests]
    blocks: dict[str, list[Block]] = {"service": [], "empty": []}
    for server, prepared in ((service, requests), (empty, beside)):
        load(server.port, prepared[: len(prepared) // 4 or 1], n_clients)  # warm up
    for _ in range(rounds):
        blocks["empty"].append(load(empty.port, beside, n_clients))
        blocks["service"].append(load(service.port, requests, n_clients))
    table = {}
    for name, found in blocks.items():
        seconds = np.concatenate([block.seconds for block in found])
        p50, p99 = np.percentile(seconds, [50, 99])
        table[name] = (statistics.median(block.rate for block in found), 1000 * p50, 1000 * p99)
    print(f"\nPOST {path}, {what}; {n_clients} connections, {len(requests)} requests in each of {rounds} rounds")
    print(f"{'':10}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}")
    for name in ("empty", "service"):
        print(f"{name:10}{table[name][0]:12.0f}{table[name][1]:10.2f}{table[name][2]:10.2f}")
    ratios = [table["empty"][0] / table["service"][0]]
    ratios += [ours / theirs for ours, theirs in zip(table["service"][1:], table["empty"][1:], strict=True)]
    print(f"{'ratio':10}{ratios[0]:12.2f}{ratios[1]:10.2f}{ratios[2]:10.2f}   (times slower than empty)")
    return table["service"][0]


def main() -> None:
    if sys.argv[1:2] == ["--serve-model"]:
        return serve_model(sys.argv[2])
    if sys.argv[1:2] == ["--serve-nothing"]:
        return serve_nothing()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="requests in a block")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    options = parser.parse_args()
    if options.requests * options.rounds > MOST_REQUESTS:
        parser.error(f"at most {MOST_REQUESTS} requests in all rounds together")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder))
        service, empty = Server("--serve-model", folder), Server("--serve-nothing")
        try:
            bodies: list[dict] = [{"row": i % N_ROWS} for i in range(options.requests)]
            for n_clients in options.clients:
                compare(service, empty, bodies, "/predict", n_clients, options.rounds, "one row with its trail")
            lean = [body | {"trail": False} for body in bodies]
            compare(service, empty, lean, "/predict", options.clients[-1], options.rounds, "one row without trail")
            batch = [{"rows": [{"row": i} for i in range(100)], "trail": False}] * max(16, options.requests // 10)
            most = options.clients[-1]
            rate = compare(service, empty, batch, "/predict/batch", most, options.rounds, "100 rows without trails")
            print(f"{100 * rate:.0f} rows/s in batches")
        finally:
            service.close()
            empty.close()
    return None


if __name__ == "__main__":
    main()
