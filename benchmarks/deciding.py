"""The first screen of docs/benchmarks.md: ten questions that decide, a figure each."""

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.words import figure, verdict_of, within

# A question, and the benchmark and the figure that answer it.
QUESTIONS = (
    (
        "A worker is killed: until the others' next step",
        "recovery-kill-rivals",
        "from SIGKILL of a worker to the survivors' next committed step, in turn with torchft-nightly",
    ),
    (
        "A worker is killed each 30 s: throughput kept",
        "recovery-throughput",
        "throughput kept under one killed worker each 30 s, 1 - s lost by one / 30, in windows of 10 s, "
        "beside torchft-nightly",
    ),
    ("Nobody is killed: throughput", "training", "training throughput, 2 workers"),
    (
        "From submitting to the first step",
        "training",
        "from submitting to the first step, on running agents",
    ),
    (
        "Three machines that compute, one at a third of the speed",
        "unequal",
        "the same 3 workers, computing in cgroups, beside plain DDP",
    ),
    (
        "Choosing 10 of 100,000 nodes, p99",
        "selection",
        "SelectNodes over 100,000 nodes, by gRPC, p99",
    ),
    (
        "Gradients by TLS: a step of 50 ms with 4 MB",
        "collective_tls",
        "a step of 50 ms with 4 MB of gradients by TLS",
    ),
    (
        "Asking a model on another node, beyond its own time",
        "inference",
        "a remote call over the model's own time, p50",
    ),
    (
        "1 GiB from three peers, one killed, one lying",
        "artifacts",
        "1,024 MiB from 3 peers, one killed, one with a wrong chunk",
    ),
    (
        "Emulated Ethernet (ns-3, MTU 9000) carries",
        "network",
        "throughput in all, csma, MTU 9000, 5 hosts of 20 nodes",
    ),
)


def table(results: Sequence[dict[str, Any]]) -> str:
    """The figures that there are of the ten, with interval, rival and verdict."""
    found = _by_name(results)
    rows = [
        _row(question, benchmark, found[benchmark, name])
        for question, benchmark, name in QUESTIONS
        if (benchmark, name) in found
    ]
    head = (
        "| question | ours | rival | ratio | goal | benchmark |",
        "| --- | ---: | --- | ---: | --- | --- |",
    )
    return "\n".join((*head, *rows)) + "\n"


def unanswered(results: Sequence[dict[str, Any]]) -> list[str]:
    """The questions whose figure no result has."""
    found = _by_name(results)
    return [question for question, benchmark, name in QUESTIONS if (benchmark, name) not in found]


def _by_name(results: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["benchmark"], each["name"]): each for one in results for each in one["measurements"]}


def _row(question: str, benchmark: str, one: dict[str, Any]) -> str:
    against, ratio = "-", "-"
    if one["ratio"] is not None:
        against = f"{figure(one['rival_value'])} {one['unit']}, {one['rival']}"
        ratio = figure(one["ratio"]) + within(one.get("ratio_interval"))
    cells: Iterable[str] = (
        question,
        f"{figure(one['value'])} {one['unit']}{within(one.get('interval'))}",
        against,
        ratio,
        verdict_of(one),
        f"[{benchmark}](#{benchmark})",
    )
    return f"| {' | '.join(cells)} |"
