"""Who could take part in a job whose plan is chosen, and what is known of each: pure, of its record."""

from collections.abc import Collection, Mapping, Sequence

from peerloom.services.trainer.generations.plan_measures import SurveyedWorker
from peerloom.services.trainer.workers.state import Finished, Idle, Lost, WorkerState, Working
from peerloom.v1.trainer_pb2 import Job, WorkerPrepared


def surveyed_workers(
    job: Job, worker_ids: Sequence[str], surveys: Mapping[str, WorkerPrepared]
) -> list[SurveyedWorker]:
    """What is known of these workers, all of whom have told of their slots."""
    workers = {worker.worker_id: worker for worker in job.workers}
    answers = {answer.node.node_id: answer for answer in job.answers if answer.accepted_slots}
    found = []
    for worker_id in worker_ids:
        worker = workers[worker_id]
        answer = answers.get(worker.node_id)
        belief, lent_bytes = (answer.node.belief, answer.slot_memory_bytes) if answer else (1.0, 0)
        found.append(
            SurveyedWorker(
                worker_id, worker.node_id, worker.node_name, surveys[worker_id], belief, lent_bytes
            )
        )
    return found


def candidates(
    states: Sequence[WorkerState], surveys: Collection[str], *, at_work: bool = False
) -> tuple[str, ...]:
    """Who could take part in the next generation: they are there, stay, and have told of their slots.

    `at_work`: those who work now too.
    """
    phases = (Idle, Finished, Working) if at_work else (Idle, Finished)
    return tuple(
        state.worker_id
        for state in states
        if isinstance(state.phase, phases) and not state.is_departing and state.worker_id in surveys
    )


def may_move(states: Sequence[WorkerState]) -> bool:
    """Whether a generation works in peace: all of it are ready, nobody leaves, meets or has finished."""
    working = [state for state in states if isinstance(state.phase, Working)]
    others = [state for state in states if not isinstance(state.phase, Working)]
    return (
        bool(working)
        and all(state.is_ready and not state.is_departing and not state.meeting for state in working)
        and not any(state.is_member or not isinstance(state.phase, Idle | Lost) for state in others)
    )


def without_small(states: Sequence[WorkerState], small: Collection[str]) -> list[WorkerState]:
    """Plan `data` goes on without those who lack room for the model, while somebody else is there."""
    others = [state for state in states if state.worker_id not in small or state.is_member]
    return others if any(not isinstance(state.phase, Lost) for state in others) else list(states)
