"""Networks for tests that nobody on this machine has, whatever a killed run left behind."""

import json
import random
import subprocess


def free_network() -> str:
    """The first three numbers of one in 198.18.0.0/15, the block for tests of networks (RFC 2544)."""
    done = subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, check=True)
    taken = {
        entry["local"].rpartition(".")[0] for link in json.loads(done.stdout) for entry in link["addr_info"]
    }
    # By chance, so that another run that looks now finds another one.
    return random.choice(sorted({f"198.{a}.{b}" for a in (18, 19) for b in range(256)} - taken))
