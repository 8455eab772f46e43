"""Mutations of the source, to see whether the tests can fail.

    python tests/mutate.py --seed 0 --count 60          judge 60 mutations (or: make mutants); called again, it goes on
    python tests/mutate.py --seed 0 --report            the table: caught, survived, equivalent
    python tests/mutate.py --seed 0 --retry             the survivors again, after a test was added
    python tests/mutate.py --seed 0 --equivalent ID "reason"     no test can tell it from the source: draw another one

The draw is a function of the seed and the source.  A mutation is known by its file, its function as that stands, and
the change, so editing one function leaves the mutations of all others, and their results, as they were.  The kinds of
mutations take turns, each as often as the others, and no line is drawn twice.

Before the first mutation every test runs once on the source as it is, to record which lines it reaches and how long
it takes.  Tests that fail there are left out, with a line on the screen.  A mutation is then judged by the tests that
mirror its file, and after those by the other tests that reach its lines, the fastest first, up to a limit of time; what
is left out by the limit stands in the result.  A test that takes far longer than before counts as a catch.  A test
that caught a mutation must pass once more without it, or the catch does not count.

Results are lines of JSON under `.mutants/`, beside what the tests reach.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import difflib
import hashlib
import json
import os
import py_compile
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SESSION = ("session", "way", "values", "bill", "outages", "early")
TARGETS = ("model", "experts", "paper", "costs.py", *(f"serving/{part}.py" for part in SESSION))
COPIED = ("src", "tests", "examples", "benchmarks", "docs")
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.egg-info", "cache", ".cache", ".hypothesis")
UNTIMED = 120.0  # seconds for starting, and for a test whose time is not known


# -- what can be mutated -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutation:
    """One change of one file: bytes `start` to `end` become `new`."""

    id: str
    kind: str
    file: str  # below src/cstc
    line: int
    reach: tuple[int, int]  # a test that runs one of these lines may see the change
    start: int
    end: int
    new: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        before, after = source.decode().splitlines(), self.apply(source).decode().splitlines()
        return "\n".join(list(difflib.unified_diff(before, after, lineterm="", n=1))[2:])


FLIPS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
TERMS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr)
TEXT = (ast.JoinedStr, ast.List, ast.Tuple)
UNTOUCHED_ARGUMENTS = {"strict", "stacklevel"}  # of zip and warn: they say something to the reader only


class Sites(ast.NodeVisitor):
    """All places of a module where it can be mutated, as (kind, statement, node, replacement)."""

    def __init__(self, source: bytes) -> None:
        self.found: list[tuple[str, ast.stmt, ast.AST, str, str]] = []
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self.names: list[str] = []
        self.statement: ast.stmt = ast.Pass()
        self.visit(ast.parse(source))

    def add(self, kind: str, node: ast.AST, new: str) -> None:
        self.found.append((kind, self.statement, node, new, ".".join(self.names)))

    def replace(self, kind: str, node: ast.expr, **changes) -> None:
        changed = copy.copy(node)
        for name, value in changes.items():
            setattr(changed, name, value)
        self.add(kind, node, f"({ast.unparse(changed)})")

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            outer, self.statement = self.statement, node
            super().visit(node)
            self.statement = outer
        else:
            super().visit(node)

    # what is left alone

    def visit_Raise(self, node):
        pass

    visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Raise

    def visit_arg(self, node):
        pass  # its annotation

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_keyword(self, node):
        if node.arg not in UNTOUCHED_ARGUMENTS:
            self.visit(node.value)

    # statements

    def visit_ClassDef(self, node):
        self.names.append(node.name)
        for child in node.body:
            self.visit(child)
        self.names.pop()

    def visit_FunctionDef(self, node):
        self.names.append(node.name)
        self.functions.append(node)
        for child in [*node.args.defaults, *node.args.kw_defaults, *node.body]:
            if child is not None:
                self.visit(child)
        self._return_early(node)
        self.functions.pop()
        self.names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def _return_early(self, function):
        """A return before a statement: of what the function returns in the end, once that has a value."""
        last = function.body[-1]
        returned = last.value if isinstance(last, ast.Return) else None
        parts = returned.elts if isinstance(returned, ast.Tuple) else [returned]
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        known = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        for statement in body:
            simple = isinstance(statement, ast.Return | ast.Raise | ast.Pass | ast.FunctionDef | ast.Assert)
            if not simple or (isinstance(statement, ast.Return) and statement is not last):
                value = ast.unparse(returned) if names and len(names) == len(parts) and known.issuperset(names) else ""
                self.statement = statement
                self.add("return early", statement, f"return {value}".rstrip() + "\n")
            known |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def visit_Assign(self, node):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if "__all__" in names or "__slots__" in names:
            return
        if not names and self.functions and not isinstance(node.targets[0], ast.Tuple):
            self.add("drop a statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self.add("drop a statement", node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call) and self.functions:
            self.add("drop a statement", node, "pass")
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith("warn"):
            return
        self.generic_visit(node)

    def visit_If(self, node):
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self.add("negate a condition", node.test, f"(not ({ast.unparse(node.test)}))")
        self.generic_visit(node)

    visit_IfExp = visit_While = visit_If

    # expressions

    def visit_comprehension(self, node):
        for test in node.ifs:
            self.add("negate a condition", test, f"(not ({ast.unparse(test)}))")
        self.generic_visit(node)

    def visit_Compare(self, node):
        for at, operator in enumerate(node.ops):
            for flipped in FLIPS[type(operator)]:
                self.replace("flip a comparison", node, ops=[*node.ops[:at], flipped(), *node.ops[at + 1 :]])
        self.generic_visit(node)

    def visit_Call(self, node):
        types = isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        for child in [node.func, *node.args[: 1 if types else None], *node.keywords]:
            self.visit(child)

    def visit_BoolOp(self, node):
        self.replace("swap and/or", node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        self.generic_visit(node)

    def visit_BinOp(self, node):
        text = any(_is_text(side) for side in (node.left, node.right))
        if isinstance(node.op, TERMS) and not text:
            self.add("drop a term", node, f"({ast.unparse(node.left)})")
            if not isinstance(node.op, ast.Div):
                sign = "-" if isinstance(node.op, ast.Sub) else ""
                self.add("drop a term", node, f"({sign}({ast.unparse(node.right)}))")
        self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, bool):
            self.add("change a constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            changed = {node.value + 1, node.value - 1 if isinstance(node.value, int) else node.value * 2} - {node.value}
            for value in sorted(changed):
                self.add("change a constant", node, f"({value!r})")


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    return isinstance(node, TEXT) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def mutations_of(file: str, source: bytes) -> list[Mutation]:
    """All mutations of a file; some may change nothing (see `is_change`)."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen, result = Counter(), []
    inside = functions_of(source)
    for kind, statement, node, new, where in Sites(source).found:
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        old = source[start:end].decode()
        if kind == "return early":
            new, end, old = new + " " * node.col_offset, start, ast.unparse(node)
        around = next((text for first, last, text in inside if first <= node.lineno <= last), "")
        key = json.dumps([file, where, around, kind, old, new])
        seen[key] += 1
        identity = hashlib.sha256(f"{key} {seen[key]}".encode()).hexdigest()[:10]
        result.append(Mutation(identity, kind, file, node.lineno, _reach(statement), start, end, new))
    return result


