"""Fields of a job that `jobs show` has, in words; empty where there is nothing to say."""

from peerloom import Job
from peerloom.kit.quantity_texts import plural, shown_bytes


def passed_over_of(job: Job) -> str:
    """Whom the selector passed over when nodes were chosen last."""
    return "; ".join(map(str, job.choice.passed_over)) if job.choice else ""


def began_anew_of(job: Job) -> str:
    """How often, and why."""
    why = "all who had its state were lost before a checkpoint"
    return f"{plural(job.begun_anew, 'time')}: {why}" if job.begun_anew else ""


def audits_of(job: Job) -> str:
    """Shares that were computed again, and whom that dismissed."""
    if job.audits is None:
        return ""
    found = job.audits
    said = [f"{plural(found.made, 'share')} computed again"]
    accused = ", ".join(dict.fromkeys(one.node_name for one in found.accusations))
    if accused:
        said.append(f"{plural(len(found.accusations), 'accusation')} that didn't suffice, of {accused}")
    said += [f"dismissed {one.node_name}: {one.reason}" for one in found.dismissals]
    return "; ".join([*said, *(f"none on {one}" for one in found.off)])


def failed_last_of(job: Job) -> str:
    """Where a script failed last, and how."""
    run = job.script_run
    if run is None:
        return ""
    last = f": {run.last_lines.splitlines()[-1]}" if run.last_lines.strip() else ""
    again = f"; started again {plural(run.restarts, 'time')} for that" if run.restarts else ""
    return f"rank {run.rank} on {run.node_name} with status {run.exit_status}{last}{again}"


def network_of(job: Job) -> str:
    """What a testbed carried for it."""
    if job.traffic is None:
        return ""
    traffic = job.traffic
    sent = shown_bytes(sum(link.sent_bytes for link in traffic.links if link.host))
    lag = "" if traffic.lag_worst_s is None else f", {1000 * traffic.lag_worst_s:.1f} ms behind at worst"
    return f"{sent} over {traffic.backend} ({traffic.medium}){lag}"
