"""The command line: ``cstc split``, ``prices``, ``fit``, ``frontier``, ``predict``, ``explain``, ``evaluate`` and more.

A thin layer: each command is a file of its own name, reads its options and files, calls the library and writes what
comes out.  What commands share: `_input` finds out what a file is, `_csv` reads text, `_columns` makes numbers and
categories of it, `_tables` is the one face of all kinds of tables, `_output` writes files whole or not at all,
`_training` has what a fit and a frontier are given, and `_errors` makes one sentence of whatever goes wrong.

Heavy libraries are imported when a command needs them: ``cstc inspect`` starts without scikit-learn and LightGBM.
"""

from __future__ import annotations

try:
    import click
except ImportError:
    raise SystemExit(
        "the command line needs click; install it with: pip install 'cstc[cli]', or for the service alone: "
        "pip install 'cstc[serve]'"
    ) from None

from .. import __version__
from ._errors import Sentences
from .completion import completion
from .evaluate import evaluate
from .explain import explain
from .fit import fit
from .frontier import frontier
from .inspect import inspect
from .predict import predict
from .prices import prices
from .report import report
from .serve import serve
from .split import split

__all__ = ["main"]


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cstc")
@click.option("--debug", is_flag=True, help="Show where in the program an error came from, too.")
def main(debug: bool) -> None:
    """Predictions that buy only the features worth their price.

    \b
    cstc split all.csv -o .                  train.csv and test.csv
    cstc prices train.csv > prices.csv       a file of prices, to be filled in
    cstc fit train.csv --target T --prices prices.csv -o model.cstc
    cstc predict model.cstc new.csv -o answers.csv

    Tables are CSV (any separator, gzip too), Parquet or Feather; a single - is standard input or output.
    Exit codes: 0 all is well, 1 a job failed, 2 wrong use.
    """


for command in (split, prices, fit, frontier, predict, explain, evaluate, report, inspect, serve, completion):
    main.add_command(command)