def is_change(mutation: Mutation) -> bool:
    """Whether the file says something else afterwards, and is still a program."""
    source = (ROOT / "src/cstc" / mutation.file).read_bytes()
    try:
        return ast.dump(ast.parse(mutation.apply(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def functions_of(source: bytes) -> list[tuple[int, int, str]]:
    """First line, last line and text of every function that lies in no other one."""
    found = []

    def look(body):
        for node in body:
            if isinstance(node, ast.ClassDef):
                look(node.body)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((node.lineno, node.end_lineno, ast.unparse(node)))

    look(ast.parse(source).body)
    return found


def _reach(statement: ast.stmt) -> tuple[int, int]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):  # a default: whoever calls the function
        return statement.body[0].lineno, statement.end_lineno or 0
    body = getattr(statement, "body", None)
    return statement.lineno, max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or 0


def draw(seed: int, only: list[str] | None = None) -> list[Mutation]:
    """All mutations in the order of the draw: the kinds take turns, a line comes once."""
    by_kind: dict[str, list[Mutation]] = defaultdict(list)
    for file in target_files(ROOT):
        if only is None or any(file == part or file.startswith(f"{part}/") for part in only):
            for mutation in mutations_of(file, (ROOT / "src/cstc" / file).read_bytes()):
                by_kind[mutation.kind].append(mutation)

    def chance(text):
        return hashlib.sha256(f"{seed} {text}".encode()).hexdigest()

    turns = []
    for kind, mutations in by_kind.items():
        mutations.sort(key=lambda mutation: chance(mutation.id))
        turns += [(turn, chance(kind), mutation) for turn, mutation in enumerate(mutations)]
    turns.sort(key=lambda entry: entry[:2])
    drawn, lines = [], set()
    for *_, mutation in turns:
        if (mutation.file, mutation.line) not in lines:
            lines.add((mutation.file, mutation.line))
            drawn.append(mutation)
    return drawn


def target_files(root: Path) -> list[str]:
    package = root / "src/cstc"
    found = []
    for target in TARGETS:
        paths = sorted((package / target).rglob("*.py")) if (package / target).is_dir() else [package / target]
        found += [path.relative_to(package).as_posix() for path in paths if path.name != "__init__.py"]
    return found


# -- running tests, from outside -----------------------------------------------------------------------------------


class Copy:
    """A copy of the project in which one mutation at a time is tried."""

    def __init__(self, parent: Path) -> None:
        self.root = Path(tempfile.mkdtemp(dir=parent))
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.root / name, ignore=NOT_COPIED)
        for path in [*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"]:
            shutil.copy(path, self.root)
        # what is compiled is known again by its text, not by date and size, which a mutation may share with the source
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self.root / "src", quiet=2, invalidation_mode=mode)
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self.environment = os.environ | dict.fromkeys(threads, "1")
        self.environment["PYTHONPATH"] = f"{self.root / 'src'}{os.pathsep}{self.root / 'tests'}"

    def source(self, file: str) -> Path:
        return self.root / "src/cstc" / file

    def pytest(self, orders: dict, seconds: dict[str, float] | None = None, limit: float = 1e9) -> dict:
        """Run tests as `orders` say (see the plugin below); return what the plugin wrote, and how it ended.

        A test that takes ten times as long as `seconds` says, and over 20 seconds, ends the run.
        """
        work = Path(tempfile.mkdtemp(dir=self.root))
        orders = orders | {"report": str(work / "report.json"), "now": str(work / "now")}
        (work / "orders.json").write_text(json.dumps(orders))
        files = sorted({name.split("::")[0] for name in orders["tests"]}) or orders["files"]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "mutate", "-p", "no:cacheprovider", "--tb=no"]
        if orders.get("record"):
            command.remove("-x")
        with (work / "output").open("wb") as output:
            process = subprocess.Popen(
                [*command, "--hypothesis-seed=0", *files],
                cwd=self.root,
                env=self.environment | {"MUTATE_ORDERS": str(work / "orders.json")},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            late = self._watch(process, work / "now", seconds or {}, limit)
        report = {"outcomes": {}, "seconds": {}, "lines": {}}
        if (work / "report.json").exists():
            report = json.loads((work / "report.json").read_text())
        report |= {"late": late, "code": process.returncode, "output": (work / "output").read_text(errors="replace")}
        shutil.rmtree(work)
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)
        return report

    @staticmethod
    def _watch(process, now: Path, seconds: dict[str, float], limit: float) -> str | None:
        """Wait; None, or the test that took too long."""
        begin = since = time.monotonic()
        test = ""
        while True:
            try:
                process.wait(0.1)
                return None
            except subprocess.TimeoutExpired:
                current = now.read_text() if now.exists() else ""
                if current != test:
                    test, since = current, time.monotonic()
                patience = max(20.0, 10.0 * seconds[test]) if test in seconds else UNTIMED
                if time.monotonic() > since + patience or time.monotonic() > begin + limit:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    return test or "the start of the tests"


