"""What of a sandbox this machine can hold."""

import sys
from dataclasses import dataclass

from peerloom.sandbox.landlock import landlock_abi
from peerloom.sandbox.seccomp import seccomp_is_there


@dataclass(frozen=True)
class SandboxSupport:
    """The version of Landlock's interface (0: none), and whether there is seccomp.

    `bubblewrap`: whether workers of jobs that bring code run in it besides; `cgroup`: whether each has one.
    """

    landlock_abi: int
    seccomp: bool
    bubblewrap: bool = False
    cgroup: bool = False

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
        """In one word, e.g. "landlock-7+seccomp" or "landlock-7+seccomp+bubblewrap+cgroup"."""
        parts = [f"landlock-{self.landlock_abi}"] if self.landlock_abi else []
        parts += ["seccomp"] if self.seccomp else []
        parts += ["bubblewrap"] if self.bubblewrap else []
        parts += ["cgroup"] if self.cgroup else []
        return "+".join(parts) or "none"


def find_support() -> SandboxSupport:
    """Asks the kernel, which changes nothing; whether there is bubblewrap is for others to try."""
    if sys.platform != "linux":
        return SandboxSupport(0, False)
    return SandboxSupport(landlock_abi(), seccomp_is_there())
