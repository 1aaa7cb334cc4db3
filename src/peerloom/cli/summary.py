"""How a job came out."""

from peerloom import JobResult
from peerloom.cli.output import print_document, print_fields, say
from peerloom.cli.units import human_duration, metric_of
from peerloom.kit.quantity_texts import shown_bytes


def print_result(result: JobResult | None, output: str = "table") -> None:
    """The result on standard output; of a job that ended badly, why, on standard error."""
    if output != "table":
        print_document(result, output)
    elif result is not None and result.succeeded:
        print_fields(result_fields(result))
    elif result is not None:
        say(f"error: {result.job_id} {ending_of(result)}", err=True)


def ending_of(result: JobResult) -> str:
    """A bad ending in words."""
    ending = "reached no compute" if result.state == "no_compute" else result.state
    return f"{ending}: {result.reason}" if result.reason else ending


def result_fields(result: JobResult) -> list[tuple[str, str]]:
    """A good result, as names and values."""
    return [
        ("job", result.job_id),
        ("test", metric_of(result.metric_name, result.metric)),
        ("speed", _speed(result)),
        ("a step", _step(result)),
        ("exchanged", _exchanged(result)),
        ("model", _model(result)),
        ("kept by", ", ".join(result.model_nodes)),
        ("fetch it", f"peerloom models get {result.job_id} FILE" if result.model else ""),
    ]


def _speed(result: JobResult) -> str:
    if result.samples_per_s is None or result.training_s is None:
        return ""
    samples = f"{result.samples:,} samples" if result.samples else "all"
    return f"{result.samples_per_s:,.0f} samples/s ({samples} in {human_duration(result.training_s)})"


def _step(result: JobResult) -> str:
    if result.compute_s_per_step is None or result.communication_s_per_step is None:
        return ""
    computing, waiting = 1000 * result.compute_s_per_step, 1000 * result.communication_s_per_step
    return f"{computing:.1f} ms computing, {waiting:.1f} ms waiting for the others"


def _exchanged(result: JobResult) -> str:
    if not result.communicated_bytes:
        return ""
    return f"{shown_bytes(result.communicated_bytes)} that one worker gave to the others"


def _model(result: JobResult) -> str:
    if result.model is None:
        return ""
    where = result.model_path or result.model.digest[:12]
    return f"{where} ({shown_bytes(result.model.size_bytes)})"
