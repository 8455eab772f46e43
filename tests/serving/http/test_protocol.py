"""Clients that never finish what they begin are cut off, and others do not notice."""

import contextlib
import json
import socket
import threading
import time

import numpy as np
import pytest
import uvicorn

from cstc.serving import OnDemandPredictor
from cstc.serving.http.app import Limits, create_app
from cstc.serving.http.server import _listen, configure
from serving.worlds import Sources, random_world

LIMITS = Limits(head_seconds=0.6, head_bytes=4000, body_seconds=0.6, body_bytes=5000)
HEALTH = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture(scope="module")
def port():
    """A service in a thread, as `serve` runs it."""
    world = random_world(np.random.default_rng(4), "multiclass", missing=False)
    sources = Sources(np.random.default_rng(5), world.rows, instant=True)
    with OnDemandPredictor(world.model, sources.extractors) as predictor, _listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(configure(create_app(predictor, limits=LIMITS), LIMITS))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(10)


@contextlib.contextmanager
def connected(port, first=b""):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(first)
        yield connection


def drip(connection, part, most=5.0):
    """Send a little again and again until the other side hangs up: the seconds that took, and what was received."""
    began, received = time.perf_counter(), b""
    connection.settimeout(0.1)
    while time.perf_counter() - began < most:
        try:
            connection.sendall(part)
            got = connection.recv(65536)
            if not got:
                break
            received += got
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        raise AssertionError(f"still connected after {most} s")
    return time.perf_counter() - began, received


def read_answer(connection):
    """One answer: its status and its JSON."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65536)
    return int(head.split()[1]), json.loads(body) if body else None


@pytest.mark.parametrize(
    ("first", "part"),
    [(b"GET /health HTTP/1.1\r\n", b"X: y\r\n"), (b"G", b"E"), (b"GET /health HTTP/1.1\r\nX: ", b"y")],
    ids=["headers", "first line", "one header"],
)
def test_a_head_that_never_ends_is_cut_off(port, first, part):
    with connected(port, first) as connection:
        seconds, received = drip(connection, part)
    assert 0.4 < seconds < 3
    assert received.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_is_cut_off(port):
    with connected(port) as connection:
        began = time.perf_counter()
        assert connection.recv(100) == b""
        assert 0.4 < time.perf_counter() - began < 3


def test_others_are_served_meanwhile(port):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(port, b"GET /health HTTP/1.1\r\nX: ")) for _ in range(100)]
        for connection in slow:
            connection.sendall(b"y")
        with connected(port, HEALTH) as quick:
            began = time.perf_counter()
            assert read_answer(quick)[0] == 200
            assert time.perf_counter() - began < 0.5
        for connection in slow:
            assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_the_second_request_of_a_connection_has_the_same_limit(port):
    with connected(port, HEALTH) as connection:
        assert read_answer(connection)[0] == 200
        connection.sendall(HEALTH)
        assert read_answer(connection)[0] == 200
        seconds, received = drip(connection, b"G")
    assert 0.4 < seconds < 3
    assert received.startswith(b"HTTP/1.1 408 ")


def test_a_head_that_comes_slowly_and_in_time_is_answered(port):
    with connected(port) as connection:
        for start in range(0, len(HEALTH), 8):
            connection.sendall(HEALTH[start : start + 8])
            time.sleep(0.02)
        assert read_answer(connection)[0] == 200
        time.sleep(LIMITS.head_seconds + 0.2)  # the limit is that of the head, not of the connection
        connection.sendall(HEALTH)
        assert read_answer(connection)[0] == 200


def test_a_head_that_is_too_long_is_refused(port):
    long = b"GET /health HTTP/1.1\r\nHost: here\r\nX: " + b"y" * 4000
    with connected(port, long + b"\r\n\r\n") as connection:
        assert b" 431 " in connection.recv(65536).partition(b"\r\n")[0]
    with connected(port, long) as connection:  # without an end
        _, received = drip(connection, b"y" * 4000)
    assert received.startswith(b"HTTP/1.1 400 ")


POST = b"POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"


def test_a_body_that_never_ends_is_refused_and_then_cut_off(port):
    with connected(port, POST + b"Content-Length: 4000\r\n\r\n{") as connection:
        seconds, received = drip(connection, b" ")
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not come within 0.6 s" in received
    assert 0.8 < seconds < 4


def test_a_body_in_pieces_that_never_ends_is_cut_off(port):
    with connected(port, POST + b"Transfer-Encoding: chunked\r\n\r\n") as connection:
        _, received = drip(connection, b"1\r\n \r\n")
    assert received.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_is_too_long_is_refused_and_then_cut_off(port):
    with connected(port, POST + b"Content-Length: 6000000\r\n\r\n{") as connection:
        _, received = drip(connection, b" ")
    assert received.startswith(b"HTTP/1.1 413 ")


def test_a_body_that_nobody_reads_is_cut_off(port):
    with connected(port, b"GET /health HTTP/1.1\r\nHost: here\r\nContent-Length: 6000000\r\n\r\n{") as connection:
        _, received = drip(connection, b" ")
    assert received.startswith(b"HTTP/1.1 200 ")
