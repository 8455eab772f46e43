"""A folder of files, made once and copied for each test that writes there."""

import shutil

import pytest

from cli.commands import PRICES, QUICK, as_text, call, small_table, without


@pytest.fixture(scope="session")
def made_world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    whole, fresh = small_table(), small_table(60, seed=1)
    others = ("id", "stage", "risk", "query")
    files = {
        "whole.csv": whole,
        "whole-test.csv": fresh,
        "train.csv": without(whole, *others),
        "test.csv": without(fresh, *others),
        "new.csv": without(fresh, *others, "ill"),
    }
    for name, lines in files.items():
        (folder / name).write_text(as_text(lines), encoding="utf-8")
    (folder / "prices.csv").write_text(PRICES)
    (folder / "errors.csv").write_text("truth,0,1,refer\n0,0,30,10\n1,250,0,10\n")
    target = ("--target", "ill", "--prices", folder / "prices.csv")
    call("fit", folder / "train.csv", *target, "-o", folder / "model.cstc", "--cost-weight", 0.0002, *QUICK)
    regression = ("--target", "risk", "--drop", "id", "--drop", "stage", "--drop", "ill", "--drop", "query")
    call("fit", folder / "whole.csv", *regression, "-o", folder / "risk.cstc", *QUICK)
    call("frontier", folder / "train.csv", *target, "-o", folder / "done", "--n-weights", 3, *QUICK)
    return folder


@pytest.fixture
def world(made_world, tmp_path, monkeypatch):
    """The folder, as the current one."""
    folder = tmp_path / "world"
    shutil.copytree(made_world, folder)
    monkeypatch.chdir(folder)
    return folder
