"""`python -m benchmarks [--quick] [NAME ...]`: runs benchmarks and writes their results."""

import argparse
import importlib

from benchmarks.measure import print_measurements, write_profile, write_result

NAMES = (
    "heartbeats",
    "selection",
    "training",
    "policies",
    "artifacts",
    "policy_cost",
    "inference",
    "unequal",
    "sandbox",
    "collective_tls",
)

# Only when named: it needs root, ns-3 and iperf3.
NAMED = ("network",)


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
    options = parser.parse_args()
    unknown = sorted(set(options.names) - {*NAMES, *NAMED})
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(NAMES + NAMED)}")
    for name in options.names or NAMES:
        run_one(name, options.quick)


def run_one(name: str, quick: bool) -> None:
    benchmark = importlib.import_module(f"benchmarks.{name}")
    print(f"== {name}{' (quick: the figures mean nothing)' if quick else ''}", flush=True)
    measurements = benchmark.run(quick)
    print_measurements(measurements)
    missed = any(one.met is False for one in measurements)
    profile = benchmark.profile(quick) if missed or quick else ""
    if not quick:
        write_result(name, measurements)
        write_profile(name, profile)


if __name__ == "__main__":
    main()
