"""Mutated model files: each loads a model that works, or raises `ModelFileError`; never anything else.

    python tests/fuzz_model_file.py --mutations 100000 --seed 7     (or: make fuzz)
    python tests/fuzz_model_file.py --seed 7 --only 4711            one mutation again, with its traceback

Mutation i of seed s is made from the random numbers of (s, i) alone, so that a failure can be repeated.  The
address space is limited to 1 GiB above what the program has before the first mutation, and a mutation that takes
longer than its time is a failure.  A mutation that says it must be refused is a failure if it loads.
"""

import argparse
import atexit
import contextlib
import functools
import io
import json
import os
import re
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

import cstc
from model_files import (
    TASKS,
    array_names,
    as_version_1,
    as_version_2,
    get,
    pack,
    pick,
    put,
    random_mixture,
    random_model,
    random_query_tree,
    smoke,
    unpack,
    with_digest,
)

MEMORY_LIMIT = 2**30
TIME_LIMIT = 20.0

# -- mutations of the bytes --------------------------------------------------------------------------------------
# Each takes the random numbers and the bytes of a file and returns the new bytes and whether they must be refused.


def flip_bits(rng, raw):
    changed = bytearray(raw)
    for _ in range(int(rng.integers(1, 9))):
        changed[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
    return bytes(changed), False


def truncate(rng, raw):
    return raw[: int(rng.integers(len(raw)))], True


def cut_or_paste(rng, raw):
    start, length = int(rng.integers(len(raw))), int(rng.integers(1, 200))
    new = [b"", rng.bytes(length), b"\0" * length, b"\xff" * length, raw[start : start + length] * 2]
    return raw[:start] + pick(rng, new) + raw[start + length * int(rng.integers(2)) :], False


def exchange_blocks(rng, raw):
    a, b, c, d = sorted(int(at) for at in rng.integers(len(raw), size=4))
    return raw[:a] + raw[c:d] + raw[b:c] + raw[a:b] + raw[d:], False


def junk_around(rng, raw):
    junk = rng.bytes(int(rng.integers(1, 300)))
    return pick(rng, [(junk + raw, False), (raw + junk, True), (junk, True), (b"", True), (raw + raw, False)])


def damage_zip_records(rng, raw):
    """Sizes, offsets, methods, flags and names in the zip's own records, set to what a parser may stumble over."""
    changed = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        sign, length = pick(rng, [(b"PK\x01\x02", 46), (b"PK\x03\x04", 30), (b"PK\x05\x06", 22)])
        starts = [match.start() for match in re.finditer(re.escape(sign), raw)]
        width = pick(rng, [1, 2, 4])
        at = pick(rng, starts) + int(rng.integers(4, length - width + 1))
        value = pick(
            rng, [0, 1, 8, 9, 12, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, len(raw), int(rng.integers(2**32))]
        )
        changed[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(changed), False


def repeat_directory(rng, raw):
    """Many entries of the directory that all point at the same bytes: small file, large content."""
    end = raw.rindex(b"PK\x05\x06")
    size, offset = struct.unpack("<II", raw[end + 12 : end + 20])
    name_at = raw.rindex(b"PK\x01\x02")
    entry = raw[name_at:end]
    count = pick(rng, [1, 20, 300, 5000])
    copies = b"".join(entry[:46] + f"{k:0{len(entry) - 46}d}".encode() for k in range(count))
    if rng.random() < 0.3:
        copies = entry * count
    total = struct.pack("<HHHHIIH", 0, 0, 0, 0, size + len(copies), offset, 0)
    return raw[:end] + copies + b"PK\x05\x06" + total, True


def zip64(rng, raw):
    """The 64-bit directory of large archives, with sizes of its own."""
    end = raw.rindex(b"PK\x05\x06")
    size, offset = struct.unpack("<II", raw[end + 12 : end + 20])
    size64 = pick(rng, [size, 2**40, 2**63, 0])
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, size64, offset)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    return raw[:end] + record + locator + raw[end:], True


@functools.cache
def deflated_bomb():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _unpacked(base_files()[0]).items():
            if name != "arrays/threshold.npy":
                archive.writestr(zipfile.ZipInfo(name), content)
        with archive.open("arrays/threshold.npy", "w") as member:
            header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (134217728,), }".ljust(117) + b"\n"
            member.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
            for _ in range(1024):
                member.write(bytes(2**20))
    return packed.getvalue()


