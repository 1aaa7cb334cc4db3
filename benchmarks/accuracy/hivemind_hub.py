"""The peer that all others of hivemind find first: `python -m … ADDRESS CURVE` runs until it is ended.

It tells the curve's file of its addresses, as `hub`. It trains nothing, and isn't killed.
"""

import signal
import sys

import hivemind

from benchmarks.accuracy.curve_file import tell


def main() -> None:
    address, curve = sys.argv[1:]
    dht = hivemind.DHT(host_maddrs=[f"/ip4/{address}/tcp/0"], start=True)
    tell(curve, "hub", peers=[str(maddr) for maddr in dht.get_visible_maddrs()])
    signal.pause()


if __name__ == "__main__":
    main()
