"""`python -m peerloom.sandbox GRANT COMMAND...`: confines itself to the grant (JSON) and runs the command."""

import os
import sys

from peerloom.sandbox.confining import confine
from peerloom.sandbox.grant import Grant


def main() -> None:
    """Raises OSError when the command isn't there, or the kernel refuses."""
    grant, *command = sys.argv[1:]
    confine(Grant.from_json(grant))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
