"""The survey's methods as jobs over shaped links, at small scale: what of its statements holds there.

Run by `make bench-survey`, as root with ns-3. Four workers behind 50 Mbit/s, a model of much and one of
little computing a byte, both emulated (see `sync`). A speed-up is what four workers make together, divided
by what one makes alone, as the survey has it; beside it stands the one that the model of a step predicts. The
survey's parameter server is one machine, which `ps:1` is here; the presets of that name spread it over all
workers. Torch merges gradients into large buckets, so that each layer by itself is `merged:1024`.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.choice_cells import ChoiceCell, ChoiceModel, ChoiceNetwork
from benchmarks.choice_trials import job_of
from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.sync import testbed_job_ms, wan_plan
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.layer_times import even_layers
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import scheme_of
from peerloom.kit.sync_model.sync_setting import SyncSetting
from peerloom.testbed import Testbed

WORKERS, ROUNDS = 4, 5
NETWORK = ChoiceNetwork("50 Mbit/s, 1 ms", ((50, 1),))
MUCH = ChoiceModel("much computing a byte", 600_000, 12, 800)
LITTLE = ChoiceModel("little computing a byte", 600_000, 12, 50)
# By the survey's names, with sizes for a model of 2.4 MB.
METHODS = {
    "bsp-a2a": "bsp-a2a",
    "bsp-ps, one server": "schedule=bsp,topology=ps:1",
    "bsp-ps": "bsp-ps",
    "wfbp-a2a, each layer by itself": "schedule=merged:1024",
    "wfbp-ps, one server": "topology=ps:1",
    "wfbp-ps": "wfbp-ps",
    "mg-wfbp": "schedule=merged:524288",
    "bytescheduler-ps": "schedule=cut:131072,topology=ps",
    "bytescheduler-a2a": "schedule=cut:131072,topology=direct",
}
# A statement of the survey, and which of two should take less time a step.
STATEMENTS = (
    ("without overlap A2A is ahead of PS", "bsp-a2a", "bsp-ps, one server"),
    ("WFBP is ahead of BSP over PS", "wfbp-ps, one server", "bsp-ps, one server"),
    ("merging makes up for A2A's start-up", "mg-wfbp", "wfbp-a2a, each layer by itself"),
    ("cutting suits PS", "bytescheduler-ps", "wfbp-ps"),
    ("over A2A merging is ahead of cutting", "mg-wfbp", "bytescheduler-a2a"),
)
AHEAD = Goal(1.0, at_least=False, of_ratio=True)
Steps = dict[str, list[float]]  # milliseconds a step by method


def run(quick: bool) -> list[Measurement]:
    """Both models' methods in turn, round by round."""
    cells = [ChoiceCell(NETWORK, WORKERS, model) for model in (MUCH, LITTLE)]
    taken: dict[str, Steps] = {cell.title: {name: [] for name in METHODS} for cell in cells}
    with tempfile.TemporaryDirectory() as folder, Testbed(wan_plan(cells[0].links), Path(folder)) as testbed:
        for _ in range(1 if quick else ROUNDS):
            for cell in cells:
                for name, method in METHODS.items():
                    taken[cell.title][name].append(testbed_job_ms(testbed, job_of(cell, method)))
    return figures(cells, taken)


def profile(quick: bool) -> str:
    """None: the figures are the methods beside each other."""
    return ""


def figures(cells: Sequence[ChoiceCell], taken: dict[str, Steps]) -> list[Measurement]:
    """Speed-ups beside predicted ones, how far these are off, then the statements."""
    made: list[Measurement] = []
    errors: list[float] = []
    for cell in cells:
        for name, steps in taken[cell.title].items():
            predicted = speed_up(cell, predicted_ms(cell, METHODS[name]))
            ours = [speed_up(cell, step_ms) for step_ms in steps]
            made.append(
                measurement(
                    f"speed-up of four workers by {name}: {cell.model.name}",
                    "times",
                    ours,
                    rival="the model of a step",
                    rival_samples=[predicted] * len(ours),
                )
            )
            errors.append(100 * abs(predicted / made[-1].value - 1))
    made.append(measurement("error of the predicted speed-ups", "%", errors, goal=Goal(10, at_least=False)))
    high, low = (
        [
            max(speed_up(cell, step_ms) for step_ms in each)
            for each in zip(*taken[cell.title].values(), strict=True)
        ]
        for cell in cells
    )
    name = "speed-up by the best method: a model of low intensity scales worse"
    made.append(measurement(name, "times", low, goal=AHEAD, rival=cells[0].model.name, rival_samples=high))
    for cell in cells:
        times = taken[cell.title]
        for statement, first, second in STATEMENTS:
            title = f"a step by {first}: {statement}: {cell.model.name}"
            made.append(
                measurement(title, "ms", times[first], goal=AHEAD, rival=second, rival_samples=times[second])
            )
    return made


def speed_up(cell: ChoiceCell, step_ms: float) -> float:
    """Each worker has a batch of its own, which takes as long as one alone."""
    return cell.workers * cell.model.compute_ms / step_ms


def predicted_ms(cell: ChoiceCell, method: str) -> float:
    """By the model, from what the links and the layers are said to be."""
    network = SyncNetwork.of_access(
        [AccessLink(1e6 * rate, 1e6 * rate) for rate, _ in cell.of_hosts],
        [delay_ms / 1e3 for _, delay_ms in cell.of_hosts],
    )
    layers = even_layers(cell.model.parameters, cell.model.compute_ms / 1e3, cell.model.layers)
    return 1e3 * predict(scheme_of(parse_sync("sync", method)), SyncSetting(network, layers)).step_s
