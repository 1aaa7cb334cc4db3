"""`peerloom doctor`."""

import click

from peerloom.cli.invocation import Invocation, output_option
from peerloom.cli.machine import Finding, examine
from peerloom.cli.output import print_document, say

_WORDS = {True: click.style("ok     ", fg="green"), False: click.style("missing", fg="yellow")}


@click.command()
@output_option
@click.pass_obj
def doctor(invocation: Invocation) -> None:
    """Say what this machine can do, and what to install for the rest. Changes nothing; always ends with 0."""
    findings = examine()
    if invocation.output != "table":
        print_document(findings, invocation.output)
        return
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        say(f"{_WORDS[finding.ok]}  {finding.name.ljust(width)}  {_tell(finding)}")


def _tell(finding: Finding) -> str:
    return finding.found if finding.ok else f"{finding.found}; {finding.purpose}: {finding.remedy}"
