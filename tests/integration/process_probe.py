"""Says as JSON what a process finds of itself, then ends as its first argument says."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import psutil


def found() -> dict[str, object]:
    """What must be alike however the process came to be."""
    me = psutil.Process()
    return {
        "words": [word for word in me.cmdline() if word],
        "program": me.name(),
        "arguments": sys.argv,
        "name": __name__,
        "file": __file__,
        "first path": sys.path[0],
        "modules from": [each for each in sys.path if each == os.environ.get("PYTHONPATH")],
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "parent": os.getppid(),
        "leads": os.getsid(0) == os.getpid(),
        "session": os.getsid(0) if os.getsid(0) != os.getpid() else 0,
        "descriptors": [int(each) for each in os.listdir("/proc/self/fd") if _is_open(int(each))],
        "inherited": os.read(int(os.environ["PROBE_READS"]), 100).decode(),
        "told": sys.stdin.readline(),
        "threads": [threading.active_count(), me.num_threads()],
        "handlers": [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "flags": str(sys.flags),
        "id": os.getpid() == threading.get_native_id() == me.pid,
    }


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:  # the descriptor of the listing
        return False
    return True


if __name__ == "__main__":
    print(json.dumps(found(), indent=1), flush=True)
    print("on standard error", file=sys.stderr)
    match sys.argv[1]:
        case "raise":
            raise ValueError("as it was asked to")
        case "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        case "abort":
            os.abort()
        case "thread":
            threading.Thread(target=lambda: Path(sys.argv[2]).write_text("waited for")).start()
        case "word":
            sys.exit("a word")
        case status:
            sys.exit(int(status))
