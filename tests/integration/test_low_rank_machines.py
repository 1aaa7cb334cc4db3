"""Factors have the same bits whatever the processor can: with no vector units, and with all it has."""

import os
import subprocess
import sys

import pytest

DEADLINE_S = 60
SCRIPT = """
import hashlib, torch
from peerloom.worker.sync.low_rank_factors import orthonormal, product
chance, digest = torch.Generator().manual_seed(0), hashlib.sha256()
for rows, columns, rank in [(300, 500, 4), (1000, 64, 8), (33, 4097, 1), (64, 65, 3)]:
    # Whole numbers from a generator are the same everywhere.
    first, second = (
        torch.randint(-(10**6), 10**6, (length, rank), generator=chance) / 977 for length in (rows, columns)
    )
    [basis] = orthonormal([first])
    digest.update(basis.numpy().tobytes())
    digest.update(product(basis, second).numpy().tobytes())
print(torch.backends.cpu.get_cpu_capability(), digest.hexdigest())
"""


@pytest.mark.timeout(2 * DEADLINE_S)
def test_factors_have_the_same_bits_without_the_processor_s_vector_units() -> None:
    said = [bits({"ATEN_CPU_CAPABILITY": "default"}), bits({"OMP_NUM_THREADS": "2"})]
    assert said[0][0] == "DEFAULT"
    assert said[0][1] == said[1][1]


def bits(environment: dict[str, str]) -> list[str]:
    """What the processor was taken for, and the digest of all that came out."""
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return found.stdout.split()
