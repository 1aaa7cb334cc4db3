"""`python -m benchmarks.recovery [--quick]`: runs the parts that PARTS names, and writes their results.

All parts together are benchmarks/results/recovery.json; some of them have a file named after them.
"""

import argparse

from benchmarks.measure import print_measurements, write_profile, write_result
from benchmarks.recovery import PARTS, chosen_parts, profile, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to try that it runs; writes nothing"
    )
    quick, parts = parser.parse_args().quick, chosen_parts()
    measurements = run(quick)
    print_measurements(measurements)
    if quick:
        return
    name = "recovery" if parts == PARTS else "-".join(("recovery", *parts))
    write_result(name, measurements)
    missed = any(one.met is False for one in measurements)
    write_profile(name, profile() if missed else "")


if __name__ == "__main__":
    main()
