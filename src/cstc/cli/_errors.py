"""Whatever goes wrong, as one sentence on standard error, with an exit code: 1 a job failed, 2 wrong use.

``cstc --debug ...`` shows the traceback instead.  Warnings of the library are lines of the same kind, each said once.
"""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import click

__all__ = ["FAILED", "WRONG_USE", "Sentences", "WrongUse", "arguments_of", "say"]

FAILED = 1
WRONG_USE = 2
_ARGUMENTS = "cstc.arguments"


class WrongUse(click.UsageError):
    """Options that do not fit each other, or the files; exit code 2."""


class Sentences(click.Group):
    """A group of commands whose errors are sentences."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **options: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args) or ["--help"]

        def run() -> Any:
            return super(Sentences, self).main(given, prog_name, complete_var, False, **options)

        if not standalone_mode:
            return run()
        try:
            with _warnings_as_lines():
                code = run()
        except click.UsageError as error:
            named = "" if error.ctx is None else f" ('{error.ctx.command_path} --help' shows how)"
            _end(error.format_message().rstrip(".") + named, WRONG_USE)
        except click.Abort:
            _end("stopped", FAILED)
        except click.ClickException as error:
            _end(error.format_message(), error.exit_code)
        except Exception as error:
            if _is_debugging(given):
                raise
            _end(_sentence(error), FAILED)
        # click returns the code of --help and --version, and else what the command returned
        sys.exit(code if isinstance(code, int) else 0)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **options: Any
    ) -> click.Context:
        given = list(args)  # parsing consumes them
        context = super().make_context(info_name, args, parent, **options)
        context.meta[_ARGUMENTS] = given
        return context


def arguments_of(context: click.Context) -> list[str]:
    """All that the command line was given, behind the name of the program."""
    return list(context.meta.get(_ARGUMENTS, []))


def say(text: str, *, quiet: bool = False) -> None:
    """A note on standard error."""
    if not quiet:
        click.echo(text, err=True)


def _is_debugging(given: Sequence[str]) -> bool:
    """Whether ``--debug`` stands before the command: what comes behind belongs to the command."""
    before = [*given, ""][: next((at for at, each in enumerate(given) if not each.startswith("-")), len(given))]
    return "--debug" in before


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{_named(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this{': ' + text if text else ''}"
    if isinstance(error, ValueError | TypeError | OSError | ImportError | RuntimeError) and text:
        return _in_options(text)
    # a fault of the program, not of its user
    return f"{type(error).__name__}: {text or 'no more is known'}; 'cstc --debug ...' shows where it came from"


#: What the library calls by names of its own, a user of the command sets with options.
_OPTIONS = {
    r"give X_val and y_val with": "give --validation rows with",
    r", or method=Experts\(folds=\.\.\.\) with a smaller number": "",
    r"\bqid holds": "the column of --qid holds",
    r"sort the rows by qid\b": "sort the rows by the column of --qid",
    r"\bunavailable (names|holds|is)\b": r"--unavailable \1",
}


def _in_options(text: str) -> str:
    """A message of the library in words of the command line."""
    for pattern, words in _OPTIONS.items():
        text = re.sub(pattern, words, text)
    return text


def _named(filename: Any) -> str:
    return filename.decode(errors="replace") if isinstance(filename, bytes) else str(filename)


def _end(sentence: str, code: int) -> None:
    with contextlib.suppress(OSError):  # nobody may be listening
        click.echo(f"Error: {' '.join(sentence.split())}", err=True)
    sys.exit(code)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    said: set[str] = set()

    def show(message: Any, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in said:
            said.add(text)
            click.echo(f"Warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)  # they concern programmers
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.showwarning = show
        yield
