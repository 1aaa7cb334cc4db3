"""What an attack came to: it gained something, it was refused for the right reason, or it proved nothing."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from peerloom.errors import PeerloomError

LIMIT_S = 240.0
_WORDS = 12
_BUGS = ("INTERNAL", "UNKNOWN")


class By(StrEnum):
    """Who attacks."""

    STRANGER = "stranger"
    NODE = "node"
    USER = "user"
    CODE = "job code"


@dataclass(frozen=True)
class Gain:
    """The attacker got something; `what` says what."""

    what: str


@dataclass(frozen=True)
class Held:
    """The attacker got nothing; `words` are the refusal's, or say what was bounded."""

    words: str


Outcome = Gain | Held


@dataclass(frozen=True)
class Refusal:
    """A refusal that belongs to an attack: gRPC status and reason, and what its message says, if one reason
    stands for several refusals."""

    status: str
    reason: str
    says: str = ""

    def is_of(self, error: PeerloomError) -> bool:
        """Whether the error is this refusal."""
        is_same = (error.status, error.reason) == (self.status, self.reason)
        return is_same and self.says in error.message

    def __str__(self) -> str:
        return f"{self.status}/{self.reason} {self.says}".strip()


ROLE_MAY_NOT = Refusal("PERMISSION_DENIED", "ROLE_MAY_NOT")
ANOTHER_NODE = Refusal("PERMISSION_DENIED", "ANOTHER_NODE")
FOREIGN_OWNER = Refusal("PERMISSION_DENIED", "FOREIGN_OWNER")
REVOKED = Refusal("PERMISSION_DENIED", "REVOKED")
OUT_OF_LIMITS = Refusal("INVALID_ARGUMENT", "FIELD_OUT_OF_LIMITS")
# No connection: counts only beside a proof that somebody serves there.
UNREACHABLE = Refusal("UNAVAILABLE", "UNREACHABLE")
# The same for who has no certificate to show, and is told so.
BEHIND_A_DOOR = Refusal("UNAVAILABLE", "BEHIND_A_DOOR")


class ProvesNothingError(Exception):
    """The attack failed, but not by the defence that it was aimed at."""


async def refused(attempt: Awaitable[Any], *refusals: Refusal, gain: str) -> Outcome:
    """Held if one of the `refusals` met the attempt, the `gain` if nothing did, a gain too if it found a bug.

    Raises ProvesNothingError for any other error.
    """
    try:
        await attempt
    except PeerloomError as error:
        if error.status in _BUGS:
            return Gain(f"a bug that it can trigger: {first_words(error.message)}")
        if not any(one.is_of(error) for one in refusals):
            expected = " or ".join(map(str, refusals))
            found = f"{error.status}/{error.reason}: {error.message}"
            raise ProvesNothingError(f"refused by {found} instead of {expected}") from error
        return Held(error.message)
    return Gain(gain)


async def first_of(messages: AsyncGenerator[Any]) -> Any:
    """The first message of a stream, which is left then. Raises what the stream raises."""
    async with aclosing(messages):
        return await anext(messages)


def worst(*outcomes: Outcome) -> Outcome:
    """The first gain, if there is any."""
    return next((one for one in outcomes if isinstance(one, Gain)), outcomes[0])


@dataclass(frozen=True)
class Verdict:
    """One attack's row: what it gained and what its control did, each in words; `ok` if the system held."""

    attack: str
    by: str
    tried: str
    gained: str
    control: str
    ok: bool


def first_words(text: str) -> str:
    """As much of a text as fits into a table."""
    words = text.split()
    return " ".join(words[:_WORDS]) + (" ..." if len(words) > _WORDS else "")


async def come_to(attack: Callable[[], Awaitable[Outcome]]) -> Outcome | Exception:
    """What an attack came to; the exception when that proves nothing."""
    try:
        async with asyncio.timeout(LIMIT_S):
            return await attack()
    except Exception as error:
        return error


def verdict(
    names: tuple[str, str, str], outcome: Outcome | Exception, control: Outcome | Exception | str
) -> Verdict:
    """Judges an attack by its outcome and its control's; a control in words was not run, and why not."""
    match outcome:
        case Gain(what):
            gained = f"GAINED: {what}"
        case Held(words):
            gained = f"nothing: {first_words(words)}"
        case error:
            gained = f"PROVES NOTHING: {type(error).__name__} {first_words(str(error))}"
    match control:
        case str():
            beside, able = f"not run: {control}", True
        case Gain(what):
            beside, able = f"gained: {what}", True
        case Held(words):
            beside, able = f"CAN'T GAIN: {first_words(words)}", False
        case error:
            beside, able = f"CAN'T GAIN: {type(error).__name__} {first_words(str(error))}", False
    return Verdict(*names, gained, beside, isinstance(outcome, Held) and able)
