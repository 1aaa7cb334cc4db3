"""`python -m peerloom.worker.speed cpu|cuda THREADS`: measures one slot, prints a line of JSON, and ends.

A process of its own, because it needs torch, which an agent doesn't load, and so that it can be ended at any
moment when a job comes.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable

import torch

MATMUL_SIZE = 512
LAYERS = (512, 512, 512, 10)
BATCH = 64
COPY_BYTES = 32 * 1024**2
SPENT_S = 0.4  # on each of the three


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m peerloom.worker.speed", description=__doc__)
    parser.add_argument("accelerator", choices=("cpu", "cuda"))
    parser.add_argument("threads", type=int)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(json.dumps(measure(torch.device(options.accelerator))), flush=True)


def measure(device: torch.device) -> dict[str, float]:
    """Medians: `matmul_gflops` and `training_gflops` in 1e9 operations a second, `memory_bytes_per_s`."""
    return {
        "matmul_gflops": 2 * MATMUL_SIZE**3 / _median_s(_matmul(device), device) / 1e9,
        "memory_bytes_per_s": COPY_BYTES / _median_s(_copy(device), device),
        "training_gflops": step_flops() / _median_s(_training_step(device), device) / 1e9,
    }


def slot_gflops(device: torch.device) -> float:
    """Training steps in this process for SPENT_S, in 1e9 operations a second.

    A mean: where a quota stops the process most of the time, the median step meets no stop.
    """
    step = _training_step(device)
    step()  # what is made once isn't its speed
    steps, begin_s = 0, time.perf_counter()
    while (spent_s := time.perf_counter() - begin_s) < SPENT_S:
        step()
        _await(device)
        steps += 1
    return steps * step_flops() / spent_s / 1e9


def step_flops() -> float:
    """Operations of one step: for each layer forward, the weights' gradient, and but for the first the
    input's; a multiplication and an addition each.
    """
    pairs = enumerate(itertools.pairwise(LAYERS))
    return sum(2.0 * BATCH * n * m * (3 if place else 2) for place, (n, m) in pairs)


def _matmul(device: torch.device) -> Callable[[], object]:
    left = torch.rand(MATMUL_SIZE, MATMUL_SIZE, device=device)
    return lambda: left @ left


def _copy(device: torch.device) -> Callable[[], object]:
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _training_step(device: torch.device) -> Callable[[], object]:
    layers: list[torch.nn.Module] = []
    for n, m in itertools.pairwise(LAYERS):
        layers += [torch.nn.Linear(n, m), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1]).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.rand(BATCH, LAYERS[0], device=device)
    wanted = torch.zeros(BATCH, dtype=torch.long, device=device)

    def step() -> None:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(samples), wanted)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own is untyped
        optimiser.step()

    return step


def _median_s(work: Callable[[], object], device: torch.device) -> float:
    """Of as many repeats as fit into SPENT_S, the first ones left out: they meet cold memory."""
    times: list[float] = []
    end_s = time.perf_counter() + SPENT_S
    while len(times) < 5 or time.perf_counter() < end_s:
        begin_s = time.perf_counter()
        work()
        _await(device)
        times.append(time.perf_counter() - begin_s)
    return statistics.median(times[2:])


def _await(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
