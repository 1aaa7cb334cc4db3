"""What `jobs show` tells of a method to synchronise that the trainer chose."""

from peerloom.client.types import Job
from peerloom.kit.quantity_texts import plural, shown_s


def sync_fields(job: Job) -> list[tuple[str, str]]:
    """What the trainer chose where the job leaves the method to it."""
    if job.sync is None:
        return []
    one, changed = job.sync, f" (changed {plural(job.sync.changes, 'time')})" if job.sync.changes else ""
    fields = [("in use", one.method + changed), ("because", one.reason)]
    if (known := one.predicted) is not None:
        parts = (known.step_s, known.compute_s, known.exposed_s, known.compression_s)
        told = "{} predicted: computing {}, exposed communication {}, compression {}"
        fields.append(("a step", told.format(*map(shown_s, parts))))
    if one.measured_step_s is not None:
        computing, exposed = one.measured_compute_s or 0.0, one.measured_communication_s or 0.0
        seen = f"computing {shown_s(computing)}, exposed communication {shown_s(exposed)}"
        fields.append(("", f"{shown_s(one.measured_step_s)} measured: {seen}"))
    if one.runner_up is not None:
        fields.append(("next best", f"{one.runner_up}: {shown_s(one.runner_up_step_s or 0.0)} expected"))
    return fields
