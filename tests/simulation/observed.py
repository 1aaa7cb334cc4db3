"""What the simulation sees beside the services' own words: who worked with whom, what was acknowledged."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peerloom.testing.observer import Observer
from peerloom.testing.scripted_collective import Collective
from peerloom.v1.trainer_pb2 import ConfigureGeneration
from peerloom.worker.assignment import Assignment

if TYPE_CHECKING:
    from peerloom.testing.simulated_processes import MemoryWorld, ProcessRun
    from tests.simulation.faults import Fault


# Faults that leave a process alive and without the others' news; and how long that may last after them.
UNAWARE = frozenset(
    {
        *("freeze", "freeze worker", "cut", "cut one way", "isolate", "reset", "slow"),
        *("kill leader", "freeze leader", "isolate leader", "cut leader from database"),
    }
)
RECOVERY_S = 6.0
LATE_S = 1.0  # until who wakes has let go


@dataclass
class Announced:
    """A generation as its members were told of it, and when they last worked in it."""

    collective: Collective
    world_size: int
    by_rank: dict[int, str] = field(default_factory=dict)
    first_work_s: float | None = None


class Observed(Observer):
    """Facts that the promises are checked against; a broken promise that is seen at once is noted here."""

    def __init__(self, world: "MemoryWorld") -> None:
        super().__init__(world.network, f"{world.seed}/collectives")
        self._world = world
        self.broken: list[str] = []
        self.generations: dict[tuple[str, int], Announced] = {}
        self.registrations: dict[str, tuple[str, str]] = {}
        self.registered_nodes: dict[str, str] = {}
        self.ids_by_name: dict[str, set[str]] = {}
        self.registered_s: dict[str, float] = {}  # by lease, when its node first heard of it
        self.evidence_ids: dict[str, None] = {}
        self.submitted: dict[str, str] = {}
        self.slots: dict[tuple[str, int], str] = {}
        self.ended_s: dict[str, float] = {}  # by worker
        self.last_disturbance_s = -10.0
        self.watches_leases = False
        self.leaders: dict[str, ProcessRun] = {}
        self.writers: dict[tuple[str, int], str] = {}
        self.disturbances: list[Fault] = []
        world.network.on_answer = self.answered

    def disturbed(self, fault: "Fault") -> None:
        """A fault begins: for a while some can't know what others know."""
        self.disturbances.append(fault)
        if fault.kind in UNAWARE:
            self.last_disturbance_s = max(self.last_disturbance_s, fault.at_s + fault.lasts_s + RECOVERY_S)

    def break_promise(self, text: str) -> None:
        """A promise doesn't hold."""
        if text not in self.broken:
            self.broken.append(text)
            self._world.history.note(f"BROKEN: {text}")

    def collective(self, assignment: Assignment, config: ConfigureGeneration) -> Collective:
        """Where the members of a generation meet; nobody else was ever told the same number and rank."""
        key = (assignment.job_id, config.generation)
        known = self.generations.get(key)
        if known is None:
            known = self.generations[key] = Announced(self._make(key, config.world_size), config.world_size)
        who, before = assignment.worker_id, known.by_rank.get(config.rank)
        if (before is not None and before != who) or known.world_size != config.world_size:
            self.break_promise(
                f"generation {key[1]} of {key[0]} was announced twice: rank {config.rank} of "
                f"{known.world_size} to {before}, then of {config.world_size} to {who}"
            )
        known.by_rank[config.rank] = who
        return known.collective

    def completed(self, key: tuple[str, int], what: str) -> None:
        """All members of a generation have done something."""
        if what.startswith("step"):
            self._worked(key, what)

    def mismatched(self, key: tuple[str, int], whats: str) -> None:
        """They do different things."""
        self.break_promise(f"members of generation {key[1]} of {key[0]} do different things: {whats}")

    def _worked(self, key: tuple[str, int], what: str) -> None:
        now_s, (job_id, generation) = self._world.loop.time(), key
        announced = self.generations[key]
        announced.first_work_s = announced.first_work_s or now_s
        for (other_job, later), other in self.generations.items():
            if other_job != job_id or later <= generation or other.first_work_s is None:
                continue
            # Whoever was cut off or frozen can't know that the others went on without it.
            if other.first_work_s > self.last_disturbance_s and now_s > other.first_work_s + 2.0:
                self.break_promise(
                    f"{what} of generation {generation} of {job_id} was made at {now_s:.3f} s, "
                    f"though generation {later} works since {other.first_work_s:.3f} s"
                )

    def wrote(self, run: "ProcessRun", connection: Any, service: str) -> None:
        """A process is about to commit what it wrote into a service's database."""
        query = "SELECT process, epoch FROM service_leases WHERE service = ?"
        holder, epoch = connection.exec_driver_sql(query, (service,)).one()
        who = f"{run.name}, life {run.number}"
        if holder.split("\n")[0:4:3] != [run.name, str(run.number)]:
            self.break_promise(f"{run.name} writes the {service}'s database, whose lease {holder!r} holds")
        before = self.writers.setdefault((service, epoch), who)
        if before != who:
            self.break_promise(f"{before} and {who} both write the {service}'s database in epoch {epoch}")

    def took(self, run: "ProcessRun", service: str) -> None:
        """A process has just taken a service's lease: who had it has let go, unless it was frozen."""
        before, self.leaders[service] = self.leaders.get(service), run
        if before is None or before is run or before.is_dead or self._was_frozen(before.name):
            return
        for server in self._world.network.servers.values():
            if server.run is before and server.under_way:
                self.break_promise(
                    f"{run.name} leads at {self._world.loop.time():.3f} s, though {before.name} "
                    f"still serves {sorted(set(server.under_way))}"
                )

    def _was_frozen(self, process: str) -> bool:
        now_s = self._world.loop.time()
        return any(
            fault.at_s <= now_s <= fault.at_s + fault.lasts_s + LATE_S
            for fault in self.disturbances
            if fault.kind in ("freeze", "freeze leader") and process.rstrip("2") in fault.targets
        )

    def slot_taken(self, node: str, slot: int, worker: str) -> None:
        """A worker runs in a slot, alone."""
        holder = self.slots.get((node, slot))
        if holder is not None:
            self.break_promise(f"slot {slot} of {node} runs {worker} beside {holder}")
        self.slots[node, slot] = worker

    def slot_freed(self, node: str, slot: int, worker: str) -> None:
        """The worker is gone."""
        self.ended_s[worker] = self._world.loop.time()
        if self.slots.get((node, slot)) == worker:
            del self.slots[node, slot]

    def answered(self, run: "ProcessRun", method: str, request: Any, response: Any) -> None:
        """A caller heard of the success of its call."""
        if method == "Register":
            self._registered(request, response)
        elif method == "ReportEvidence":
            self.evidence_ids.update((fact.evidence_id, None) for fact in request.evidence)
        elif method == "SubmitJob":
            known = self.submitted.setdefault(request.request_id, response.job.job_id)
            if known != response.job.job_id:
                self.break_promise(f"one submission made two jobs, {known} and {response.job.job_id}")

    def _registered(self, request: Any, response: Any) -> None:
        got = (response.node_id, response.lease_id)
        known = self.registrations.setdefault(request.request_id, got)
        self.registered_s.setdefault(response.lease_id, self._world.loop.time())
        if known != got:
            self.break_promise(f"one registration of {request.spec.name} was given two leases")
        name = self.registered_nodes.setdefault(response.node_id, request.spec.name)
        if name != request.spec.name:
            self.break_promise(f"{response.node_id} was given to {name} and to {request.spec.name}")
        ids = self.ids_by_name.setdefault(request.spec.name, set())
        ids.add(response.node_id)
        if len(ids) > 1:
            self.break_promise(f"{request.spec.name} was given {len(ids)} ids")
