"""``cstc completion``: the lines that make a shell complete commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete this command.

    \b
    bash   eval "$(cstc completion bash)"       in ~/.bashrc
    zsh    eval "$(cstc completion zsh)"        in ~/.zshrc
    fish   cstc completion fish | source        in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None  # click has all three
    click.echo(found(context.find_root().command, {}, "cstc", "_CSTC_COMPLETE").source())
