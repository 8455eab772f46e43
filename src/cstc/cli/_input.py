"""A file or standard input as bytes: what kind it is, found from its first bytes and not from its name."""

from __future__ import annotations

import atexit
import codecs
import gzip
import hashlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO

__all__ = ["Input", "open_input"]

CHUNK = 2**20
GZIP = b"\x1f\x8b"
#: What the first bytes of files that are not CSV look like.
MAGIC = {b"PAR1": "parquet", b"ARROW1": "feather", b"FEA1": "old feather", b"PK\x03\x04": "zip", GZIP: "gzip"}
MAGIC |= {b"\xd0\xcf\x11\xe0": "excel", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}
#: Encodings that a file names itself, by the bytes at its start.
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
REFUSED = {
    "old feather": "is of Feather's first version, which is no longer read; write it again as Feather, Parquet or CSV",
    "zip": "is a zip file or an Excel workbook; save the sheet as CSV (UTF-8), or unpack the file",
    "excel": "is an Excel workbook; save the sheet as CSV (UTF-8)",
    "bzip2": "is packed with bzip2; unpack it, or pack it with gzip",
    "xz": "is packed with xz; unpack it, or pack it with gzip",
    "zstd": "is packed with zstd; unpack it, or pack it with gzip",
}


@dataclass(frozen=True)
class Input:
    """A file that can be read as often as needed.

    Attributes
    ----------
    path : str
        Where its bytes lie; for standard input that is a file of our own, which goes with the program.
    name : str
        What it is called in messages.
    """

    path: str
    name: str

    def open(self) -> BinaryIO:
        """Its bytes, unpacked."""
        opened: Any = gzip.open(self.path, "rb") if self._outer == "gzip" else open(self.path, "rb")
        return opened

    @cached_property
    def _outer(self) -> str:
        with open(self.path, "rb") as stream:
            return _kind_of(stream.read(8))

    @cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked; an error where there is none, or where they cannot be unpacked."""
        try:
            with self.open() as stream:
                found = stream.read(CHUNK)
        except (EOFError, gzip.BadGzipFile, OSError) as error:
            if self._outer != "gzip":
                raise
            raise ValueError(f"{self.name} is a damaged gzip file: {error}") from None
        if not found:
            raise ValueError(f"{self.name} is empty; it should have a line with the names of the columns, then rows")
        return found

    @cached_property
    def kind(self) -> str:
        """One of "csv", "parquet" and "feather"."""
        kind = _kind_of(self.head)
        if kind in REFUSED:
            raise ValueError(f"{self.name} {REFUSED[kind]}")
        if kind == "gzip" or (kind in ("parquet", "feather") and self._outer == "gzip"):
            raise ValueError(f"{self.name} is packed twice; unpack it")
        return kind

    @cached_property
    def marked_encoding(self) -> str | None:
        """The encoding that the file names at its start, if it does."""
        return next((name for mark, name in MARKS.items() if self.head.startswith(mark)), None)

    @property
    def size(self) -> int:
        """Bytes, as they lie there."""
        return os.path.getsize(self.path)

    def description(self) -> dict[str, Any]:
        """Which file it is: its name, its size and its digest."""
        digest = hashlib.sha256()
        with open(self.path, "rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
        return {"name": os.path.basename(self.name), "bytes": self.size, "sha256": digest.hexdigest()}


def _kind_of(head: bytes) -> str:
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "csv")


def open_input(path: str) -> Input:
    """The file of a name; standard input for ``-``, which is copied, since errors are looked for afterwards."""
    if path != "-":
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder; give a file")
        if not os.path.exists(path):
            raise FileNotFoundError(f"{path}: there is no such file")
        if not os.path.isfile(path):  # a pipe of the shell, such as <(command)
            with open(path, "rb") as stream:
                return Input(_copied(stream), path)
        return Input(path, path)
    return Input(_copied(sys.stdin.buffer), "standard input")


def _copied(stream: Any) -> str:
    descriptor, path = tempfile.mkstemp(prefix="cstc-")
    atexit.register(_remove, path)
    with open(descriptor, "wb") as copy:
        shutil.copyfileobj(stream, copy, CHUNK)
    return path


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
