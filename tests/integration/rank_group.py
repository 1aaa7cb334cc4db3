"""One rank's side of `member_processes`: its group for as long as it has something to do there."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.entry_hub import HubEntries
from peerloom.kit.logs import configure_logs
from peerloom.v1.trainer_pb2 import ConfigureGeneration
from peerloom.worker.group.process_group import Group


@contextmanager
def rank_group(told: Mapping[str, Any], ranks: int, node_ids: Sequence[str] = ()) -> Iterator[Group]:
    """The group of so many ranks, formed; `told` has this one's `rank`, and the `hub`."""
    config = ConfigureGeneration(
        generation=1, rank=told["rank"], world_size=ranks, collective_timeout_s=60, node_ids=node_ids
    )
    entries = HubEntries(told["hub"])
    group = Group(config, torch.device("cpu"), entries.of(config.generation), mesh_host="127.0.0.1")
    group.form()
    yield group
    group.close()
    entries.close()


def run_rank(main: Callable[[], None]) -> None:
    """Runs a rank's program as a worker runs: on loopback, with a thread, and logs of its own."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    configure_logs("worker")
    main()
