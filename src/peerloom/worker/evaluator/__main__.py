"""`python -m peerloom.worker.evaluator`: imports everything, then forks a child for each order, in turn.

An order is a line on standard input, its answer a line on standard output; the first line says that all is
imported, or why it isn't. A child confines itself to its grant and is killed at its limit, so whatever a
model does to it, the next finds the process as it was. When standard input ends, because the trainer is done
or dead (decision 13), this process and its child end too.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

from peerloom.sandbox.confining import confine
from peerloom.sandbox.readable import known_interpreter_files
from peerloom.sandbox.resource_limits import limit_always
from peerloom.worker.evaluator.evaluation_order import (
    MAX_ANSWER_BYTES,
    READY,
    EvaluationAnswer,
    EvaluationOrder,
    Unable,
    answer_from_json,
    answer_to_json,
)

_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h


def main() -> int:
    """Serves orders until standard input ends; 1 when what it needs isn't installed."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        import torch

        import peerloom.worker.evaluator.scoring  # noqa: F401  # imported for its cost
    except ImportError as error:
        _tell(answers, answer_to_json(Unable("NO_TORCH", str(error))))
        return 1
    torch.set_num_threads(1)  # a pool of threads would not be there after the fork
    known_interpreter_files()
    _tell(answers, READY)
    while line := sys.stdin.readline():
        answer = _in_child(EvaluationOrder.from_json(line))
        if answer is None:
            break
        _tell(answers, answer_to_json(answer))
    return 0


def _tell(descriptor: int, line: str) -> None:
    with suppress(BrokenPipeError):  # the trainer died: standard input has ended too
        os.write(descriptor, line.encode() + b"\n")


def _in_child(order: EvaluationOrder) -> EvaluationAnswer | None:
    """What a child says to the order, or why it said nothing; None when the trainer is gone."""
    hears, says = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(hears)
        _become_child(order, says, parent)
    os.close(says)
    said, why_not = _hear(hears, order.limit_s)
    os.close(hears)
    if why_not:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if why_not == "left":
        return None
    if why_not:
        return Unable("TOO_LATE", f"it took more than {order.limit_s:g} s (--evaluation-timeout-s)")
    try:
        return answer_from_json(said.decode())
    except (KeyError, TypeError, ValueError):
        return Unable("EVALUATOR_ENDED", f"the process that evaluated it {_how(status)}")


def _hear(descriptor: int, limit_s: float) -> tuple[bytes, str]:
    """What is said until the other end closes; else "late" or "left", if standard input ends first."""
    end_s, said = time.monotonic() + limit_s, b""
    while True:
        left_s = max(0.0, end_s - time.monotonic())
        readable, _, _ = select.select([descriptor, 0], [], [], left_s)
        if not readable:
            return said, "late"
        if 0 in readable:  # nothing is said here before the answer
            return said, "left"
        piece = os.read(descriptor, MAX_ANSWER_BYTES)
        if not piece:
            return said, ""
        said = (said + piece)[:MAX_ANSWER_BYTES]


def _become_child(order: EvaluationOrder, says: int, parent: int) -> NoReturn:
    """Evaluates, says what came of it and ends."""
    try:
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:  # else it died before that
            limit_always()
            confine(order.grant)
            _tell(says, answer_to_json(_score(order)))
    finally:
        os._exit(0)


def _score(order: EvaluationOrder) -> EvaluationAnswer:
    from peerloom.worker.evaluator.scoring import score

    try:
        return score(order)
    except MemoryError:
        return Unable("NO_MEMORY", "it needs more memory than it may have (--evaluation-memory-bytes)")
    except Exception as error:
        return Unable("EVALUATION_FAILED", f"evaluating it failed with {type(error).__name__}: {error}")


def _how(status: int) -> str:
    if status == -signal.SIGKILL:
        return "was killed, as the kernel does where memory ends"
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


if __name__ == "__main__":
    sys.exit(main())
