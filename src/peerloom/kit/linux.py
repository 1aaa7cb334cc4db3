"""What only Linux can do says so: services and nodes run there, the SDK and the command line anywhere."""

import platform
import sys
from importlib.util import find_spec

from peerloom.errors import FailedPreconditionError


def check_linux(what: str) -> None:
    """Raises FailedPreconditionError on another system; `what` begins the sentence, e.g. "peerloom up"."""
    if sys.platform == "linux" and find_spec("fcntl") is not None:
        return
    raise FailedPreconditionError(
        f"{what} needs Linux, and this is {platform.system() or 'an unknown system'}. From here you can use "
        "a system that runs elsewhere: give its registry's address by --address or PEERLOOM_ADDRESS.",
        reason="NEEDS_LINUX",
    )
