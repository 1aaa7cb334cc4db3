"""Exceptions survive the wire: the same class, reason and metadata come out at the caller."""

import grpc
import pytest
from grpc import aio
from hypothesis import given
from hypothesis import strategies as st

from peerloom import errors
from peerloom.errors import BY_STATUS, InternalError, NotFoundError, PeerloomError, UnavailableError
from peerloom.kit.printable import escaped
from peerloom.kit.status import code_of, details_of, error_from_rpc

TEXT = st.text(max_size=40)


def every_class(root: type[PeerloomError] = PeerloomError) -> list[type[PeerloomError]]:
    return [root, *(found for child in root.__subclasses__() for found in every_class(child))]


def rpc_error(code: grpc.StatusCode, message: str, *trailing: tuple[str, bytes]) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(*trailing), details=message)


def over_the_wire(error: PeerloomError) -> PeerloomError:
    return error_from_rpc(rpc_error(code_of(error), error.message, *details_of(error)), "h:1", "registry")


@given(
    st.sampled_from(list(BY_STATUS.values())),
    TEXT,
    TEXT.filter(bool),
    st.dictionaries(TEXT, TEXT, max_size=8),
)
def test_class_message_reason_and_metadata_survive(
    cls: type[PeerloomError], message: str, reason: str, metadata: dict[str, str]
) -> None:
    arrived = over_the_wire(cls(message, reason=reason, metadata=metadata))
    assert type(arrived) is cls
    assert arrived.message == escaped(message or cls.status, "\t\n")
    assert (arrived.reason, arrived.metadata) == (reason, metadata)


def test_every_class_of_the_catalogue_has_a_status_of_its_own() -> None:
    own = [cls for cls in every_class() if "status" in vars(cls) and cls is not PeerloomError]
    assert sorted(BY_STATUS) == sorted(cls.status for cls in own)
    assert all(BY_STATUS[cls.status] is cls for cls in own)
    assert all(hasattr(grpc.StatusCode, status) for status in BY_STATUS)


def test_every_class_stands_in_the_tree_that_the_module_draws() -> None:
    missing = [cls.__name__ for cls in every_class() if cls.__name__ not in (errors.__doc__ or "")]
    assert missing == []


def test_a_subclass_comes_out_as_the_class_of_its_status() -> None:
    arrived = over_the_wire(errors.ConfigurationError("unknown flag"))
    assert type(arrived) is errors.InvalidArgumentError
    assert arrived.reason == "CONFIGURATION"


def test_who_cannot_be_reached_is_named_with_its_address() -> None:
    arrived = error_from_rpc(rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused"), "h:1", "registry")
    assert isinstance(arrived, UnavailableError)
    assert arrived.reason == "UNREACHABLE"
    assert "registry at h:1" in arrived.message
    assert arrived.metadata == {"service": "registry", "address": "h:1"}


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_a_status_without_details_is_still_one_of_our_errors(code: grpc.StatusCode) -> None:
    arrived = error_from_rpc(rpc_error(code, "no more"), "h:1", "trainer")
    assert type(arrived) is BY_STATUS.get(code.name, InternalError)
    assert "trainer" in arrived.message
    assert "h:1" in arrived.message


def test_details_stay_small_enough_for_a_header() -> None:
    large = NotFoundError("x" * 100_000, metadata={"name": "y" * 100_000})
    assert sum(len(value) for _, value in details_of(large)) < 4_000


def test_the_nearest_names_are_suggested() -> None:
    error = NotFoundError.of_name("policy", "thesys", ["thesis", "random", "round-robin"])
    assert error.message == "There is no policy 'thesys'. Did you mean thesis?"
    assert error.reason == "POLICY_NOT_FOUND"
    assert error.metadata == {"kind": "policy", "name": "thesys", "nearest": "thesis"}


def test_nothing_is_suggested_when_nothing_is_near() -> None:
    assert NotFoundError.of_name("node", "zzz", ["alpha"]).message == "There is no node 'zzz'."
