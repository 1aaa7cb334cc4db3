"""`python -m benchmarks.accuracy [--quick]`: runs the cells that CELLS names; a result for each."""

import argparse

from benchmarks.accuracy.cells import chosen_cells, run_cell
from benchmarks.keeping import check_may_keep, keep
from benchmarks.measure import print_measurements
from benchmarks.processes import end_with_what_was_started


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, to try it; writes nothing")
    parser.add_argument(
        "--why", default="", metavar="TEXT", help="why this result replaces the one that there is"
    )
    options = parser.parse_args()
    end_with_what_was_started()
    for cell in chosen_cells():
        name = f"accuracy-{cell.name}"
        if not options.quick:
            check_may_keep(name, options.why)
        measurements = run_cell(cell, options.quick)
        print_measurements(measurements)
        if not options.quick:
            keep(name, measurements, options.why)


if __name__ == "__main__":
    main()