def zip_bomb(rng, raw):
    """A member of 1 GiB of zeros in 1 MiB, or one that only claims to be stored."""
    bomb = bytearray(deflated_bomb())
    if rng.random() < 0.5:  # claim that all is stored, in the directory or in both places
        for sign, at in ((b"PK\x01\x02", 10), (b"PK\x03\x04", 8)):
            for found in re.finditer(re.escape(sign), bytes(bomb)):
                bomb[found.start() + at : found.start() + at + 2] = b"\0\0"
            if rng.random() < 0.5:
                break
    return bytes(bomb), True


# -- mutations of the members ------------------------------------------------------------------------------------
# Each changes the members in place and returns whether the result must be refused.


def flip_member_bits(rng, members):
    name = pick(rng, list(members))
    members[name] = flip_bits(rng, members[name])[0]
    return False


def swap_arrays(rng, members):
    a, b = (f"arrays/{pick(rng, array_names(members))}.npy" for _ in range(2))
    members[a], members[b] = members[b], members[a]
    return False


def take_from_another(rng, members):
    other = _unpacked(pick(rng, base_files()))
    for name in rng.choice(list(members), size=int(rng.integers(1, 4))):
        if name != "manifest.json" and str(name) in other:  # files of version 1 have less
            members[str(name)] = other[str(name)]
    return False


def retype(rng, members):
    name = pick(rng, array_names(members))
    array = get(members, name)
    kind = pick(rng, ["<i8", "<i4", "<i2", "<u4", "<f8", "<f4", ">f8", ">i4", "|b1", "|u1", "<c16", "|S8", "<U2"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        put(members, name, array.astype(kind))
    return np.dtype(kind) != array.dtype


class Payload:
    """If ever unpickled, it would say so."""

    def __reduce__(self):
        return (os.mkdir, (f"{scratch()}/executed",))


def pickled(rng, members):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([Payload()], dtype=object), version=(1, 0), allow_pickle=True)
    members[f"arrays/{pick(rng, array_names(members))}.npy"] = stream.getvalue()
    return True


def reshape(rng, members):
    name = pick(rng, array_names(members))
    array = get(members, name)
    longer = np.concatenate([array.ravel(), array.ravel()[-1:], np.zeros(1, dtype=array.dtype)])
    shapes = [array[:-1], array[:0], longer, array[None], array[..., None], array.ravel(), array.T, np.zeros(())]
    put(members, name, pick(rng, shapes).astype(array.dtype))
    return False


def lie_in_header(rng, members):
    name = f"arrays/{pick(rng, array_names(members))}.npy"
    start = 10 + int.from_bytes(members[name][8:10], "little")
    shapes = [
        "(99999999999,)",
        "(999999999999, 999999999999)",
        "(-1,)",
        "()",
        "(1, 1, 1)",
        "(1e3,)",
        "(" * 60 + ")" * 60,
    ]
    shapes += ["(9" * 20 + ",)", "__import__('os').getcwd()", "(0, 99999999999)", "(True,)", "(\x00,)"]
    descr = pick(rng, ["'<f8'", "'<i4'", "'|O'", "[('a', '<f8')]"])
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {pick(rng, shapes)}, }}".encode().ljust(117) + b"\n"
    version = pick(rng, [b"\x01\x00", b"\x02\x00", b"\x00\x00", b"\x01\x00"])
    length = pick(rng, [len(header), len(header), 0, 0xFFFF])
    members[name] = b"\x93NUMPY" + version + length.to_bytes(2, "little") + header + members[name][start:]
    return True


def no_number(rng, members):
    """NaN or infinity where a number must be."""
    name = pick(rng, array_names(members, "f"))
    array = get(members, name)
    array.flat[int(rng.integers(array.size))] = pick(rng, [np.nan, np.inf, -np.inf])
    put(members, name, array)
    return True


def other_number(rng, members):
    name = pick(rng, array_names(members, "f"))
    array = get(members, name)
    values = [1e308, -1e308, 1e299, -1.0, 0.0, -0.0, 5e-324, -1e-300]
    array.flat[rng.integers(array.size, size=3)] = pick(rng, values)
    put(members, name, array)
    return False


def other_integer(rng, members):
    name = pick(rng, array_names(members, "i"))
    array = get(members, name)
    bounds = np.iinfo(array.dtype)
    near = [-2, -1, 0, 1, len(array), len(array) - 1, int(rng.integers(-5, 50)), int(array.max()), int(array.max()) + 1]
    values = [bounds.min, bounds.max, bounds.min + 1, *near]
    for _ in range(int(rng.integers(1, 4))):
        array[int(rng.integers(len(array)))] = min(max(pick(rng, values), bounds.min), bounds.max)
    put(members, name, array)
    return False


