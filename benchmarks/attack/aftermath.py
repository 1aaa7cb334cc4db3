"""After all attacks: the system still trains, and nothing of the attackers is left."""

from pathlib import Path

import psutil

from benchmarks.attack.outcomes import Gain, Held, Outcome, Verdict, come_to, first_words, verdict
from benchmarks.attack.system import ATTACKER, REAL, System
from benchmarks.chaos.system import Parts

TRAINED_S, ENDED_S = 120.0, 30.0
PLANTED = "planted-by-eve"  # whatever an attacker's code writes is called so


async def what_still_works(system: System) -> Verdict:
    """Ends the jobs that run, trains a small one on all nodes, and looks for what the attackers announced."""
    outcome = await come_to(lambda: _train_and_look(system))
    names = ("a job trains afterwards", "-", "a job on both nodes; no service or node of eve's")
    return verdict(names, outcome, "nothing is attacked here")


async def _train_and_look(system: System) -> Outcome:
    user = await system.admit("user", "ada")
    async with system.client() as operator:
        for running in await operator.jobs(states=["running", "queued", "waiting", "starting"]):
            await (await operator.job(running.id)).cancel()
        listed = {service.address for service in await operator.services()}
        nodes = [node.name for node in await operator.nodes() if node.owner == ATTACKER]
    async with system.client(user) as client:
        job = await client.train("digits", requests=2, epochs=1, labels=REAL, min_workers=2)
        result = await job.result(TRAINED_S)
        fetched = await job.fetch_model(system.folder) if result.succeeded else None
    left = [f"service at {address}" for address in sorted(listed - set(system.addresses.values()))]
    left += [f"node {name}" for name in nodes]
    if fetched is None or left:
        return Gain(f"{result}; left: {', '.join(left) or 'nothing'}")
    return Held(f"{result}")


def what_is_left(parts: Parts, folder: Path) -> Verdict:
    """Processes, planted files and tracebacks, once both systems have ended."""
    _, alive = psutil.wait_procs(parts.processes(), timeout=ENDED_S)
    left = [f"process {one.pid}" for one in alive]
    left += [f"file {path.relative_to(folder)}" for path in (folder / "closed").rglob(f"{PLANTED}*")]
    for log in sorted((folder / "closed" / "logs").glob("*.log")):
        _, found, after = log.read_text(errors="replace").partition("Traceback")
        left += [f"traceback in {log.name}: {first_words(after)}"] if found else []
    names = ("nothing is left", "-", "processes, planted files, tracebacks in logs")
    outcome = Gain(", ".join(left)) if left else Held("all have ended, and left nothing")
    return verdict(names, outcome, "nothing is attacked here")
