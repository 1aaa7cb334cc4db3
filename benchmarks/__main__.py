"""`python -m benchmarks [--quick] [NAME ...]`: runs benchmarks and writes their results."""

import argparse
import importlib

from benchmarks.keeping import check_may_keep, keep, keep_profile
from benchmarks.measure import MET, print_measurements
from benchmarks.processes import end_with_what_was_started

NAMES = (
    "heartbeats",
    "watching",
    "selection",
    "training",
    "policies",
    "artifacts",
    "policy_cost",
    "inference",
    "unequal",
    "sandbox",
    "collective_tls",
    "audits",
)

# Only when named: the first three need root and ns-3, the first iperf3 too, the fourth a folder of MNIST's
# files, the fifth half an hour, the sixth PostgreSQL, the next two a quiet machine for a quarter of an hour,
# then 14,196 files, a GPU twice, 30 GB of disk, root and ns-3 again, PostgreSQL again, a quiet machine again,
# and ns-3 four times, at first for hours.
NAMED = (
    *("network", "sync", "pipeline", "quality_mnist", "quality_text"),
    *("takeover", "pipeline_recovery", "staleness"),
    *("ten_thousand", "gpu", "gpu_recovery", "pipeline_memory", "sharded_step", "aged", "callers", "choice"),
    *("survey_live", "tensor_step", "pacing"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join(NAMES)} (default: these), or {', '.join(NAMED)}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to try that it runs; writes nothing"
    )
    parser.add_argument(
        "--why", default="", metavar="TEXT", help="why these results replace those that there are"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - {*NAMES, *NAMED})
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(NAMES + NAMED)}")
    end_with_what_was_started()
    for name in options.names or NAMES:
        run_one(name, options.quick, options.why)


def run_one(name: str, quick: bool, why: str) -> None:
    if not quick:
        check_may_keep(name, why)
    benchmark = importlib.import_module(f"benchmarks.{name}")
    print(f"== {name}{' (quick: the figures mean nothing)' if quick else ''}", flush=True)
    measurements = benchmark.run(quick)
    print_measurements(measurements)
    if not quick:
        keep(name, measurements, why)  # first: profiling takes its time too, and may be stopped
    is_short = any(one.goal and one.verdict != MET for one in measurements)
    profile = benchmark.profile(quick) if is_short or quick else ""
    if not quick:
        keep_profile(name, profile)


if __name__ == "__main__":
    main()
