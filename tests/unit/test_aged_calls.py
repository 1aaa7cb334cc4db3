"""That a benchmark of an aged system leaves no call out unnoticed."""

from benchmarks.aged_calls import CALLS, LEFT_OUT, calls_of_services


def test_each_call_of_the_services_is_timed_or_left_out_with_a_reason() -> None:
    """A new one belongs into one of the two tables, by its own name or, to be left out, by its service's."""
    served = calls_of_services()
    left_out = {name for name, service in served.items() if {name, service} & set(LEFT_OUT)}
    assert set(CALLS) | left_out == set(served)
    assert not set(CALLS) & left_out
    assert set(LEFT_OUT) <= {*served, *served.values()}, "what isn't served any more has no reason"


def test_a_call_is_found_in_the_schema_of_its_service() -> None:
    assert calls_of_services()["SubmitJob"] == "TrainerService"
    assert calls_of_services()["WatchNodes"] == "RegistryService"
