"""What commands write: whole or not at all, into a file or to standard output."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from ..whole_file import whole_file
from ._input import Input

__all__ = ["TableWriter", "check_output", "check_writable", "table_writer", "whole_output", "write_output"]

STANDARD = "-"
ENDINGS = {"parquet": (".parquet",), "feather": (".feather", ".arrow")}  # all else is CSV


def check_output(path: str, *inputs: Input | None) -> None:
    """That a file can be written there, before any work is done; no input is written over."""
    if path == STANDARD:
        return
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        return  # a device or a pipe
    real = os.path.realpath(path)
    folder = os.path.dirname(real)
    if os.path.isdir(real):
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {os.path.dirname(path)}; make it first")
    check_writable(folder, path)
    for source in inputs:
        if source is not None and os.path.exists(real) and os.path.samefile(source.path, real):
            raise ValueError(f"{path} is read by this very command; write to another file")


def check_writable(folder: str, path: str) -> None:
    """That files can be made in a folder: one is made, and taken away; rights alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PermissionError(f"{path} cannot be written: {error.strerror} in {folder}") from None


@contextmanager
def whole_output(path: str) -> Iterator[BinaryIO]:
    """A stream of bytes that becomes the file when all is written; standard output waits for the end, too."""
    if path != STANDARD:
        # a link leads to the file that is replaced; /dev/stdout leads nowhere
        real = os.path.realpath(path)
        with whole_file(real if os.path.isfile(real) or not os.path.exists(path) else path) as stream:
            yield stream
        return
    with tempfile.TemporaryFile() as waiting:
        yield waiting
        waiting.seek(0)
        shutil.copyfileobj(waiting, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def write_output(path: str, text: str) -> None:
    """A text, which ends with a new line."""
    with whole_output(path) as stream:
        stream.write((text if text.endswith("\n") else text + "\n").encode())


class TableWriter:
    """Writes a table block by block; of which kind, the name of the file says."""

    def __init__(self, stream: BinaryIO, path: str):
        name = path.lower()
        self._packed = gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) if name.endswith(".gz") else None
        self._stream: Any = self._packed or stream
        self._kind = next((kind for kind, ends in ENDINGS.items() if name.endswith(ends)), "csv")
        self._writer: Any = None

    def write(self, block: Any) -> None:
        if self._writer is None:
            self._writer = self._open(block.schema)
        self._writer.write_table(block)

    def _open(self, schema: Any) -> Any:
        from ._arrow import pyarrow

        if self._kind == "parquet":
            return pyarrow.parquet.ParquetWriter(self._stream, schema)
        if self._kind == "feather":
            return pyarrow.ipc.new_file(self._stream, schema)
        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        return pyarrow.csv.CSVWriter(self._stream, schema, write_options=options)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._packed is not None:
            self._packed.close()


@contextmanager
def table_writer(path: str) -> Iterator[TableWriter]:
    """A writer of blocks, whose file is there when all is written."""
    with whole_output(path) as stream:
        writer = TableWriter(stream, path)
        yield writer
        writer.close()
