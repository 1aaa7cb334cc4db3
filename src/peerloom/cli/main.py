"""The table of commands."""

import os

import click

from peerloom.cli.exits import EPILOG
from peerloom.cli.group import RootGroup
from peerloom.cli.invocation import system_options

_HERE = "peerloom.cli.commands"
_SERVICE = f"{_HERE}.service"
_TABLE = {
    "demo": (f"{_HERE}.demo", "Watch five unequal nodes train a model, start to end."),
    "up": (f"{_HERE}.up", "Start all services and some nodes on this machine."),
    "down": (f"{_HERE}.down", "Stop what 'up' started."),
    "status": (f"{_HERE}.status", "Show services, nodes and running jobs."),
    "dashboard": (f"{_HERE}.dashboard", "Watch the network and its jobs in a browser."),
    "top": (f"{_HERE}.top", "Watch the network and its jobs in a terminal."),
    "train": (f"{_HERE}.train", "Submit a training job and watch it."),
    "run": (f"{_HERE}.run", "Run a training script as torchrun would, and show what it prints."),
    "sync": (f"{_HERE}.sync", "List the ways to synchronise a training, or explain one."),
    "plan": (f"{_HERE}.plan", "Say how a model larger than a slot would be cut, and why."),
    "jobs": (f"{_HERE}.jobs", "List, show, watch or cancel jobs, and read their logs."),
    "nodes": (f"{_HERE}.nodes", "List, show, drain or remove nodes."),
    "beliefs": (f"{_HERE}.beliefs", "See whom the selector trusts, and why."),
    "models": (f"{_HERE}.models", "List trained models, or fetch one."),
    "infer": (f"{_HERE}.infer", "Ask a model for answers: on a node, split over several, or here."),
    "generate": (f"{_HERE}.generate", "Let a model of text continue a prompt."),
    "artifacts": (f"{_HERE}.artifacts", "Put, fetch, list, pin or remove models, data sets and code."),
    "simulate": (f"{_HERE}.simulate", "Compare policies in a simulated network of unreliable nodes."),
    "policies": (f"{_HERE}.policies", "List the ways to choose nodes."),
    "experiment": (f"{_HERE}.experiment", "Run one of the thesis's experiments, and draw its figure."),
    "plot": (f"{_HERE}.plot", "Draw what a system remembers, or an experiment's result."),
    "testbed": (f"{_HERE}.testbed", "Run agents behind an emulated network: ns-3, or shaped links."),
    "token": (f"{_HERE}.token", "Make a token that admits one to a system with a door."),
    "login": (f"{_HERE}.login", "Become somebody there, with a token."),
    "logout": (f"{_HERE}.login", "Forget the login."),
    "config": (f"{_HERE}.config", "Keep the systems that you work with, by name."),
    "door": (f"{_HERE}.door", "See who was admitted, turn somebody out, replace the authority."),
    "doctor": (f"{_HERE}.doctor", "Say what this machine can do, and what to install for the rest."),
    "completion": (f"{_HERE}.completion", "Print a completion script for your shell."),
    "registry": (f"{_SERVICE}:registry", "Run the registry: which nodes exist, and which live."),
    "selector": (f"{_SERVICE}:selector", "Run the selector: whom to trust, whom to choose."),
    "trainer": (f"{_SERVICE}:trainer", "Run the trainer: takes a job from submission to a model."),
    "node": (f"{_SERVICE}:node", "Run a node agent: lends this machine."),
    "service": (f"{_HERE}.systemd_units:service", "Have systemd run these, and keep them alive."),
}


@click.group(
    cls=RootGroup,
    table=_TABLE,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="peerloom", message="peerloom %(version)s")
@system_options
def cli() -> None:
    """Weave spare GPUs and CPUs into one machine that trains neural networks.

    Try it: peerloom demo
    """


def main() -> None:
    """Runs the command line; ends the process with one of the documented exit codes."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own lines would stand between ours
    cli(prog_name="peerloom")
