"""docs/command.md holds: its blocks run one after the other, Python and commands alike."""

import re
import shlex
from pathlib import Path

from cli.commands import call, rows_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "command.md"


def test_the_page_runs_in_its_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    n_commands = 0
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, PAGE.name, "exec"), {})
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "cstc"
            target = None
            if ">" in arguments:
                arguments, (_, target) = arguments[:-2], arguments[-2:]
            small = ["--rounds", "20"] if arguments[0] == "fit" else []
            printed = call(*arguments, *small).stdout
            if target is not None:
                Path(target).write_text(printed, encoding="utf-8")
            n_commands += 1
    assert n_commands == 11
    answers = rows_of(Path("answers.csv").read_text())
    assert len(answers) == 100
    assert [row["patient"] for row in answers] == [row["patient"] for row in rows_of(Path("test.csv").read_text())]
    assert all(float(row["cost"]) <= 5 for row in rows_of(Path("cheap.csv").read_text()))


def test_the_page_names_all_commands():
    from cstc.cli import main

    named = set(re.findall(r"^\| `cstc (\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert named == set(main.commands)
