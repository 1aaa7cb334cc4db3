"""What a user may come to with a node's files, by trainings of tasks that are built in."""

import tarfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.attack.attacks import attack
from benchmarks.attack.outcomes import By, Gain, Held, Outcome, ProvesNothingError, worst
from benchmarks.attack.system import ATTACKER, REAL, System

ENDS_S = 90.0
NOT_LENT = "lends no folder that holds it"
NOT_UNPACKED = "neither a regular file nor a folder"


async def _train_on(system: System, task: str, arguments: Mapping[str, str], refusal: str) -> Outcome:
    """Submits it to all nodes; held if each of them, or the job's end, says the `refusal`."""
    async with system.client(await system.admit("user", ATTACKER)) as client:
        job = await client.train(task, requests=10, epochs=1, labels=REAL, arguments=arguments)
        result = await job.result(ENDS_S)
        answers = (await job.status()).answers
        lines = [line.line async for line in job.logs()] if any(one.accepted for one in answers) else []
    if result.succeeded:
        return Gain(f"a model of {arguments}")
    said = [result.reason, *[one.reason for one in answers if not one.accepted], *lines]
    words = next((one for one in said if refusal in one), "")
    if not words:
        raise ProvesNothingError(f"the job ended {result.state}: {result.reason} {said}")
    if refusal == NOT_LENT and any(one.accepted for one in answers):
        return Gain(f"a node takes a training on {arguments}")
    return Held(words)


@attack(By.USER, "trains text on a file of the node's owner and on /etc/shadow")
async def train_on_the_owners_files(system: System) -> Outcome:
    """Hopes to read files of a node out of a model that learned them by heart."""
    found = [await _train_on(system, "text", {"data": str(system.secret)}, NOT_LENT)]
    if system.is_closed:
        found.append(await _train_on(system, "text", {"data": "/etc/shadow"}, NOT_LENT))
    return worst(*found)


@attack(By.USER, "names a way out of the lent folder", "one training on a foreign file shows it")
async def go_up_from_the_lent_folder(system: System) -> Outcome:
    """Hopes that only the beginning of a path is looked at."""
    up = str(system.lent / ".." / "secret" / "diary.txt")
    found = [await _train_on(system, "text", {"data": up}, NOT_LENT)]
    folder = str(system.lent.parent / "lent-not" / ".." / "secret")
    found.append(await _train_on(system, "mnist", {"data": folder}, NOT_LENT))
    return worst(*found)


@attack(
    By.USER,
    "brings data as a bundle with a link to a file of the owner's",
    "bundles are unpacked the same way there",
)
async def bring_a_link(system: System) -> Outcome:
    """Hopes that the node follows a link that it unpacked itself."""
    found = list[Outcome]()
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        bundle = _bundle(system.folder / f"links-{kind.decode()}.tar", kind, str(system.secret))
        async with system.client(await system.admit("user", ATTACKER)) as client:
            kept = await client.artifacts.put(bundle)
        found.append(await _train_on(system, "text", {"data": f"artifact:{kept.digest}"}, NOT_UNPACKED))
    return worst(*found)


def _bundle(path: Path, kind: bytes, target: str) -> Path:
    member = tarfile.TarInfo("texts.txt")
    member.type, member.linkname = kind, target
    with tarfile.open(path, "w") as tar:
        tar.addfile(member)
    return path
