"""The zip that a model file is: its members, their digest, and what they may take.

Members are stored as they are, in a fixed order, with a fixed date: the same members give the same bytes on every
machine, and a file cannot unpack to more than its own size.  The digest covers the format, the version and the name,
the length and the content of every member but the manifest.  Sizes are checked before anything of that size is made.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

from .file_encoding import check_keys, json_of, read_json
from .file_versions import DOCUMENT, LATEST, MANIFEST, MIXTURE, QUERIES, contents_of
from .validate import ModelFileError, fail, shown

__all__ = ["CHUNK", "MAX_BYTES", "pack", "unpack"]

FORMAT = "cstc-model"
MAX_BYTES = 256 * 2**20
JSON_SHARE = 16  # JSON may take this part of the bytes: as Python objects it takes up to 25 times its size
MAX_MANIFEST_BYTES = 2**16
MAX_DIRECTORY_BYTES = 2**16
CHUNK = 2**20


def _digest(version: int, members: Mapping[str, bytes | bytearray]) -> str:
    digest = hashlib.sha256(f"{FORMAT} {version}\n".encode())
    for name, content in members.items():
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def pack(version: int, members: Mapping[str, bytes]) -> bytes:
    """The file of all members but the manifest, in the order of their version."""
    manifest = {"format": FORMAT, "version": version, "sha256": _digest(version, members)}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in ((MANIFEST, json_of(manifest)), *members.items()):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # the same on every system
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return packed.getvalue()


def unpack(stream: BinaryIO, max_bytes: int) -> tuple[int, dict[str, bytearray]]:
    """The version, and all members but the manifest, once their names, sizes and digest are found right."""
    size = stream.seek(0, os.SEEK_END)
    if size > max_bytes:
        fail(f"it has {size} bytes and the limit is {max_bytes}; a larger max_bytes allows it")
    _check_end(stream, size)
    try:
        with zipfile.ZipFile(stream) as archive:
            infos = _check_directory(archive.infolist(), size, max_bytes)
            manifest = _read_manifest(_read_member(archive, infos[MANIFEST]))
            contents = contents_of(manifest["version"], infos.keys())
            if infos.keys() != {MANIFEST, *contents}:
                missing, strange = {MANIFEST, *contents} - infos.keys(), infos.keys() - {MANIFEST, *contents}
                fail(
                    f"its members are not those of a model: missing {sorted(missing)}, strange {shown(sorted(strange))}"
                )
            members = {name: _read_member(archive, infos[name]) for name in contents}
    except ModelFileError:
        raise
    except Exception as error:  # zipfile raises a dozen kinds of errors on damaged files, not all of them its own
        raise ModelFileError(f"it cannot be read as a zip: {str(error)[:200]}") from error
    if _digest(manifest["version"], members) != manifest["sha256"]:
        fail("its content does not have the digest that its manifest names: the file was damaged or changed")
    return manifest["version"], members


def _check_end(stream: BinaryIO, size: int) -> None:
    """Bound the zip's directory: zipfile makes objects of all of it before anybody can ask how long it is."""
    stream.seek(max(0, size - 42))
    tail = stream.read(42)
    end = tail[-22:]
    if len(tail) < 42 or end[:4] != b"PK\x05\x06" or end[20:] != b"\0\0" or tail[:4] == b"PK\x06\x07":
        fail("it does not end as a model file does: it is cut off, or it is no model file")
    if int.from_bytes(end[12:16], "little") > MAX_DIRECTORY_BYTES:
        fail("it lists more members than a model has")


def _check_directory(infos: list[zipfile.ZipInfo], size: int, max_bytes: int) -> dict[str, zipfile.ZipInfo]:
    by_name: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.orig_filename
        if not re.fullmatch(r"[A-Za-z0-9_]+(?:[./][A-Za-z0-9_]+)*", name):
            fail(f"the member name {shown(name)} is not allowed: no absolute names, no '..', letters and digits only")
        if name in by_name:
            fail(f"the member {shown(name)} is there twice")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
            fail(f"the member {shown(name)} is compressed or encrypted; a model file stores its members as they are")
        texts = dict.fromkeys((MANIFEST, MIXTURE, QUERIES), MAX_MANIFEST_BYTES)
        texts[DOCUMENT] = max_bytes // JSON_SHARE
        limit = texts.get(name, size)
        if info.file_size > limit:
            fail(f"the member {shown(name)} claims {info.file_size} bytes, more than the {limit} that it may have")
        by_name[name] = info
    total = sum(info.file_size for info in infos)
    if total > min(size, max_bytes):
        fail(f"its members claim {total} bytes together, the file has {size}")
    if MANIFEST not in by_name:
        fail(f"it has no {MANIFEST}: it is no model file")
    return by_name


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytearray:
    content, at = bytearray(info.file_size), 0
    with archive.open(info) as member:
        while at < len(content):
            chunk = member.read(min(CHUNK, len(content) - at))
            if not chunk:
                fail(f"the member {shown(info.filename)} ends after {at} of {len(content)} bytes")
            content[at : at + len(chunk)] = chunk
            at += len(chunk)
    return content


def _read_manifest(raw: bytearray) -> dict[str, Any]:
    manifest = read_json(MANIFEST, raw)
    if manifest.get("format") != FORMAT:
        fail(f"its format is {shown(manifest.get('format'))}, not {FORMAT!r}: it is no model file")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        fail(f"its version is {shown(version)}; it must be a whole number from 1 to {LATEST}")
    if version > LATEST:
        fail(
            f"it has version {shown(version)} of the format and this cstc reads up to {LATEST}; a later cstc reads it"
        )
    check_keys(MANIFEST, manifest, {"format": (str,), "version": (int,), "sha256": (str,)})
    return manifest
