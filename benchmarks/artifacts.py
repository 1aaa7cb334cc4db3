"""What it costs to fetch an artifact from three peers, of which one dies and one sends a wrong chunk.

The rival is one plain socket: sendfile on one side; on the other receive, SHA-256, write and fsync. Both run
on loopback in turn. Donors share one core, the newcomer and the plain receiver may use both. The rest: links
limited by the agents' own upload limit, gRPC instead of plain TCP, memory, and a thousand small ones at once.
"""

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.artifact_swarm import MIB, MemoryWatch, Swarm, receive_plainly, swarm_in
from benchmarks.measure import Goal, Measurement, alternate, measurement
from benchmarks.processes import running
from peerloom.artifacts.manifest import chunk_bytes_for, chunk_count
from peerloom.artifacts.transfer import digest_of

RIVAL = "one plain socket with the same digest check"
LIMITS_MB_PER_S = (40, 20, 10)
DONORS = ("ada", "bob", "cleo")


@dataclass(frozen=True)
class Trouble:
    """One fetch with a death and a lie: MB a second, per cent sent again, MiB above idle."""

    mb_per_s: float
    sent_again_percent: float
    memory_mib: float


def run(quick: bool) -> list[Measurement]:
    """Throughput with trouble beside the rival; then shaped links, gRPC, many small ones."""
    rounds, size_bytes = (1, 48 * MIB) if quick else (5, 1024 * MIB)
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        _write_random(source, size_bytes)
        digest = digest_of(source)
        ours, rival = alternate(rounds, lambda: _trouble(source, digest), lambda: _plain(source, digest))
        shaped = [_shaped(source if quick else _smaller(source)) for _ in range(rounds)]
        untroubled = [_smooth(source, digest, "true") for _ in range(rounds)]
        over_grpc = [_smooth(source, digest, "false") for _ in range(rounds)]
        failed = [float(_small_ones(Path(name), 100 if quick else 1000)) for _ in range(rounds)]
    size = f"{size_bytes // MIB:,} MiB from 3 peers"
    return [
        measurement(
            f"{size}, one killed, one with a wrong chunk",
            "MB/s",
            [one.mb_per_s for one in ours],
            goal=Goal(0.5, at_least=True, of_ratio=True),
            rival=RIVAL,
            rival_samples=rival,
        ),
        measurement(
            "the same: sent again", "%", [o.sent_again_percent for o in ours], goal=Goal(5, at_least=False)
        ),
        measurement(
            "the same: memory above idle, the most of each side",
            "MiB",
            [one.memory_mib for one in ours],
            goal=Goal(100, at_least=False),
        ),
        measurement(
            f"links limited to {', '.join(map(str, LIMITS_MB_PER_S))} MB/s, share of their sum",
            "",
            shaped,
            goal=Goal(0.9, at_least=True),
        ),
        measurement(
            "undisturbed, over plain TCP", "MB/s", untroubled, rival="over gRPC", rival_samples=over_grpc
        ),
        measurement("small fetches at once: failed", "", failed, goal=Goal(0, at_least=False)),
    ]


def profile(quick: bool) -> str:
    """Nothing: most of the time is SHA-256 in C, which cProfile doesn't see."""
    return "The time goes to SHA-256, twice for each byte (its chunk's and the whole's), in OpenSSL's code.\n"


def _write_random(path: Path, size_bytes: int) -> None:
    with path.open("wb") as file:
        for _ in range(size_bytes // MIB):
            file.write(os.urandom(MIB))


def _size_of(path: Path) -> int:
    return path.stat().st_size


def _smaller(source: Path) -> Path:
    path = source.with_name("smaller")
    if not path.exists():
        path.write_bytes(source.read_bytes()[: 512 * MIB])
    return path


def _plain(source: Path, digest: str) -> float:
    with running("benchmarks.plain_sender", str(source), core=0) as sender:
        seconds = receive_plainly(sender.address, source.with_name("plain"), digest)
    return _size_of(source) / seconds / 1e6


def _trouble(source: Path, digest: str) -> Trouble:
    with tempfile.TemporaryDirectory() as folder, swarm_in(Path(folder)) as swarm:
        return asyncio.run(_fetch_with_trouble(swarm, source, digest))


async def _fetch_with_trouble(swarm: Swarm, source: Path, digest: str) -> Trouble:
    size_bytes = _size_of(source)
    await _fill(swarm, source)
    chunks = chunk_count(size_bytes)
    swarm.spoil("bob", digest, chunk_bytes_for(size_bytes), chunks // 2, chunks)
    swarm.start("new", core=1)
    swarm.agents["new"].process.cpu_affinity(list(range(os.cpu_count() or 1)))
    memory = MemoryWatch([one.process for one in swarm.agents.values()])
    watching = asyncio.create_task(memory.watch())
    before_bytes = swarm.received_bytes("new")
    seconds = await swarm.fetch("new", digest, DONORS, kill="ada")
    received_bytes = swarm.received_bytes("new") - before_bytes
    watching.cancel()
    again = 100 * max(0.0, received_bytes / size_bytes - 1)
    return Trouble(size_bytes / seconds / 1e6, again, memory.most_bytes / MIB)


def _shaped(source: Path) -> float:
    with tempfile.TemporaryDirectory() as folder, swarm_in(Path(folder)) as swarm:
        return asyncio.run(_fetch_shaped(swarm, source))


async def _fetch_shaped(swarm: Swarm, source: Path) -> float:
    digest = await _fill(swarm, source, limits=LIMITS_MB_PER_S)
    swarm.start("new", core=1)
    seconds = await swarm.fetch("new", digest, DONORS)
    return _size_of(source) / seconds / 1e6 / sum(LIMITS_MB_PER_S)


def _smooth(source: Path, digest: str, bulk: str) -> float:
    async def fetch(swarm: Swarm) -> float:
        await _fill(swarm, source, "--bulk-transfers", bulk)
        swarm.start("new", core=1)
        swarm.agents["new"].process.cpu_affinity(list(range(os.cpu_count() or 1)))
        return _size_of(source) / await swarm.fetch("new", digest, DONORS) / 1e6

    with tempfile.TemporaryDirectory() as folder, swarm_in(Path(folder)) as swarm:
        return asyncio.run(fetch(swarm))


def _small_ones(folder: Path, count: int) -> int:
    async def fetch(swarm: Swarm) -> int:
        swarm.start("ada", core=0)
        swarm.start("new", core=1)
        digests = []
        for number in range(count):
            small = folder / f"small-{number}"
            small.write_text(f"artifact {number}")
            digests.append(await swarm.put("ada", small))
        return await swarm.fetch_many("new", digests, ["ada"])

    with tempfile.TemporaryDirectory() as state, swarm_in(Path(state)) as swarm:
        return asyncio.run(fetch(swarm))


async def _fill(swarm: Swarm, source: Path, *flags: str, limits: tuple[int, ...] = (0, 0, 0)) -> str:
    digest = ""
    for name, limit in zip(DONORS, limits, strict=True):
        swarm.start(name, "--upload-limit-bytes-per-s", str(limit * 10**6), *flags, core=0)
        digest = await swarm.put(name, source)
    return digest
