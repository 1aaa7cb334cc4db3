"""What a value may be at most, and how ids look: the same for whoever checks it."""

import re

from peerloom.v1.trainer_pb2 import JobState

MAX_EPOCHS = 1_000_000
MAX_BATCH_SIZE = 2**24
MAX_TRAINING_SAMPLES = 2**40
MAX_JOB_SPEC_BYTES = 64 * 1024
MAX_SCRIPT_RESTARTS = 1000
MAX_REASON_CHARACTERS = 1024  # of a sentence in a job's record
MAX_SLOTS = 1024  # of one node
MAX_ACCELERATORS = 64
MAX_DETAIL_CHARACTERS = 512  # of one piece of evidence
MAX_DELAY_S = 86_400.0  # of one transfer, which is given up long before that
MAX_TRANSFER_BYTES = 2**50  # a petabyte a day is more than any machine's link carries
# A slot with an exaflop a second: beyond it the number is wrong, not the machine strong.
MAX_SPEED_GFLOPS = 1e9

# A node that lied is believed in with minus this for each lie, or less.
LIE_PRICE = 1e6

NODE_ID = re.compile(r"node-[0-9a-f]{12}")

# A job in one of these states does nothing more.
ENDED_STATES = frozenset(
    {
        JobState.JOB_STATE_SUCCEEDED,
        JobState.JOB_STATE_FAILED,
        JobState.JOB_STATE_CANCELLED,
        JobState.JOB_STATE_NO_COMPUTE,
    }
)
# Of one artifact: a sparse file claims any size, and all of it would be read before it is refused.
MAX_ARTIFACT_BYTES = 2**40


def cut_reason(sentence: str) -> str:
    """A sentence that came from elsewhere, as long as a record that many read may keep it."""
    return sentence if len(sentence) <= MAX_REASON_CHARACTERS else sentence[: MAX_REASON_CHARACTERS - 1] + "…"