def permute_integers(rng, members):
    name = pick(rng, array_names(members, "i"))
    put(members, name, rng.permutation(get(members, name)))
    return False


def other_flags(rng, members):
    name = pick(rng, array_names(members, "b"))
    raw = bytearray(members[f"arrays/{name}.npy"])
    raw[-1] = pick(rng, [0, 1, 2, 255])
    members[f"arrays/{name}.npy"] = bytes(raw)
    return raw[-1] > 1


def circle_in_learner(rng, members):
    """A split leads to itself or to another split of any learner, or a whole branch is cut into a circle."""
    splits = np.flatnonzero(get(members, "feature") >= 0)
    if not len(splits):
        return False
    name = pick(rng, ["left", "right"])
    children = get(members, name)
    at, to = (int(k) for k in rng.choice(splits, 2))
    same = children[at] == to
    children[at] = to
    put(members, name, children)
    if rng.random() < 0.5:  # let both sides change places, so that some counts still fit
        put(members, "left", rng.permutation(get(members, "left")))
        return False
    return not same


def closed_circle(rng, members):
    """Three positions that lead to each other and that no root leads to: every count of arrivals is right."""
    n = len(get(members, "feature"))
    if not len(array_names(members, "i")) or not n:
        return False
    for name in ("feature", "threshold", "missing_left", "zero_is_missing", "category_start", "category_count"):
        array = get(members, name)
        add = {"feature": [0, 0, -1, -1], "category_start": [-1] * 4}.get(name, [0] * 4)
        put(members, name, np.concatenate([array, np.array(add, dtype=array.dtype)]))
    for name, add in (("value", [0.0] * 4), ("linear_feature", [-1] * 4)):
        array = get(members, name)
        put(members, name, np.concatenate([array, np.array(add, dtype=array.dtype)]))
    put(members, "left", np.concatenate([get(members, "left"), np.array([n + 1, n, n + 2, n + 3], dtype="<i4")]))
    put(members, "right", np.concatenate([get(members, "right"), np.array([n + 2, n + 3, n + 2, n + 3], dtype="<i4")]))
    return True


def circle_in_tree(rng, members):
    name = pick(rng, ["upper", "lower"])
    children = get(members, name)
    at = int(rng.integers(len(children)))
    children[at] = int(rng.integers(at + 1))
    put(members, name, children)
    return True


def deep_learner(rng, members):
    """One weak learner that is a chain of thousands of splits."""
    depth = pick(rng, [900, 1200, 50_000])
    n = 2 * depth + 1
    chain = np.arange(n, dtype="<i4")
    left, right, feature = chain.copy(), chain.copy(), np.full(n, -1, dtype="<i4")
    left[:depth], right[:depth], feature[:depth] = chain[1 : depth + 1], chain[depth + 1 :], 0
    none = np.full(n, -1, dtype="<i4")
    arrays = {"left": left, "right": right, "feature": feature, "category_start": none, "linear_feature": none}
    arrays |= {"threshold": np.zeros(n), "value": np.ones(n), "category_count": np.zeros(n, dtype="<i4")}
    arrays |= {"missing_left": np.zeros(n, dtype=bool), "zero_is_missing": np.zeros(n, dtype=bool)}
    arrays |= {"roots": np.zeros(1, dtype="<i4"), "category_left": np.zeros(0, dtype=bool)}
    for kind in ("predict", "route"):
        arrays |= {f"{kind}_places": np.zeros(0, dtype="<i8"), f"{kind}_values": np.zeros(0)}
    for name, array in arrays.items():
        put(members, name, array)
    return depth > 1000


def many_nodes(rng, members):
    """A small file whose weights, written out in full, would take gigabytes."""
    n = pick(rng, [3000, 20_000])
    chain = np.arange(1, n + 1, dtype="<i4")
    lower = -1 - np.arange(n, dtype="<i4")
    chain[-1] = lower[-1]
    put(members, "upper", chain)
    put(members, "lower", lower)
    put(members, "thresholds", np.zeros(n))
    put(members, "predict_intercepts", np.zeros((n, get(members, "predict_intercepts").shape[1])))
    if n > 10_000 or rng.random() < 0.5:
        here = np.arange(10_000, dtype="<i4")
        for name in ("roots", "left", "right"):
            put(members, name, here)
        return True
    return False


