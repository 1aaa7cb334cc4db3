"""`python -m benchmarks.plain_sender FILE`: sends the file to whoever connects, by one sendfile."""

import socket
import sys
from pathlib import Path


def main() -> None:
    path = Path(sys.argv[1])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"address=127.0.0.1:{listening.getsockname()[1]}", flush=True)
        while True:
            line, _ = listening.accept()
            with line, path.open("rb") as file:
                line.sendfile(file)


if __name__ == "__main__":
    main()
