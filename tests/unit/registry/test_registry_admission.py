"""What the door decides: which authority signs, which tokens count, who may make which."""

import pytest

from peerloom.errors import PermissionDeniedError
from peerloom.kit.principal import Principal, Role
from peerloom.services.registry.admission.decisions import (
    JoinToken,
    check_may_make,
    refuse_token,
    schedule_authorities,
)

LIFE_S = 100.0
USER = Principal(Role.USER, "bob-1", "bob")
OPERATOR = Principal(Role.OPERATOR, "operator", "registry")
TOKEN = JoinToken("token-1", "5ec2e7", USER, expires_s=1000.0, used_s=None)


# One authority made at 0, another at 1,000; certificates live for 100 s. Until 1,100 the first signs, so its
# last certificate ends at 1,200.
@pytest.mark.parametrize(
    ("now_s", "signing", "counting"),
    [(1000, 0, (0, 1)), (1099, 0, (0, 1)), (1100, 1, (0, 1)), (1199, 1, (0, 1)), (1200, 1, (1,))],
)
def test_a_new_authority_signs_once_all_know_it_and_the_old_one_ends_with_its_certificates(
    now_s: float, signing: int, counting: tuple[int, ...]
) -> None:
    schedule = schedule_authorities([0, 1000], now_s, LIFE_S)
    assert (schedule.signing, schedule.counting) == (signing, counting)


def test_the_only_authority_signs_from_its_first_moment() -> None:
    assert schedule_authorities([1000], 1000, LIFE_S).signing == 0


def test_an_authority_made_before_the_last_one_signs_leaves_none_without_trust() -> None:
    # Made at 0, 1,000 and 1,050: at 1,120 the second signs; the first's certificates live, the third waits.
    schedule = schedule_authorities([0, 1000, 1050], 1120, LIFE_S)
    assert (schedule.signing, schedule.counting) == (1, (0, 1, 2))


@pytest.mark.parametrize(
    ("token", "secret", "now_s", "reason"),
    [
        (TOKEN, "5ec2e7", 999, ""),
        (TOKEN, "5ec2e7", 1000, "it ended 0 s ago"),
        (TOKEN, "00000", 999, "none of this registry's"),
        (None, "5ec2e7", 999, "none of this registry's"),
        (JoinToken("token-1", "5ec2e7", USER, 1000.0, 950.0), "5ec2e7", 999, "used 49 s ago"),
        # A stranger isn't told whether the token was used.
        (JoinToken("token-1", "5ec2e7", USER, 1000.0, 950.0), "00000", 999, "none of this registry's"),
    ],
)
def test_a_token_admits_who_knows_its_secret_in_time_and_once(
    token: JoinToken | None, secret: str, now_s: float, reason: str
) -> None:
    refusal = refuse_token(token, secret, now_s)
    assert reason in refusal
    assert bool(refusal) == bool(reason)


def test_a_user_makes_tokens_for_its_own_nodes_and_an_operator_for_all() -> None:
    for role in (Role.NODE, Role.USER, Role.DASHBOARD):
        check_may_make(USER, role, "bob")
    for role in (Role.TRAINER, Role.SELECTOR, Role.OPERATOR):
        check_may_make(OPERATOR, role, "anybody")
        with pytest.raises(PermissionDeniedError, match=f"of the role {role}"):
            check_may_make(USER, role, "bob")
    with pytest.raises(PermissionDeniedError, match="another owner"):
        check_may_make(USER, Role.NODE, "ada")
