"""`peerloom completion`."""

import click
from click.shell_completion import get_completion_class

from peerloom.cli.output import say

_WHERE = {
    "bash": "peerloom completion bash > ~/.local/share/bash-completion/completions/peerloom",
    "zsh": "peerloom completion zsh > a folder in your $fpath, as _peerloom",
    "fish": "peerloom completion fish > ~/.config/fish/completions/peerloom.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for bash, zsh or fish.

    \b
    Install it for good, for example:
      peerloom completion bash > ~/.local/share/bash-completion/completions/peerloom
    """
    script = get_completion_class(shell)
    assert script is not None, "click knows the three shells"
    say(script(ctx.find_root().command, {}, "peerloom", "_PEERLOOM_COMPLETE").source())
    say(f"to keep it: {_WHERE[shell]}", err=True)