def strange_names(rng, members):
    names = ["../model.json", "/etc/passwd", "arrays/../../x.npy", "C:\\x", "..\\x", "arrays\\left.npy", "a/b", ""]
    names += ["arrays//left.npy", "./model.json", "arrays/", "a\0b", "arrays/left.npy ", "é.npy", "x" * 5000]
    name = pick(rng, names)
    old = pick(rng, [*members, None])
    content = rng.bytes(10) if old is None else members[old]
    if old is not None and rng.random() < 0.5:
        del members[old]
    members[name] = content
    return True


def missing_member(rng, members):
    del members[pick(rng, list(members))]
    return True


def other_version(rng, members):
    manifest = json.loads(members["manifest.json"])
    others = {1, 2, 3} - {manifest["version"]}  # all of them are read, and hold different things
    manifest["version"] = pick(rng, [0, *others, 4, 99, 10**30, -1, "1", "2", 1.0, 1.5, True, None, [1], {"1": 1}])
    if rng.random() < 0.3:
        manifest["added later"] = {"x": 1}
    members["manifest.json"] = json.dumps(manifest).encode()
    return True


def other_manifest(rng, members):
    texts = ["{}", "[]", "null", "", "{", "[" * 50_000, '{"format": 1}', '{"format": "cstc-model"}', "\ufeff{}", '"x"']
    for digest in ("null", "[]", '""', "1e999"):
        texts.append(f'{{"format": "cstc-model", "version": 1, "sha256": {digest}}}')
    members["manifest.json"] = pick(rng, texts).encode()
    return True


def other_json(rng, members):
    """A value somewhere in model.json becomes another, appears twice, or is gone."""
    document = json.loads(members["model.json"])
    places = [(document, key) for key in document]
    inner = [document["categories"], document["classes"] or {}, document.get("training", {})]
    for container in [*document.values(), *(value for entry in inner for value in entry.values())]:
        if isinstance(container, dict):
            places += [(container, key) for key in container]
        if isinstance(container, list):
            places += [(container, at) for at in range(len(container))]
    container, key = pick(rng, places)
    strange = [None, True, 0, 1, -1, 2**31, 10**30, 0.5, 1e308, float("nan"), float("inf"), "", "x", "x0", "x" * 10_000]
    strange += [[], {}, [[]], ["x0"], ["x0", "x0"], {"x0": ["a"]}, "\ud800", "softmax", "identity", "logistic", "\0"]
    strange += [list(range(1000)), [str(k) for k in range(1000)], {"type": "float16", "values": [1e6, 2.0]}]
    strange += [
        {"rows": 0},
        {"rows": 5, "mean_cost": None, "reached": [1.0], "trained": None},
        "2026-11-16",
        [2.0, -1.0],
    ]
    strange += [{"type": "str", "values": ["a\0", "a"]}, {"type": "int8", "values": [1000, 1]}]
    choice = int(rng.integers(4))
    if choice == 0:
        del container[key]
    elif choice == 1 and isinstance(container, list):
        container.append(container[key])
    elif choice == 2 and isinstance(container, dict):
        container[f"{key} "] = container[key]
    else:
        container[key] = pick(rng, strange)
    members["model.json"] = json.dumps(document).encode()
    return False


def json_bomb(rng, members):
    """Text that becomes much larger as objects, or deeper than the stack."""
    texts = ["[" * 10**6, "[]," * 10**6, '{"a":' * 10**5, "1" * 10**5, '"' + "x" * 10**6]
    text = pick(rng, texts)
    wrapped = (
        '{"features": [%s], "categories": {}, "classes": null, "link": "identity", "items": [], "evaluation": 0.0}'
    )
    members["model.json"] = pick(rng, [text, wrapped % text, wrapped % text.rstrip(",")]).encode()
    return True


BYTE_MUTATIONS = [flip_bits, truncate, cut_or_paste, exchange_blocks, junk_around, damage_zip_records]
BYTE_MUTATIONS += [repeat_directory, zip64, zip_bomb]
MEMBER_MUTATIONS = [flip_member_bits, swap_arrays, take_from_another, retype, pickled, reshape, lie_in_header]
MEMBER_MUTATIONS += [no_number, other_number, other_integer, permute_integers, other_flags, circle_in_learner]
MEMBER_MUTATIONS += [closed_circle, circle_in_tree, deep_learner, many_nodes, strange_names, missing_member]
MEMBER_MUTATIONS += [other_version, other_manifest, other_json, json_bomb]
RARE = {
    zip_bomb: 0.1,
    json_bomb: 0.05,
    deep_learner: 0.1,
    many_nodes: 0.1,
    pickled: 0.3,
    zip64: 0.3,
    missing_member: 0.3,
}
_weights = np.array([RARE.get(mutation, 1.0) for mutation in BYTE_MUTATIONS + MEMBER_MUTATIONS])