# -- running tests, from inside: a plugin of pytest ----------------------------------------------------------------
# orders: {"tests": [node ids, in their order] or [] for all, "record": bool, "report": path, "now": path}

if "MUTATE_ORDERS" in os.environ:
    import pytest

    _orders = json.loads(Path(os.environ["MUTATE_ORDERS"]).read_text())
    _report: dict[str, dict] = {"outcomes": {}, "seconds": defaultdict(float), "lines": {}}
    _coverage = None
    if _orders.get("record"):
        import coverage

        package = Path.cwd() / "src/cstc"
        included = [str(package / file) for file in _orders["targets"]]
        _coverage = coverage.Coverage(data_file=None, config_file=False, include=included)
        _coverage.start()

    def pytest_collection_modifyitems(items):
        if _orders["tests"]:
            by_name = {item.nodeid: item for item in items}
            items[:] = [by_name[name] for name in _orders["tests"] if name in by_name]

    _shared = defaultdict(list)  # of each test, the fixtures that it shares with others: what they reach, it reaches

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(item):
        Path(_orders["now"]).write_text(item.nodeid)
        if _coverage is not None:
            _coverage.switch_context(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(fixturedef, request):
        if _coverage is None or fixturedef.scope == "function":
            return (yield)
        _coverage.switch_context(f"shared {fixturedef.baseid} {fixturedef.argname}")
        result = yield
        _coverage.switch_context(Path(_orders["now"]).read_text())
        return result

    def pytest_runtest_setup(item):
        info = getattr(item, "_fixtureinfo", None)
        for fixtures in info.name2fixturedefs.values() if info else ():
            if fixtures[-1].scope != "function":
                _shared[f"shared {fixtures[-1].baseid} {fixtures[-1].argname}"].append(item.nodeid)

    def pytest_runtest_logreport(report):
        _report["seconds"][report.nodeid] += report.duration
        if report.failed or report.nodeid not in _report["outcomes"]:
            _report["outcomes"][report.nodeid] = report.outcome

    def pytest_collectreport(report):
        if report.failed:
            _report["outcomes"][report.nodeid or "collection"] = "failed"

    def pytest_sessionfinish():
        if _coverage is not None:
            _coverage.stop()
            data = _coverage.get_data()
            for file in _orders["targets"]:
                lines = defaultdict(list)
                for line, names in data.contexts_by_lineno(str(package / file)).items():
                    for name in names:
                        for test in _shared.get(name, [name] if name else []):
                            lines[test].append(line)
                _report["lines"][file] = lines
        Path(_orders["report"]).write_text(json.dumps(_report))


# -- what each test reaches ----------------------------------------------------------------------------------------


@dataclass
class Reach:
    """What every test reaches, how long it takes, and which tests fail already."""

    lines: dict[str, dict[str, set[int]]] = field(default_factory=lambda: defaultdict(dict))  # file, test: lines
    seconds: dict[str, float] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def of(self, mutation: Mutation) -> set[str]:
        first, last = mutation.reach
        tests = self.lines.get(mutation.file, {})
        found = {test for test, lines in tests.items() if any(first <= line <= last for line in lines)}
        return found or (set(tests) if self._at_import(mutation) else set())

    @staticmethod
    def _at_import(mutation: Mutation) -> bool:
        """Whether the change is outside of all functions; lines that run at import belong to no test."""
        source = (ROOT / "src/cstc" / mutation.file).read_bytes()
        return not any(first <= mutation.line <= last for first, last, _ in functions_of(source))


def digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def record(folder: Path, parent: Path, workers: int, chunks: list[str]) -> Reach:
    """Run files of tests once on the source as it is; files whose record is still true are not run again."""
    targets = target_files(ROOT)
    sources = digest([ROOT / "src/cstc" / file for file in targets])
    places = {}
    for chunk in chunks:
        files = sorted((ROOT / chunk).rglob("*.py")) if chunk == "src" else [ROOT / chunk]
        places[chunk] = folder / "reach" / f"{chunk.replace('/', '-')}-{sources}-{digest(files)}.json"
    missing = [chunk for chunk in chunks if not places[chunk].exists()]
    (folder / "reach").mkdir(parents=True, exist_ok=True)

    def one(chunk, project):
        begin = time.monotonic()
        report = project.pytest({"tests": [], "files": [chunk], "targets": targets, "record": True}, limit=3600)
        if report["late"] or not report["seconds"]:
            report["outcomes"].setdefault(chunk, "failed")
        report["outcomes"] = {test: how for test, how in report["outcomes"].items() if how == "failed"}
        output = report.pop("output") if report["outcomes"] else ""
        report.pop("output", None)
        places[chunk].write_text(json.dumps(report))
        print(f"recorded {chunk}: {len(report['seconds'])} tests, {time.monotonic() - begin:.0f} s", flush=True)
        if not report["seconds"]:
            print(output[-2000:], flush=True)

    if missing:
        print(f"recording what {len(missing)} files of tests reach", flush=True)
        in_copies(missing, one, parent, workers)
    for place in places.values():
        for old in place.parent.glob(f"{place.stem.rsplit('-', 2)[0]}-*-*.json"):
            if old != place:
                old.unlink()
    reach = Reach()
    for place in places.values():
        report = json.loads(place.read_text())
        reach.seconds |= report["seconds"]
        reach.broken |= set(report["outcomes"])
        for file, by_test in report["lines"].items():
            reach.lines[file] |= {test: set(lines) for test, lines in by_test.items()}
    for test in sorted(reach.broken):
        print(f"fails without any mutation, and is left out: {test}", flush=True)
    return reach


def in_copies(tasks: list, work, parent: Path, workers: int) -> None:
    """`work(task, copy)` for all tasks, by some workers with a copy of the project each."""
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    errors: list[BaseException] = []

    def run():
        try:
            project = Copy(parent)
            while not errors:
                work(waiting.get_nowait(), project)
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(workers, len(tasks)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# -- judging -------------------------------------------------------------------------------------------------------


def mirrored(file: str) -> list[str]:
    """The tests of a file: in tests/, at its place; and its own docstrings."""
    place = Path(file)
    return [(Path("tests") / place.parent / f"test_{place.name}").as_posix(), f"src/cstc/{file}"]


def order_of_tests(mutation: Mutation, reach: Reach, limit: float) -> tuple[list[str], list[str], int]:
    """The mirrored tests, then the others that reach the mutation and fit into the limit; how many do not fit."""
    reached = reach.of(mutation)
    own = set(mirrored(mutation.file))
    first = [test for test in reach.seconds if test.split("::")[0] in own and test not in reach.broken]
    first.sort(key=lambda test: (test not in reached, reach.seconds[test]))
    others = sorted(reached.difference(first, reach.broken), key=lambda test: reach.seconds.get(test, UNTIMED))
    kept, total = [], 0.0
    for test in others:
        total += reach.seconds.get(test, UNTIMED)
        if total <= limit:
            kept.append(test)
    return first, kept, len(others) - len(kept)


def judge(mutation: Mutation, reach: Reach, project: Copy, limit: float) -> dict:
    """Try one mutation; the result as it is written down."""
    begin = time.monotonic()
    path = project.source(mutation.file)
    source = path.read_bytes()
    if mutation not in mutations_of(mutation.file, source):
        sys.exit(f"{mutation.file} has changed since the mutations were drawn; call again")
    first, others, left_out = order_of_tests(mutation, reach, limit)
    caught, n_run, unstable = None, 0, []
    try:
        for tests in (first, others):
            while tests and caught is None:
                path.write_bytes(mutation.apply(source))
                report = project.pytest({"tests": tests}, reach.seconds)
                failed = [test for test, outcome in report["outcomes"].items() if outcome == "failed"]
                n_run += len(report["seconds"])
                if not failed and report["code"] not in (0, None) and not report["late"]:
                    failed = ["the start of the tests"]  # a crash of the interpreter, or of what pytest imports
                if not failed and not report["late"]:
                    break
                suspect = report["late"] or failed[0]
                path.write_bytes(source)
                if suspect in reach.seconds:
                    again = project.pytest({"tests": [suspect]}, reach.seconds)
                    stable = again["code"] == 0
                else:
                    stable = True
                if stable:
                    caught = suspect + (" (took too long)" if report["late"] else "")
                else:
                    unstable.append(suspect)
                    done = set(report["seconds"]) | {suspect}
                    tests = [test for test in tests if test not in done]
    finally:
        path.write_bytes(source)
    return {
        "id": mutation.id,
        "status": "survived" if caught is None else "caught",
        "kind": mutation.kind,
        "file": mutation.file,
        "line": mutation.line,
        "caught_by": caught,
        "tests_run": n_run,
        "tests_left_out": left_out,
        "unstable": unstable,
        "seconds": round(time.monotonic() - begin, 1),
        "diff": mutation.diff(source),
    }


class Results:
    """A file of JSON lines: results, and marks of equivalence.  The last word on a mutation counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.latest: dict[str, dict] = {}
        self.first: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            self._take(json.loads(line))

    def _take(self, entry: dict) -> None:
        if "equivalent" in entry:
            self.reasons[entry["id"]] = entry["equivalent"]
        else:
            self.latest[entry["id"]] = entry
            self.first.setdefault(entry["id"], entry["status"])

    def write(self, entry: dict) -> None:
        with self.lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as lines:
                lines.write(json.dumps(entry) + "\n")
            self._take(entry)


def chosen(drawn: list[Mutation], results: Results, count: int) -> list[Mutation]:
    """The first `count` of the draw that are not equivalent, and the equivalent ones among them."""
    taken, n = [], 0
    for mutation in drawn:
        if n == count:
            break
        if is_change(mutation):
            taken.append(mutation)
            n += mutation.id not in results.reasons
    return taken


# -- the command ---------------------------------------------------------------------------------------------------


def print_report(taken: list[Mutation], results: Results) -> None:
    sure = [mutation for mutation in taken if mutation.id not in results.reasons]
    judged = [results.latest[mutation.id] for mutation in sure if mutation.id in results.latest]
    caught = [entry for entry in judged if entry["status"] == "caught"]
    survived = [entry for entry in judged if entry["status"] == "survived"]
    late = [entry for entry in caught if results.first[entry["id"]] == "survived"]
    print(f"{len(judged)} of {len(sure)} mutations judged: {len(caught)} caught, {len(survived)} survived")
    print(f"{len(late)} of the caught ones survived until a test was added")
    for name in ("kind", "file"):
        print(f"\n{name:<28} caught  survived")
        for value in sorted({entry[name] for entry in judged}):
            counts = [sum(entry[name] == value for entry in entries) for entries in (caught, survived)]
            print(f"{value:<28} {counts[0]:>6}  {counts[1]:>8}")
    print("\ncaught")
    for entry in caught:
        note = ", after a test was added" if entry in late else ""
        print(f"  {entry['id']}  {entry['file']}:{entry['line']}  {entry['kind']}: {entry['caught_by']}{note}")
    for title, entries in (
        ("survived", survived),
        ("equivalent", [results.latest[m.id] for m in taken if m.id in results.reasons and m.id in results.latest]),
    ):
        print(f"\n{title}" if entries else f"\n{title}: none")
        for entry in entries:
            print(f"\n  {entry['id']}  {entry['file']}:{entry['line']}  {entry['kind']}, {entry['seconds']} s")
            if title == "equivalent":
                print(f"  {results.reasons[entry['id']]}")
            elif not entry["tests_run"]:
                print("  no test reaches it")
            else:
                print(
                    f"  {entry['tests_run']} tests passed; {entry['tests_left_out']} did not fit into the limit of time"
                )
            if entry["unstable"]:
                print(f"  failed without the mutation, too: {', '.join(entry['unstable'])}")
            print("\n".join("    " + line for line in entry["diff"].splitlines()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60, help="mutations to judge, the equivalent ones not counted")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for tests that do not mirror the file")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", help="of the results")
    parser.add_argument("--only", nargs="+", metavar="FILE", help="below src/cstc: another draw, from these alone")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="judge by these files of tests alone; src: doctests")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--record", action="store_true", help="only record what the tests reach")
    parser.add_argument("--retry", action="store_true", help="judge the survivors again")
    parser.add_argument("--equivalent", nargs=2, metavar=("ID", "REASON"))
    options = parser.parse_args()

    results = Results(options.folder / f"seed-{options.seed}.jsonl")
    drawn = draw(options.seed, options.only)
    if options.equivalent:
        name, reason = options.equivalent
        if results.latest.get(name, {}).get("status") != "survived":
            sys.exit(f"{name} is no survivor; --report lists them")
        results.write({"id": name, "equivalent": reason})
        print("marked; the next call judges another one in its place")
        return
    if options.report:
        print_report(chosen(drawn, results, options.count), results)
        return
    parent = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        tests = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
        reach = record(options.folder, parent, options.workers, options.tests or [*tests, "src"])
        if options.record:
            return
        taken = [m for m in chosen(drawn, results, options.count) if m.id not in results.reasons]
        again = {m.id for m in taken if options.retry and results.latest.get(m.id, {}).get("status") == "survived"}
        waiting = [m for m in taken if m.id not in results.latest or m.id in again]
        print(f"{len(taken) - len(waiting)} of {len(taken)} mutations are judged, {len(waiting)} wait", flush=True)

        def one(mutation, project):
            entry = judge(mutation, reach, project, options.limit)
            results.write(entry)
            by = entry["caught_by"] or f"{entry['tests_run']} tests passed"
            print(f"{entry['status']:<8} {entry['seconds']:>6} s  {entry['id']}  {entry['file']}:{entry['line']}  {by}")
            sys.stdout.flush()

        if waiting:
            in_copies(waiting, one, parent, options.workers)
        print()
        print_report(chosen(drawn, results, options.count), results)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
