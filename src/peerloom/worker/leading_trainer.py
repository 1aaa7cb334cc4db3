"""Which trainer this worker talks to: the one that its agent names once another took over."""

import asyncio
from contextlib import suppress
from pathlib import Path

from peerloom.kit.dialing import TrainerPeer
from peerloom.kit.logs import get_logger
from peerloom.worker.assignment import TRAINER_FILE, Assignment

LOOK_INTERVAL_S = 0.1
_log = get_logger()


def leading_trainer(assignment: Assignment) -> str:
    """host:port of the trainer that runs the job now, as far as the agent knows."""
    if assignment.folder:
        with suppress(OSError):
            return (Path(assignment.folder) / TRAINER_FILE).read_text(encoding="utf-8").strip()
    return assignment.work.trainer_address


async def leave_deposed(assignment: Assignment, trainer: TrainerPeer) -> None:
    """Closes the channel as soon as another trainer leads: one that is frozen would never end it."""
    while True:
        leading = leading_trainer(assignment)
        if leading != trainer.address:
            break
        await asyncio.sleep(LOOK_INTERVAL_S)
    _log.info("trainer_followed", trainer=leading, before=trainer.address)
    await trainer.close()
