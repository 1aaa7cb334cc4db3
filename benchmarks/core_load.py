"""`python -m benchmarks.core_load SHARE`: takes a share of one core, a little at a time, until it ends."""

import sys
import time

PERIOD_S = 0.02


def main(share: float) -> None:
    begin_s, own_s = time.perf_counter(), time.process_time()
    while True:
        while time.process_time() - own_s < share * (time.perf_counter() - begin_s):
            pass
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main(float(sys.argv[1]))
