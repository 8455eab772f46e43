"""Time and memory of a part of `scale.py`, told and kept in files while it runs."""

from __future__ import annotations

import datetime
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cstc.whole_file import write_whole

EVERY = 30.0  # seconds between two lines
SAMPLED = 0.2  # and between two looks at the memory
GIB = 2.0**30


def keep(path: Path, document: Any) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(os.path.realpath(path), (json.dumps(document, indent=1) + "\n").encode())


def kept(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def say(what: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {what}", flush=True)


def resident() -> int:
    """Bytes of this process that lie in memory."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:  # not on Linux: the most so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return pages * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Time and memory of a part, told and kept while it runs.

    A part that was killed has several runs, and what one of them had not finished is done again: the sum of their times
    is more than one run would have taken.
    """

    def __init__(self, name: str, work: Path):
        self.name, self.path = name, work / f"{name}.json"
        self.found = kept(self.path)
        self.found.setdefault("runs", []).append({})
        self._doing, self._over = "", threading.Event()

    def doing(self, what: str) -> None:
        self._doing = what
        say(f"{self.name}: {what}")

    def keep(self, **more: Any) -> None:
        self.found |= more
        keep(self.path, self.found)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time, and memory beyond what lies there before."""
        run, before, most = self.found["runs"][-1], resident(), resident()
        started, cpu = time.perf_counter(), time.process_time()

        def look() -> None:
            run["seconds"], run["cpu"] = time.perf_counter() - started, time.process_time() - cpu
            run["input_gib"], run["beyond_gib"] = before / GIB, (most - before) / GIB
            run["maxrss_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB

        def sample() -> None:
            nonlocal most
            told, parent = time.perf_counter(), os.getppid()
            while not self._over.wait(SAMPLED):
                if os.getppid() != parent:  # who started this was killed, and may start it again
                    os._exit(1)
                most = max(most, resident())
                if time.perf_counter() - told >= EVERY:
                    told = time.perf_counter()
                    look()
                    self.keep()
                    here = (resident() - before) / GIB
                    say(
                        f"{self.name}: {self._doing}, {run['seconds']:.0f} s, {here:.2f} GiB beyond the input, "
                        f"{run['beyond_gib']:.2f} at most"
                    )

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            look()
            self.keep()
        run["finished"] = True
        self.keep()
