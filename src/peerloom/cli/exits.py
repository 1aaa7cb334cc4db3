"""Exit codes: what a script may rely on."""

from peerloom.errors import (
    AlreadyExistsError,
    DeadlineError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PeerloomError,
    PermissionDeniedError,
    UnavailableError,
)

OK = 0
FAILED = 1
WRONG_USE = 2
NOT_FOUND = 3
UNREACHABLE = 4
NO_COMPUTE = 5
INTERRUPTED = 130

EPILOG = """\b
Exit codes:
  0    all went well
  1    the job failed or was cancelled, or something else went wrong
  2    wrong use: an unknown name or flag, or a value outside its limits
  3    what was asked for isn't there
  4    a service can't be reached
  5    no node had compute to give
  130  interrupted by Ctrl-C
"""

_CODES: tuple[tuple[type[PeerloomError], int], ...] = (
    (InvalidArgumentError, WRONG_USE),
    (AlreadyExistsError, WRONG_USE),
    (FailedPreconditionError, WRONG_USE),
    (PermissionDeniedError, WRONG_USE),
    (NotFoundError, NOT_FOUND),
    (UnavailableError, UNREACHABLE),
    (DeadlineError, UNREACHABLE),
)
_JOB_CODES = {"failed": FAILED, "cancelled": FAILED, "no_compute": NO_COMPUTE}


def code_of(error: PeerloomError) -> int:
    """The exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def code_of_job(state: str) -> int:
    """The exit code for a job's state; 0 for one that goes on or has succeeded."""
    return _JOB_CODES.get(state, OK)


def code_of_script(state: str, status: int | None) -> int:
    """The exit code for a script's job: the script's own status, 128 and the signal for one that was killed.

    `status` is None where no process of it failed or ended.
    """
    if status is None:
        return code_of_job(state)
    return 128 - status if status < 0 else status
