"""How many floating-point operations a sample costs, so that speeds of different jobs can be compared."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from peerloom.kit.logs import get_logger
from peerloom.worker.task import Samples, Task

_log = get_logger()
PASSES = 3  # forward, and backward for the weights and for the inputs: as much each
_SAMPLES = 2


def training_gflops(task: Task, train: Samples, model: torch.nn.Module, compute_s_per_sample: float) -> float:
    """Operations of a training sample by the time it took, in 1e9 a second; 0 when it can't be told.

    Counted in one evaluation of two samples, which changes nothing of the model: products of matrices and
    convolutions, three passes.
    """
    if compute_s_per_sample <= 0:
        return 0.0
    try:
        inputs, _ = task.batch(train, torch.zeros(_SAMPLES, dtype=torch.long))
        device = next(model.parameters()).device
        model.eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(inputs.to(device))
    except Exception as error:  # the user's own code; a speed isn't worth the job's result
        _log.warning("speed_not_counted", reason=str(error))
        return 0.0
    finally:
        model.train()
    flops: int = counter.get_total_flops()
    return PASSES * flops / _SAMPLES / compute_s_per_sample / 1e9
