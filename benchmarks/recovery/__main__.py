"""`python -m benchmarks.recovery [--quick]`: runs the parts that PARTS names, and writes their results.

All parts together are benchmarks/results/recovery.json; some of them have a file named after them.
"""

import argparse

from benchmarks.keeping import check_may_keep, keep, keep_profile
from benchmarks.measure import MET, print_measurements
from benchmarks.processes import end_with_what_was_started
from benchmarks.recovery import PARTS, chosen_parts, profile, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to try that it runs; writes nothing"
    )
    parser.add_argument(
        "--why", default="", metavar="TEXT", help="why this result replaces the one that there is"
    )
    options, parts = parser.parse_args(), chosen_parts()
    end_with_what_was_started()
    quick, name = options.quick, "recovery" if parts == PARTS else "-".join(("recovery", *parts))
    if not quick:
        check_may_keep(name, options.why)
    measurements = run(quick)
    print_measurements(measurements)
    if quick:
        return
    keep(name, measurements, options.why)
    is_short = any(one.goal and one.verdict != MET for one in measurements)
    keep_profile(name, profile() if is_short else "")


if __name__ == "__main__":
    main()