def mutate(rng, raw):
    """A mutated file, what was done, and whether it must be refused."""
    mutations = BYTE_MUTATIONS + MEMBER_MUTATIONS
    mutation = mutations[int(rng.choice(len(mutations), p=_weights / _weights.sum()))]
    if mutation in BYTE_MUTATIONS:
        changed, must_refuse = mutation(rng, raw)
        return changed, mutation.__name__, must_refuse
    before = _unpacked(raw)
    members = dict(before)
    must_refuse = mutation(rng, members)
    name = mutation.__name__
    if rng.random() < 0.1:
        second = pick(rng, [no_number, other_number, other_integer, swap_arrays, reshape, flip_member_bits])
        with contextlib.suppress(Exception):  # numpy's own reader may stumble over what the first has left
            second(rng, members)
        name, must_refuse = f"{name}+{second.__name__}", False
    if rng.random() < 0.7:
        if mutation is not other_manifest:
            with contextlib.suppress(KeyError, ValueError):  # where the manifest itself is gone
                members = with_digest(members)
        name += ", digest recomputed"
    else:
        must_refuse |= members != before and members.get("manifest.json") == before["manifest.json"]
        name += ", digest left"
    if rng.random() < 0.05:
        return pack(members, zipfile.ZIP_DEFLATED), f"{name}, deflated", True
    return pack(members), name, must_refuse


# -- the run -----------------------------------------------------------------------------------------------------

_unpacked = functools.cache(unpack)


@functools.cache
def scratch():
    """A folder in memory where there is one, removed at the end."""
    folder = tempfile.mkdtemp(prefix="cstc-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def base_files():
    """Two dozen small models of every task and version: the same in every run, whatever its seed."""
    rng = np.random.default_rng(2013)
    path, files = Path(scratch()) / "base.cstc", []
    for k in range(24):
        cstc.save(random_model(rng, TASKS[k % 3]), path)
        raw = path.read_bytes()
        files.append({0: as_version_1, 1: as_version_2}.get(k % 4, bytes)(raw))
    return files


@functools.cache
def base_mixtures():
    """A few mixtures: their bytes are mutated, and so are the files within them."""
    rng = np.random.default_rng(2014)
    path, files = Path(scratch()) / "base.cstc", []
    for k in range(6):
        cstc.save(random_mixture(rng, TASKS[k % 3]), path)
        files.append(path.read_bytes())
    return files


def mutate_mixture(rng):
    """A mixture with one thing changed: its bytes, one of the models in it, or what joins them."""
    raw = pick(rng, base_mixtures())
    choice = int(rng.integers(3))
    if choice == 0:
        mutation = pick(rng, [flip_bits, truncate, cut_or_paste, exchange_blocks, junk_around, damage_zip_records])
        changed, must_refuse = mutation(rng, raw)
        return changed, f"mixture: {mutation.__name__}", must_refuse
    members = unpack(raw)
    if choice == 1:
        name = pick(rng, ["cheaper.cstc", "costlier.cstc"])
        members[name], what, must_refuse = mutate(rng, members[name])
    else:
        what, must_refuse = "what joins them", True
        changes = [{"share": 1.5}, {"share": -0.1}, {"share": None}, {"share": float("nan")}, {"seed": -1}]
        changes += [{"seed": 10**30}, {"seed": 0.5}, {"more": 1}]
        document = json.loads(members["mixture.json"]) | pick(rng, changes)
        members["mixture.json"] = json.dumps(document).encode()
        if rng.random() < 0.3:
            members["costlier.cstc"] = pick(rng, [raw, b"", members["mixture.json"]])  # a mixture in a mixture
    return pack(with_digest(members)), f"mixture: {what}", must_refuse


@functools.cache
def base_queries():
    """A few models of whole queries."""
    rng = np.random.default_rng(2015)
    path, files = Path(scratch()) / "base.cstc", []
    for number in range(6):
        cstc.save(random_query_tree(rng, n_groups=1 + number % 3), path)
        files.append(path.read_bytes())
    return files


def mutate_queries(rng):
    """A model of whole queries with one thing changed: its bytes, its tree, or by how many places it goes."""
    raw = pick(rng, base_queries())
    choice = int(rng.integers(3))
    if choice == 0:
        mutation = pick(rng, [flip_bits, truncate, cut_or_paste, exchange_blocks, junk_around, damage_zip_records])
        changed, must_refuse = mutation(rng, raw)
        return changed, f"queries: {mutation.__name__}", must_refuse
    members = unpack(raw)
    if choice == 1:
        members["tree.cstc"], what, must_refuse = mutate(rng, members["tree.cstc"])
    else:
        what, must_refuse = "places", True
        document = json.loads(members["queries.json"]) | pick(rng, [{"at": 0}, {"at": -1}, {"at": 2.5}, {"more": 1}])
        members["queries.json"] = json.dumps(document).encode()
        if rng.random() < 0.3:
            members["tree.cstc"] = pick(rng, [raw, b"", members["queries.json"]])
    return pack(with_digest(members)), f"queries: {what}", must_refuse


class TooSlowError(BaseException):
    """Not an Exception: nothing may catch it but the runner."""


def _out_of_time(*_):
    raise TooSlowError


def try_one(seed, number):
    """Mutate, load, use.  Returns what was done and what came of it; raises on anything that must not happen."""
    rng = np.random.default_rng([seed, number])
    kind = rng.random()
    if kind < 0.2:
        raw, name, must_refuse = mutate_mixture(rng) if kind < 0.1 else mutate_queries(rng)
    else:
        raw, name, must_refuse = mutate(rng, pick(rng, base_files()))
    path = Path(scratch()) / "mutated.cstc"
    path.write_bytes(raw)
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                model = cstc.load(path)
            except cstc.ModelFileError as error:
                if len(str(error)) > 2000:
                    raise AssertionError("the message is too long to be read") from error
                return name, "refused"
            finally:
                assert not os.path.exists(f"{scratch()}/executed"), "the file was executed"
            assert not must_refuse, "it was loaded, but should have been refused"
            smoke(model, rng)
            again = Path(scratch()) / "again.cstc"
            cstc.save(model, again)
            assert cstc.load(again).link == model.link
            return name, "loaded"
    except BaseException as error:
        error.add_note(f"mutation: {name}")
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit_memory(more):
    """No more than `more` bytes of address space above what is taken now; returns what is taken (Linux only)."""
    try:
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, resource.getrlimit(resource.RLIMIT_AS)[1]))
        return taken
    except (ImportError, OSError, ValueError):
        print("memory is not limited: this system cannot do it", flush=True)
        return 0


