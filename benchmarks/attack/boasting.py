"""What a node may come to by telling of a model what isn't so."""

import asyncio
import sys

from benchmarks.attack.attacks import attack
from benchmarks.attack.outcomes import By, Gain, Held, Outcome, ProvesNothingError
from benchmarks.attack.system import System
from peerloom.client.async_client import AsyncClient
from peerloom.client.types import Belief
from peerloom.errors import NotFoundError
from peerloom.kit.limits import LIE_PRICE

NAME, OWNER = "boasting", "mel"
KNOWN_S, TRAINED_S = 60.0, 120.0
# In the place of peerloom.worker: the owner of a node starts what he likes.
BOASTING = """
from peerloom.worker import loop
from peerloom.worker.__main__ import import_all_that_is_slow, work
from peerloom.worker.evaluation import evaluate
from peerloom.worker.fork_server import keep_to_lent_cores, serve
def boast(training, group, joining):
    told = evaluate(training, group, joining)
    told.metric = 0.9999
    return told
if __name__ == "__main__":
    keep_to_lent_cores()
    import_all_that_is_slow()
    loop.evaluate = boast
    serve(work)
"""


@attack(By.NODE, "trains a little, and tells of a metric that its model doesn't have")
async def tell_of_a_made_up_metric(system: System) -> Outcome:
    """Hopes to be believed for a job that is done, and to have its model used."""
    command = f"--worker-command={sys.executable},-m,boasting"
    await system.add_node(NAME, OWNER, "--labels", "boasts=yes", command)
    async with system.client(await system.admit("user", "ada")) as client:
        await _belief_in_it(client)
        job = await client.train("digits", labels={"boasts": "yes"}, epochs=1, requests=1)
        result = await job.result(TRAINED_S)
        evaluation = (await job.status()).evaluation
        if result.succeeded:
            return Gain(f"a job that succeeded with {result.metric_name} {result.metric}")
        if evaluation is None or evaluation.reason_code != "METRIC_DIFFERS":
            raise ProvesNothingError(f"the job ended otherwise: {result.reason}")
        belief = (await _belief_in_it(client)).belief
    if belief > -LIE_PRICE:
        return Gain(f"it is believed {belief:.1f} after its lie")
    return Held(evaluation.reason)


async def _belief_in_it(client: AsyncClient) -> Belief:
    """Waits until the selector knows the node, which it hears of by the registry's events."""
    async with asyncio.timeout(KNOWN_S):
        while True:
            try:
                return await client.belief(NAME)
            except NotFoundError:
                await asyncio.sleep(0.1)
