"""What a worker proves itself with: a certificate for its job, which its agent puts into its folder."""

from pathlib import Path

from peerloom.kit.identity import Identity
from peerloom.worker.assignment import Assignment


def own_identity(assignment: Assignment) -> Identity | None:
    """The identity as it lies there now; None where all is plain."""
    return Identity(Path(assignment.identity)) if assignment.identity else None
