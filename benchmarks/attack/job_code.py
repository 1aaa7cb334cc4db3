"""What a job's code may come to on a node that lets code in: it tries (`curious`), and tells in its log."""

import shutil
from pathlib import Path

from benchmarks.attack.attacks import attack
from benchmarks.attack.outcomes import By, Gain, Held, Outcome, ProvesNothingError, worst
from benchmarks.attack.system import ATTACKER, System
from benchmarks.attack.targets import job_of_another
from peerloom.sandbox.bubblewrap import why_no_bubblewrap

ENDS_S = 120.0
NO_CODE = "runs only what is installed there (--allow-code)"
_SENT = Path(__file__).with_name("curious.py")
_found: dict[str, dict[str, str]] = {}  # by the system's folder: each attempt's outcome, by its name


async def _findings(system: System) -> dict[str, str]:
    """What the code came to; it runs once in each system, beside another owner's job."""
    key = str(system.folder)
    if key not in _found:
        _found[key] = await _run_code(system)
    return _found[key]


async def _run_code(system: System) -> dict[str, str]:
    job = await job_of_another(system)
    state, code = system.folder / "open", system.folder / "code"
    code.mkdir()
    shutil.copy(_SENT, code / "curious.py")
    [other] = (state / "workers").glob(f"{job.worker_id}-*")
    told = {"state": str(state).lstrip("/"), "other": str(other).lstrip("/")}
    told["agent"] = str(system.processes["open"].pid)
    async with system.client(await system.admit("user", ATTACKER)) as client:
        handle = await client.train("curious:Curious", code=code, labels={"code": "yes"}, arguments=told)
        result = await handle.result(ENDS_S)
        words = [line.line.split() async for line in handle.logs()]
    found = {line[1]: " ".join(line[2:]) for line in words if line[:1] == ["curious"]}
    if not result.succeeded or not found.get("own", "").startswith("done"):
        raise ProvesNothingError(f"the code did not run as it should: {result} {found}")
    return found


async def _attempts(system: System, *names: str) -> Outcome:
    """Held if each was denied, or what it was after isn't there: in the plain system it has to be."""
    found = await _findings(system)
    return worst(*[_outcome(name, found[name]) for name in names])


def _outcome(name: str, told: str) -> Outcome:
    if told.startswith("done"):
        return Gain(f"{name}: {told.removeprefix('done ')}")
    if told not in (PermissionError.__name__, FileNotFoundError.__name__):
        raise ProvesNothingError(f"{name} ended with {told}")
    return Held(f"{name}: {told}")


@attack(By.CODE, "reads the agent's key and certificate")
async def read_the_nodes_key(system: System) -> Outcome:
    """Hopes to be that node from now on."""
    return await _attempts(system, "key", "identity") if system.is_closed else await _attempts(system, "key")


@attack(By.CODE, "reads /etc/shadow")
async def read_accounts(system: System) -> Outcome:
    """Hopes for the passwords of whoever uses the machine."""
    return await _attempts(system, "shadow")


async def look_up_accounts(system: System) -> Outcome:
    """Hopes to learn what this machine is for, by names, sizes and times of files."""
    return await _attempts(system, "look-up")


if not why_no_bubblewrap():  # Landlock alone keeps nobody from that
    attack(By.CODE, "looks up /etc/shadow's size and time")(look_up_accounts)


@attack(By.CODE, "reads /proc/PID/environ of agent and fork server")
async def read_the_agents_environment(system: System) -> Outcome:
    """Hopes for passwords that its owner gave to other programs."""
    return await _attempts(system, "environ", "forkers-environ")


@attack(By.CODE, "looks for the owner's words in its own environment", "the agent gives it nowhere away")
async def read_its_own_environment(system: System) -> Outcome:
    """Hopes that it inherited them."""
    told = (await _findings(system))["secret"]
    return Held("the owner's variable isn't there") if told == "none" else Gain(told)


@attack(By.CODE, "signals the agent and the fork server, itself and by a shell")
async def signal_the_agent(system: System) -> Outcome:
    """Hopes to end them, and what they do for others."""
    return await _attempts(system, "signal", "signal-forker")


@attack(By.CODE, "sends a datagram")
async def send_a_datagram(system: System) -> Outcome:
    """Hopes to flood others from here, or to ask the name server of the house."""
    return await _attempts(system, "datagram")


@attack(By.CODE, "writes beside the agent's folder and into it")
async def write_outside(system: System) -> Outcome:
    """Hopes to leave something that is run later."""
    return await _attempts(system, "outside", "in-state")


@attack(By.CODE, "reads the folder of another job's worker, and all logs")
async def read_another_job(system: System) -> Outcome:
    """Hopes for another's data and model."""
    return await _attempts(system, "other-job", "logs")


@attack(By.USER, "sends code to a node whose owner lets none in", "one plain node, which lets code in")
async def bring_code_uninvited(system: System) -> Outcome:
    """Hopes that a node runs it nevertheless."""
    code = system.folder / "uninvited"
    code.mkdir()
    shutil.copy(_SENT, code / "curious.py")
    told = {"state": "x", "other": "x", "agent": "1"}
    async with system.client(await system.admit("user", ATTACKER)) as client:
        handle = await client.train("curious:Curious", code=code, labels={"lends": "yes"}, arguments=told)
        await handle.result(ENDS_S)
        answers = (await handle.status()).answers
    if any(one.accepted for one in answers):
        return Gain("its code runs there")
    words = [one.reason for one in answers]
    if not words or NO_CODE not in words[0]:
        raise ProvesNothingError(f"the node says {words}")
    return Held(words[0])
