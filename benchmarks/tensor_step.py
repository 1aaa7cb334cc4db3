"""How long a step of a model with layers in pieces takes, beside torch's tensor parallelism and one worker.

Run by `make bench-tensor`, as root with ns-3. Two workers train a real transformer, with real computing: on
loopback, as on one host, where each has a core; and behind ns-3's links, where nobody should. The ideal is
the step of one worker, which has it all, by two. What isn't computing stands beside what was predicted.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.even_layers import PREDICTED, WARM_UP
from benchmarks.local_script import local_script_ms
from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.sync import testbed_script_ms, told_in, wan_plan
from benchmarks.tensor_job import TextSteps, text_steps
from peerloom.client.client import Client
from peerloom.embedded import Embedded
from peerloom.testbed import Testbed

WORKERS, CONTEXT = 2, 64
TENSOR, PIPELINE = "tensor=2,shadow=off", "pipeline=2,shadow=off"
SHADOWED, DATA = "tensor=2", "data"
TORCH, IDEAL = "torch's tensor parallelism", "one worker's step, by two"
BESIDE_TORCH = Goal(1 / 0.95, at_least=False, of_ratio=True)
PREDICTED_WELL = Goal(10, at_least=False)
Asked = dict[str, object]


@dataclass(frozen=True)
class Cell:
    """A network, and the samples of a batch."""

    title: str
    batch: int
    rate_mbps: float = 0.0
    delay_ms: float = 0.0


LOOPBACK = Cell("3.2 million parameters, loopback", 16)
WAN = Cell("3.2 million parameters, 50 Mbit/s, 1 ms", 4, 50, 1)


def run(quick: bool) -> list[Measurement]:
    """Each cell's plans in turn, with the rival and the ideal among them."""
    rounds, steps = (1, 2) if quick else (5, 8)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        Path(folder).chmod(0o755)  # workers of a testbed are other users
        text.write_bytes(_text(max(LOOPBACK.batch, WAN.batch) * (WARM_UP + steps)))
        return [*_on_loopback(text, rounds, steps), *_over_wan(text, rounds, steps)]


def profile(quick: bool) -> str:
    """None: each job's own record splits its steps into computing and communication."""
    return ""


def _text(windows: int) -> bytes:
    """Enough for so many windows to train on; the last tenth is tested on."""
    more = windows * 10 // 9 + 2
    return bytes(97 + (number * number // 7) % 26 for number in range(CONTEXT * more))


def _on_loopback(text: Path, rounds: int, steps: int) -> list[Measurement]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedded(
            Path(folder) / "state", slots=(1,) * WORKERS, log_level="error", data_roots=(text.parent,)
        ) as system,
        Client(system.address) as client,
    ):
        return _compared(
            LOOPBACK,
            *_taken(
                LOOPBACK,
                text,
                rounds,
                steps,
                lambda asked: text_steps(client, asked),
                lambda asked: local_script_ms("tensor_script", WORKERS, asked),
            ),
        )


def _over_wan(text: Path, rounds: int, steps: int) -> list[Measurement]:
    links = [(f"{WAN.rate_mbps:g}Mbps", f"{WAN.delay_ms:g}ms")] * WORKERS
    hosts = wan_plan(links, {"node": {"data_root": str(text.parent)}})
    with tempfile.TemporaryDirectory() as folder, Testbed(hosts, Path(folder)) as testbed:
        return _compared(
            WAN,
            *_taken(
                WAN,
                text,
                rounds,
                steps,
                lambda asked: TextSteps(**json.loads(told_in(testbed, "tensor_job", asked))),
                lambda asked: testbed_script_ms(testbed, "tensor_script", asked),
            ),
        )


def _taken(
    cell: Cell,
    text: Path,
    rounds: int,
    steps: int,
    job: Callable[[Asked], TextSteps],
    script_ms: Callable[[Asked], float],
) -> tuple[dict[str, list[float]], list[TextSteps]]:
    """The milliseconds of steps by how they were made, and what jobs with `TENSOR` told."""
    taken: dict[str, list[float]] = {name: [] for name in (TENSOR, SHADOWED, PIPELINE, TORCH, IDEAL)}
    told: list[TextSteps] = []
    arguments = {"data": str(text), "context": str(CONTEXT), "width": "256", "depth": "4", "heads": "4"}
    more = {"arguments": arguments, "warm_up": WARM_UP}
    for _ in range(rounds):
        for plan in (TENSOR, SHADOWED, PIPELINE):
            found = job({"settings": _settings(cell, plan, WORKERS), **more})
            taken[plan].append(found.step_ms)
            told += [found] if plan == TENSOR else []
        taken[TORCH].append(script_ms({**more, "batch": cell.batch, "steps": steps}))
        taken[IDEAL].append(job({"settings": _settings(cell, DATA, 1), **more}).step_ms / WORKERS)
    return taken, told


def _settings(cell: Cell, plan: str, workers: int) -> Asked:
    settings: Asked = {"requests": workers, "batch_size": cell.batch, "plan": plan}
    return settings | ({"max_workers": 1} if workers == 1 else {})


def _compared(cell: Cell, taken: dict[str, list[float]], told: list[TextSteps]) -> list[Measurement]:
    found = [
        measurement(
            f"{cell.title}: a step by {TENSOR} beside {TORCH}",
            "ms",
            taken[TENSOR],
            goal=BESIDE_TORCH,
            rival=TORCH,
            rival_samples=taken[TORCH],
        )
    ]
    for plan in (TENSOR, SHADOWED, PIPELINE, TORCH):
        name = f"{cell.title}: a step by {plan} beside {IDEAL}"
        found.append(measurement(name, "ms", taken[plan], rival=IDEAL, rival_samples=taken[IDEAL]))
    exchanged, predicted = [each.communication_ms for each in told], [each.predicted_ms for each in told]
    name = f"{cell.title}: of a step by {TENSOR} isn't computing"
    found.append(measurement(name, "ms", exchanged, rival=PREDICTED, rival_samples=predicted))
    errors = [100 * abs(one / other - 1) for one, other in zip(predicted, exchanged, strict=True)]
    return [
        *found,
        measurement(f"{cell.title}: error of what was predicted", "%", errors, goal=PREDICTED_WELL),
    ]
