"""Files that appear whole or not at all: models, pages, tables and whatever else is written for others to read.

With the standard library alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

__all__ = ["whole_file", "write_whole"]

CHUNK = 2**20


def write_whole(path: str, content: bytes) -> None:
    """Write beside the target, then rename: whoever opens `path` sees the old file or the new one."""
    with whole_file(path) as stream:
        stream.write(content)


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A stream to write a file with, which takes its place when all of it is written; after an error it is gone.

    A device or a pipe, such as /dev/null, is not replaced: it is given all that was written, at the end.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with tempfile.TemporaryFile() as waiting:
            yield waiting
            waiting.seek(0)
            with open(path, "wb") as target:
                shutil.copyfileobj(waiting, target, CHUNK)
        return
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"the folder {folder!r} does not exist; make it first, or give another path")
    unfinished = os.path.join(folder, f".cstc-{os.urandom(8).hex()}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(unfinished, flags, 0o666)  # the rights of any new file, by the user's umask
    try:
        with open(descriptor, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    if os.name == "posix":  # the rename itself must reach the disk too
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
