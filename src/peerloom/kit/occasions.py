"""When ranks average something within a round of local steps. Pure functions."""


def occasion_after(every: int, step: int, steps: range, period: int) -> int | None:
    """Which averaging follows the job's `step` in the round of its `steps`, from 0; None: there is none.

    It is after each `every` batches (1 on); the last step is followed by the exchange of all. Those of whole
    rounds of `period` before count too.
    """
    made = step - steps.start + 1
    if made % every or made == len(steps):
        return None
    return steps.start // period * occasions_in(every, period) + made // every - 1


def occasions_in(every: int, period: int) -> int:
    """How many there are in a round of `period` batches."""
    return (period - 1) // every
