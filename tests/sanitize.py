"""The compiled walk under the sanitizers for addresses and undefined behaviour.

    python tests/sanitize.py                     # the tests that reach all of native/_native.c, about 20 seconds
    python tests/sanitize.py --source other.c    # another version of the file

The package is copied into a temporary folder and built there, so that nothing of the checkout changes.  Python's own
allocator is switched off: the sanitizer must see where each buffer ends.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["tests/model/test_native.py", "tests/serving/walk/test_native_walk.py", "tests/paper/test_codes.py"]
FLAGS = ["-g", "-O1", "-fno-omit-frame-pointer", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SEEN = "import cstc._native as native; print(native.__file__)"


def build(source: Path, folder: Path) -> Path:
    shutil.copytree(ROOT / "src" / "cstc", folder / "cstc", ignore=shutil.ignore_patterns("_native*", "__pycache__"))
    library = folder / "cstc" / "_native.abi3.so"
    headers = f"-I{sysconfig.get_path('include')}"
    command = [*FLAGS, *SANITIZERS, "-DPy_LIMITED_API=0x030B0000", headers, str(source), "-o", str(library)]
    subprocess.run([compiler(), *command], check=True)
    return library


def compiler() -> str:
    return os.environ.get("CC", "gcc")


def environment(folder: Path) -> dict[str, str]:
    names = ("libasan.so", "libubsan.so")
    found = [
        subprocess.run([compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in names
    ]
    return os.environ | {
        "PYTHONPATH": str(folder),
        "PYTHONMALLOC": "malloc",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": " ".join(run.stdout.strip() for run in found),
        "ASAN_OPTIONS": "detect_leaks=0",  # of the interpreter, which frees little at its end
        "OMP_NUM_THREADS": "1",
        "CSTC_NATIVE": "1",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "native" / "_native.c")
    source = parser.parse_args().source.resolve()
    with tempfile.TemporaryDirectory() as name:
        library = build(source, Path(name))
        options = {"cwd": ROOT, "env": environment(Path(name))}
        seen = subprocess.run([sys.executable, "-c", SEEN], capture_output=True, text=True, check=True, **options)
        if Path(seen.stdout.strip()).resolve() != library.resolve():
            print(f"the tests would run with {seen.stdout.strip()} and not with {library}", file=sys.stderr)
            return 2
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys", *TESTS]
        return subprocess.run(command, check=False, **options).returncode  # captured by Python, so that C is heard


if __name__ == "__main__":
    sys.exit(main())
