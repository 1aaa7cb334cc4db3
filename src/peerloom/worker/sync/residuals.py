"""Error feedback: what a rank's codecs have left out until now, which it adds to its next step's gradients.

Source: Seide et al. (Interspeech 2014); Karimireddy et al. (ICML 2019) show that the sum of what is sent then
follows the sum of the gradients. Residuals are kept by parameter, since buckets and parts change with each
generation. They fit the state after one step only, so whoever gets another state begins with zeros.

Low-rank codecs begin a step's search for a matrix's directions with those that the step before has found.
Those are the same on all ranks that made that step, and are kept beside the residuals, by the same rule.
"""

import torch
import torch.distributed as dist

from peerloom.worker.sync.bucket_layout import Gradients, Layout


class Residuals:
    """One rank's, over the generations of a job; empty where nothing was left out."""

    def __init__(self) -> None:
        self._kept: dict[torch.Tensor, torch.Tensor] = {}
        self._coming: dict[torch.Tensor, torch.Tensor] = {}
        self._settled: set[torch.Tensor] = set()
        self._directions: dict[torch.Tensor, torch.Tensor] = {}
        self._coming_directions: dict[torch.Tensor, torch.Tensor] = {}
        self._step = 0  # that is to be made with those kept

    @property
    def kept(self) -> Gradients:
        """Those that the next step adds."""
        return self._kept

    def begin(self, step: int) -> None:
        """A step (from 0) begins, perhaps again; those of another place in the training are dropped."""
        if step != self._step:
            self._kept, self._directions, self._step = {}, {}, step
        self._coming, self._settled, self._coming_directions = {}, set(), {}

    def of(self, layout: Layout) -> torch.Tensor:
        """What this step adds to a bucket [length]."""
        return layout.flat(self._kept)

    def set_aside(self, layout: Layout, left_out: torch.Tensor) -> None:
        """What this step left out of a bucket [length], at an offset of 0; it counts once it is committed.

        What isn't finite has been told as such, and would come back in every step.
        """
        clean = left_out.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        self._coming.update(layout.by_parameter(clean))

    @property
    def directions(self) -> Gradients:
        """By matrix, the columns [n, k] that the last step has found; empty where there was none."""
        return self._directions

    def set_directions_aside(self, parameter: torch.Tensor, columns: torch.Tensor) -> None:
        """What this step found [n, k]; it counts once it is committed, unless it isn't finite."""
        if bool(columns.isfinite().all()):
            self._coming_directions[parameter] = columns

    def settle(self, bucket: dist.GradBucket) -> None:
        """Adds to a bucket what other codecs left out before, where the method in use keeps nothing back."""
        if self._kept and any(parameter in self._kept for parameter in bucket.parameters()):
            gradients = bucket.buffer()
            gradients += self.of(Layout.of(bucket)).to(gradients.dtype)
            self._settled.update(bucket.parameters())

    def commit(self, steps: int = 1) -> None:
        """The step counts, or those of a round.

        Of a parameter without news the residual stays, as in a step made alone.
        """
        kept = {**self._kept, **self._coming}
        self._kept = {one: left_out for one, left_out in kept.items() if one not in self._settled}
        self._directions.update(self._coming_directions)
        self._coming, self._settled, self._coming_directions = {}, set(), {}
        self._step += steps
