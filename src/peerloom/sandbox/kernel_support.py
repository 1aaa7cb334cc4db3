"""What of a sandbox this machine's kernel can hold."""

import sys
from dataclasses import dataclass

from peerloom.sandbox.landlock import landlock_abi
from peerloom.sandbox.seccomp import seccomp_is_there


@dataclass(frozen=True)
class SandboxSupport:
    """The version of Landlock's interface (0: none), and whether there is seccomp."""

    landlock_abi: int
    seccomp: bool

    @property
    def is_whole(self) -> bool:
        """Whether code that nobody here has read may be run."""
        return self.landlock_abi > 0 and self.seccomp

    @property
    def why_not(self) -> str:
        """What is missing, and what to do; empty when nothing is."""
        if self.is_whole:
            return ""
        missing = [] if self.landlock_abi else ["Landlock"]
        missing += [] if self.seccomp else ["seccomp"]
        return (
            f"this kernel has no {' and no '.join(missing)}; Linux 5.13 or newer has both, unless its "
            "command line (lsm=) or a container's own filter leaves them out"
        )

    def __str__(self) -> str:
        """In one word, e.g. "landlock-7+seccomp"."""
        parts = [f"landlock-{self.landlock_abi}"] if self.landlock_abi else []
        return "+".join([*parts, *(["seccomp"] if self.seccomp else [])]) or "none"


def find_support() -> SandboxSupport:
    """Asks the kernel, which changes nothing."""
    if sys.platform != "linux":
        return SandboxSupport(0, False)
    return SandboxSupport(landlock_abi(), seccomp_is_there())
