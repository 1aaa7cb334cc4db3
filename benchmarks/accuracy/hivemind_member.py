"""A peer of hivemind, which makes local steps and averages its parameters with all others now and then:
`python -m … {"trial": {...}, "curve": FILE, "host": NUMBER, "address": OWN, "peers": [ADDRESS, ...]}`.

Each takes its host's part of each batch, at its own pace: a period is over after so many samples of all
together. Averaging goes on beside the steps, in 16 bits, and who was away gets its state from a peer.
"""

import json
import os
import sys
from typing import Any

import hivemind

from benchmarks.accuracy.curve_file import tell
from benchmarks.accuracy.trial import EPOCHS, HOSTS, PERIOD, Trial, Work

MATCHMAKING_S, AVERAGING_LIMIT_S, LOADING_LIMIT_S = 1.0, 8.0, 20.0  # its own: 15, 60 and 600
REFRESH_S = 0.3  # of what others have done, once a period is nearly over


def main() -> None:
    asked = json.loads(sys.argv[1])
    tell(asked["curve"], "host", pid=os.getpid(), host=asked["host"])
    work = Work(Trial(**asked["trial"]))
    maddr = f"/ip4/{asked['address']}/tcp/0"
    dht = hivemind.DHT(initial_peers=asked["peers"], host_maddrs=[maddr], start=True)
    optimiser = _optimiser(dht, work)
    tell(asked["curve"], "began")
    _train(work, optimiser, asked)


def _optimiser(dht: "hivemind.DHT", work: Work) -> "hivemind.Optimizer":
    return hivemind.Optimizer(
        dht=dht,
        run_id="race",
        params=work.model.parameters(),
        optimizer=work.optimiser,
        batch_size_per_step=work.trial.batch // HOSTS,
        target_batch_size=work.trial.batch * PERIOD,
        use_local_updates=True,
        matchmaking_time=MATCHMAKING_S,
        averaging_timeout=AVERAGING_LIMIT_S,
        load_state_timeout=LOADING_LIMIT_S,
        state_averaging_compression=hivemind.compression.Float16Compression(),
        averager_opts={"request_timeout": MATCHMAKING_S / 2},
        tracker_opts={"min_refresh_period": REFRESH_S, "default_refresh_period": REFRESH_S},
    )


def _train(work: Work, optimiser: "hivemind.Optimizer", asked: dict[str, Any]) -> None:
    """Steps until the end; of each epoch another peer tells, as between means their parameters differ.

    Who begins later gets the others' state with its first step.
    """
    step = 0
    while (before := optimiser.local_epoch * PERIOD) < EPOCHS * work.steps:
        optimiser.zero_grad()
        work.passes(work.model, max(step, before), asked["host"], HOSTS)
        optimiser.step()
        step, now = max(step, before) + 1, optimiser.local_epoch * PERIOD
        epochs = now // work.steps
        if epochs > before // work.steps and epochs % HOSTS == asked["host"]:
            tell(asked["curve"], "accuracy", epoch=now / work.steps, accuracy=work.accuracy())


if __name__ == "__main__":
    main()
