"""What an attack's outcome says: gained, nothing for the right reason, or nothing proved."""

import pytest

from benchmarks.attack.__main__ import chosen
from benchmarks.attack.outcomes import (
    ROLE_MAY_NOT,
    Gain,
    Held,
    Outcome,
    ProvesNothingError,
    Refusal,
    come_to,
    refused,
    verdict,
    worst,
)
from benchmarks.attack.table import table
from peerloom.errors import (
    InternalError,
    InvalidArgumentError,
    PeerloomError,
    PermissionDeniedError,
    UnavailableError,
)

NAMES = ("take it", "node", "takes it")


async def meeting(error: PeerloomError | None) -> None:
    if error is not None:
        raise error


async def test_who_is_refused_for_the_right_reason_gained_nothing() -> None:
    error = PermissionDeniedError("It isn't for nodes.", reason="ROLE_MAY_NOT")
    assert await refused(meeting(error), ROLE_MAY_NOT, gain="a job") == Held("It isn't for nodes.")


async def test_who_is_not_refused_gained() -> None:
    assert await refused(meeting(None), ROLE_MAY_NOT, gain="a job") == Gain("a job")


async def test_a_bug_of_ours_is_a_gain() -> None:
    found = await refused(meeting(InternalError("It failed by a bug of ours.")), ROLE_MAY_NOT, gain="a job")
    assert found == Gain("a bug that it can trigger: It failed by a bug of ours.")


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgumentError.of_field("lease", "x", "a lease"),  # a typo in the request
        UnavailableError("Nobody is there.", reason="UNREACHABLE"),  # a service that isn't up
        PermissionDeniedError("It was revoked.", reason="REVOKED"),
        UnavailableError("It isn't for nodes.", reason="ROLE_MAY_NOT"),
    ],
)
async def test_another_refusal_proves_nothing(error: PeerloomError) -> None:
    with pytest.raises(ProvesNothingError, match=r"instead of PERMISSION_DENIED/ROLE_MAY_NOT$"):
        await refused(meeting(error), ROLE_MAY_NOT, gain="a job")


async def test_a_refusal_can_be_told_by_its_words() -> None:
    used = Refusal("PERMISSION_DENIED", "TOKEN_REFUSED", "works once")
    with pytest.raises(ProvesNothingError, match="instead of PERMISSION_DENIED/TOKEN_REFUSED works once"):
        await refused(meeting(PermissionDeniedError("It ended.", reason="TOKEN_REFUSED")), used, gain="in")


def test_one_gain_among_many_tries_is_a_gain() -> None:
    assert worst(Held("a"), Gain("b"), Held("c"), Gain("d")) == Gain("b")
    assert worst(Held("a"), Held("c")) == Held("a")


@pytest.mark.parametrize(
    ("outcome", "control", "gained", "beside", "ok"),
    [
        (Held("No."), Gain("a job"), "nothing: No.", "gained: a job", True),
        (Held("No."), "no door", "nothing: No.", "not run: no door", True),
        (Held("No."), Held("No."), "nothing: No.", "CAN'T GAIN: No.", False),
        (Held("No."), OSError("gone"), "nothing: No.", "CAN'T GAIN: OSError gone", False),
        (Gain("a job"), Gain("a job"), "GAINED: a job", "gained: a job", False),
        (OSError("gone"), Gain("a job"), "PROVES NOTHING: OSError gone", "gained: a job", False),
    ],
)
def test_the_system_held_only_if_the_attack_could_have_gained(
    outcome: Outcome | Exception, control: Outcome | Exception | str, gained: str, beside: str, ok: bool
) -> None:
    judged = verdict(NAMES, outcome, control)
    assert (judged.gained, judged.control, judged.ok) == (gained, beside, ok)
    assert gained.split()[0] in table([judged])


async def test_an_attack_that_breaks_ends_no_other() -> None:
    async def broken() -> Outcome:
        raise KeyError("x")

    assert isinstance(await come_to(broken), KeyError)


def test_attacks_are_chosen_by_attacker_or_name() -> None:
    assert {one.by for one in chosen([])} == {"stranger", "node", "user", "job code"}
    assert [one.name for one in chosen(["signal the"])] == ["signal the agent"]
    assert {one.by for one in chosen(["stranger"])} == {"stranger"}
    assert all(one.run.__doc__ for one in chosen([])), "each says what its attacker hopes for"
