"""The peer that all others of hivemind find first: `python -m … ADDRESS FILE` runs until it is ended.

FILE gets its addresses, as a list of JSON. It trains nothing, and isn't killed.
"""

import json
import signal
import sys
from pathlib import Path

import hivemind  # type: ignore[import-not-found]  # only in the rivals' environment


def main() -> None:
    address, told = sys.argv[1], Path(sys.argv[2])
    dht = hivemind.DHT(host_maddrs=[f"/ip4/{address}/tcp/0"], start=True)
    part = told.with_suffix(".part")
    part.write_text(json.dumps([str(maddr) for maddr in dht.get_visible_maddrs()]))
    part.rename(told)
    signal.pause()


if __name__ == "__main__":
    main()