def peak_memory():
    with contextlib.suppress(OSError):
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(status["VmPeak"].split()[0]) * 1024
    return 0


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this one mutation and show its traceback")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGALRM, _out_of_time)
    deflated_bomb()
    taken = limit_memory(MEMORY_LIMIT)
    if options.only is not None:
        print(*try_one(options.seed, options.only))
        return 0
    counts, failures, slowest, start = Counter(), [], 0.0, time.perf_counter()
    for number in range(options.mutations):
        began = time.perf_counter()
        try:
            name, outcome = try_one(options.seed, number)
            counts[name.split("+")[0].split(",")[0].split(":")[0], outcome] += 1
        except (Exception, TooSlowError) as error:
            failures.append(number)
            print(
                f"FAILED: --seed {options.seed} --only {number}: {type(error).__name__}: {str(error)[:300]}", flush=True
            )
            print("".join(traceback.format_exception(error)[-2:]), flush=True)
            if len(failures) == 20:
                break
        slowest = max(slowest, time.perf_counter() - began)
        if (number + 1) % 5000 == 0:
            rate = (number + 1) / (time.perf_counter() - start)
            print(f"{number + 1} of {options.mutations}, seed {options.seed}, {rate:.0f} per second", flush=True)
    for name in [mutation.__name__ for mutation in BYTE_MUTATIONS + MEMBER_MUTATIONS] + ["mixture", "queries"]:
        print(f"{name:20} {counts[name, 'loaded']:7} loaded {counts[name, 'refused']:7} refused")
    loaded, refused = (sum(n for (_, found), n in counts.items() if found == each) for each in ("loaded", "refused"))
    print(
        f"seed {options.seed}: {loaded} loaded and worked, {refused} refused, {len(failures)} failed; "
        f"slowest {slowest:.2f} s, at most {(peak_memory() - taken) / 2**20:.0f} MiB above the start, "
        f"{time.perf_counter() - start:.0f} s in all"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
