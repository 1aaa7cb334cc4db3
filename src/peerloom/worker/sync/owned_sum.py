"""One sum of all ranks' values by way of owners, with any codec.

An owner adds up its own values as they are, whatever the codec: they don't travel.
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import pad

from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync import TensorFuture
from peerloom.worker.sync.codecs import codec_of
from peerloom.worker.sync.direct import DirectExchange


class OwnedSum:
    """The sum of all ranks' flat `values`, under way: each of `owners` adds up a part, and all decode that.

    `method` and the `dtype` of what `values` were decide the codec. With `keeps` it knows what this rank's
    encoding left out.
    """

    def __init__(
        self,
        exchange: DirectExchange,
        method: SyncMethod,
        dtype: torch.dtype,
        values: torch.Tensor,
        owners: Sequence[int],
        *,
        keeps: bool = False,
        urgency: int = 0,
    ) -> None:
        parts = pad(values, (0, -len(values) % len(owners))).view(len(owners), -1)
        self._values, self._length, self._keeps = len(values), parts.shape[1], keeps
        self._exchange = exchange
        self._codec = codec_of(method, self._length, dtype)
        self._own = owners.index(exchange.rank) if exchange.rank in owners else None
        self._own_values = parts[self._own].cpu() if self._own is not None else None
        self._own_left_out: torch.Tensor | None = None
        encoded = self._codec.encode(parts)
        self._left_out = parts - self._codec.decode(encoded, self._length) if keeps else None
        self._rows = exchange.begin_by_owners(encoded, owners, self._summed, urgency)

    @property
    def done(self) -> TensorFuture:
        """When all owners' results are here."""
        return self._rows.done

    def total(self) -> torch.Tensor:
        """The sum, once it is there. Raises what `Collectives.result` does."""
        return self._codec.decode(self._exchange.rows(self._rows), self._length).flatten()[: self._values]

    def left_out(self) -> torch.Tensor:
        """What this rank's encoding left out, as an owner that of the sum too; after `total`."""
        assert self._left_out is not None, "it was kept"
        if self._own is not None:
            assert self._own_left_out is not None, "the sum is there"
            self._left_out[self._own] = self._own_left_out.to(self._left_out.device)
        return self._left_out.flatten()[: self._values]

    def _summed(self, rows: torch.Tensor) -> torch.Tensor:
        assert self._own_values is not None, "only owners sum up"
        came = self._codec.decode(rows, self._length)
        came[self._exchange.rank] = self._own_values
        total = came.sum(0, keepdim=True)
        result = self._codec.encode(total)
        if self._keeps:
            self._own_left_out = (total - self._codec.decode(result, self._length))[0]
        return result[0]
