"""A whole Peerloom system in memory, for tests of code that uses Peerloom (docs/testing.md).

    with InMemorySystem(nodes=3) as system, system.client() as client:
        assert client.train("digits").result().succeeded

Registry, selector, trainer and agents are the real ones, with their real servers, stores and limits; what
they stand on is not. Workers follow a script.

    in_memory_system     the system and the verbs with which a test moves it; `pytest_fixtures` has both
    driven_loop          time that passes only while somebody waits, over `virtual_loop`, which jumps
    memory_network       delays, cuts and lost connections; `memory_channel`, `memory_replicas`, `memory_call`
                         and `memory_server` stand in for gRPC
    simulated_processes  what can be killed and frozen, and disks with `memory_databases`; `told_history`
    service_wiring       hands the real services what they need; all that is known of their inside
    scripted_worker      the worker's real session without training: `scripted_session`, `scripted_state`,
                         `scripted_collective`, `scripted_starter`, `scripted_evaluator`, `agent_transfers`
    training_script      how such a training goes; `observer` is told of it
    scripted_computing   what answers in place of torch, by a `model_script`; `scripted_inference` stands in
                         for the process beside an agent that serves with it
    told_evidence        a node's past; `told_load` how busy its machine is
    process_globals      what changes in the process around
"""

from peerloom.client.transport_seam import TransportSeam
from peerloom.testing.in_memory_system import InMemorySystem
from peerloom.testing.model_script import ModelScript, Question
from peerloom.testing.told_evidence import TrackRecord
from peerloom.testing.training_script import TrainingScript

__all__ = ["InMemorySystem", "ModelScript", "Question", "TrackRecord", "TrainingScript", "TransportSeam"]
