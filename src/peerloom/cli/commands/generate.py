"""`peerloom generate`."""

import codecs
import time
from typing import Any, get_args

import click

from peerloom.cli.invocation import Invocation, system_options
from peerloom.cli.name_completion import MODEL
from peerloom.cli.output import say
from peerloom.client.types.inference import Mode


@click.command("generate")
@click.argument("model", type=MODEL)
@click.argument("prompt")
@click.option("--tokens", type=int, default=100, metavar="N", help="At most so many.")
@click.option("--temperature", type=float, default=0.0, metavar="T", help="0: the most probable each time.")
@click.option("--seed", type=int, default=0, metavar="N", help="Of the chance at a temperature above 0.")
@click.option("--mode", type=click.Choice(get_args(Mode)), default="auto", help="Which way.")
@click.option("--stages", type=int, default=0, metavar="N", help="Stages of a split model.")
@system_options
@click.pass_obj
def generate(invocation: Invocation, /, model: str, prompt: str, **settings: Any) -> None:
    """Let MODEL (trained with: peerloom train text) continue PROMPT, token by token.

    Prints prompt and tokens as they come; nodes lost on the way are replaced, and the text stays the same.
    """
    made, replaced, started_s = 0, 0, time.monotonic()
    # A letter may take several tokens, and a model may make bytes that are no letters at all.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    say(prompt, nl=False)
    with invocation.client() as client:
        for token in client.generate(model, prompt, **settings):
            say(decoder.decode(token.text), nl=False)
            made, replaced = made + 1, replaced + token.replaced
    say(decoder.decode(b"", final=True))
    seconds = time.monotonic() - started_s
    lost = f"; {replaced} stages were lost and replaced" if replaced else ""
    say(f"{made} tokens in {seconds:.2f} s{lost}", err=True)
