"""What the command line says of the service's limits, in names of its own options."""

import numpy as np
import pytest
from click.testing import CliRunner

import cstc
from cstc.cli import main
from serving.worlds import NAMES, random_world


@pytest.fixture
def folder(tmp_path, monkeypatch):
    cstc.save(random_world(np.random.default_rng(2), "binary").model, tmp_path / "model.cstc")
    source = f"from cstc.serving import extractor\nsources = [extractor(provides={NAMES[:3]}, name='one')(print)]\n"
    (tmp_path / "few_sources.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("CSTC_TOKEN", "MY_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def refused(*arguments):
    result = CliRunner().invoke(main, ["serve", "model.cstc", *map(str, arguments)])
    assert result.exit_code == 1, result.output
    return result.output


@pytest.mark.parametrize(
    "option",
    ["--max-rows", "--max-body", "--max-predictions", "--max-seconds", "--max-sessions", "--session-seconds"],
)
def test_limits_are_named_as_on_the_command_line(folder, option):
    for value in (0, -1):
        assert refused(option, value).startswith(f"Error: {option} is {value}")


def test_an_address_that_others_can_reach(folder):
    said = refused("--host", "0.0.0.0", "--token-variable", "MY_TOKEN", "--port", 0)
    assert "set MY_TOKEN, listen on 127.0.0.1, or say --allow-no-token" in said


def test_features_without_a_source(folder):
    said = refused("-e", "few_sources:sources")
    assert "no extractor provides 'x3'" in said
    assert "or name in --given what every request brings along" in said
    assert refused("--given", "age").startswith("Error: --given names an unknown feature 'age'")
