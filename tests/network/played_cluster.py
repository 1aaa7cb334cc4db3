"""Plays a cluster's part for rendered manifests: scheduler, controllers, kubelets; Docker runs containers.

A pod is what it is for a kubelet: a container that only holds the network and process 1, and the service's
beside it. Machines are names with a number of GPUs, which nobody has: they are counted, as a scheduler does.
Kubelets act while somebody waits by `wait_until_ready` or `keep_alive`, which ask the pods' probes.
Claims are volumes that any machine can mount, mounted Secrets are folders in one folder. Services are names
on Docker's network, so an address doesn't outlive its pod. Policies, priorities and budgets aren't played.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import grpc
from docker.types import Mount
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from rendered_chart import SETS, Manifest, bytes_of, chosen, container, environment, of_kind

from peerloom import Job

GPU = "nvidia.com/gpu"
READY_LIMIT_S = 120.0
# Holds what the containers of a pod share; Docker's init, which is process 1, ends it.
PAUSE = ["python3", "-c", "import signal; signal.pause()"]
# Arguments of "emulated", with a batch size of 12: 10,000 steps, more than any test waits for.
LONG_JOB = {"samples": "120000", "sample_ms": "0", "step_ms": "100", "parameters": "10000"}


@dataclass
class Pod:
    """One pod of a set, on a machine, from its placing to its end.

    `ends` has the last lines of its service's container for each time that it was begun again.
    """

    name: str
    template: Manifest
    owner: Manifest
    machine: str
    uid: str = field(default_factory=lambda: secrets.token_hex(16))
    address: str = ""
    pause: Any = None
    service: Any = None
    ends: list[str] = field(default_factory=list)

    @property
    def grace_s(self) -> int:
        """How long it has to end by itself."""
        return int(self.template["spec"]["terminationGracePeriodSeconds"])

    @property
    def gpus(self) -> int:
        """How many it asks for."""
        return int(container(self.template)["resources"]["limits"].get(GPU, 0))


class Liveness:
    """How a service's liveness probe has fared, since a time by whose clock it is due again and again."""

    def __init__(self, probe: Manifest) -> None:
        self.probe = probe
        self._failures, self._due_s = 0, 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether it is to be asked now (monotonic seconds); then it isn't again before its period's end."""
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self.probe["periodSeconds"]
        return True

    def heard(self, failure: str) -> bool:
        """Notes an answer ("": it succeeded): whether the service is to be begun again now."""
        self._failures = self._failures + 1 if failure else 0
        if self._failures < self.probe["failureThreshold"]:
            return False
        self._failures = 0
        return True


class PlayedCluster:
    """Machines by name with their GPUs, and the sets' pods on them; all is gone after `close`."""

    def __init__(
        self,
        engine: docker.DockerClient,
        manifests: list[Manifest],
        machines: dict[str, int],
        secrets_folder: Path | None = None,
    ) -> None:
        self._engine, self._machines, self._secrets_folder = engine, dict(machines), secrets_folder
        self._mark = f"peerloom-played-{secrets.token_hex(4)}"
        self._sets = of_kind(manifests, *SETS)
        self._services = of_kind(manifests, "Service")
        self._secrets = {
            (name, key): value
            for name, each in of_kind(manifests, "Secret").items()
            for key, value in each.get("stringData", {}).items()
        }
        self._network = engine.networks.create(self._mark, labels={self._mark: ""})
        self.pods: dict[str, Pod] = {}

    def reconcile(self) -> list[str]:
        """Gives each set its pods, as controllers and the scheduler do; the names of new ones.

        Those are a StatefulSet's replicas, and a DaemonSet's one on each machine.
        """
        made = []
        for name, owner in self._sets.items():
            if owner["kind"] == "DaemonSet":
                taken = {pod.machine for pod in self.pods.values() if pod.owner is owner}
                free = [machine for machine in self._machines if machine not in taken]
                made += [self._place(f"{name}-{secrets.token_hex(3)}", owner, [one]) for one in free]
                continue
            for number in range(owner["spec"]["replicas"]):
                if f"{name}-{number}" not in self.pods:
                    made.append(self._place(f"{name}-{number}", owner, list(self._machines)))
        return made

    def add_machine(self, machine: str, gpus: int) -> None:
        """Another one, on which pods may run from now on."""
        self._machines[machine] = gpus

    def delete(self, name: str) -> int:
        """SIGTERM, and SIGKILL after the pod's grace, as for an eviction; the service's exit status."""
        pod = self.pods.pop(name)
        pod.service.stop(timeout=pod.grace_s)
        status = int(pod.service.wait()["StatusCode"])
        self._remove(pod)
        return status

    def end_machine(self, machine: str) -> list[str]:
        """All that runs there is gone at once, and so is the machine; the names of the pods that it had."""
        del self._machines[machine]
        lost = [pod for pod in self.pods.values() if pod.machine == machine]
        for pod in lost:
            del self.pods[pod.name]
            pod.service.kill()
            self._remove(pod)
        return [pod.name for pod in lost]

    def kill(self, name: str) -> None:
        """Ends a pod's service at once; it stays so until a kubelet acts."""
        self.pods[name].service.kill()

    def freeze(self, name: str) -> None:
        """Stops a pod's service in its tracks: the process is there, and does nothing."""
        self.pods[name].service.kill(signal="SIGSTOP")

    def keep_alive(self, missing: Callable[[], str], limit_s: float) -> None:
        """Asks liveness probes of all pods, each at its period, until nothing is `missing`.

        A service that fails as often in a row as its probe allows is ended and begun again.
        """
        health = {name: Liveness(container(pod.template)["livenessProbe"]) for name, pod in self.pods.items()}

        under_way: dict[str, Future[None]] = {}

        def care_for(name: str, one: Liveness) -> None:
            if one.heard(self._missing(self.pods[name], one.probe)):
                self._restart(self.pods[name])

        def act() -> str:
            for name in [name for name, future in under_way.items() if future.done()]:
                under_way.pop(name).result()
            for name, one in health.items():
                if name not in under_way and one.is_due(time.monotonic()):
                    under_way[name] = kubelets.submit(care_for, name, one)
            return missing()

        # As many kubelets as pods: while one waits out a frozen pod's grace, others are asked on.
        with ThreadPoolExecutor(max_workers=len(health)) as kubelets:
            wait_until(act, limit_s)
        for future in under_way.values():
            future.result()

    def wait_until_ready(self, *names: str) -> None:
        """Asks probes of these pods, or of all, until they succeed, the startup probe first."""
        for pod in [self.pods[name] for name in names or self.pods]:
            for kind in ("startupProbe", "readinessProbe"):
                probe = container(pod.template)[kind]
                wait_until(lambda pod=pod, probe=probe: self._missing(pod, probe))  # type: ignore[misc]

    def close(self) -> None:
        """Takes away all containers, volumes and the network."""
        kept = {"all": True, "filters": {"label": self._mark}}
        for each in self._engine.containers.list(**kept):
            each.remove(force=True, v=True)
        for volume in self._engine.volumes.list(filters={"label": self._mark}):
            volume.remove(force=True)
        self._network.remove()

    def _place(self, name: str, owner: Manifest, machines: list[str]) -> str:
        """Puts a new pod on the best of these machines."""
        template = owner["spec"]["template"]
        pod = Pod(name, template, owner, "")
        used = {one: sum(p.gpus for p in self.pods.values() if p.machine == one) for one in machines}
        count = {one: sum(p.machine == one for p in self.pods.values()) for one in machines}
        fitting = [one for one in machines if self._machines[one] - used[one] >= pod.gpus]
        assert fitting, f"{name} is pending: no machine has {pod.gpus} GPUs left"
        # Machines with GPUs are left to those who ask for some.
        pod.machine = min(fitting, key=lambda one: (bool(self._machines[one]) and not pod.gpus, count[one]))
        self.pods[name] = pod
        self._start(pod)
        return name

    def _start(self, pod: Pod) -> None:
        spec, image = container(pod.template), container(pod.template)["image"]
        labels, mounts = {self._mark: pod.name}, list(self._mounts(pod))
        pod.pause = self._engine.containers.create(
            image,
            PAUSE,
            entrypoint=[],
            hostname=pod.name,
            init=True,
            labels=labels,
            mounts=mounts,
            network_mode="none",
        )
        self._engine.networks.get("none").disconnect(pod.pause)
        self._network.connect(pod.pause, aliases=self._names_of(pod))
        pod.pause.start()
        pod.pause.reload()
        pod.address = pod.pause.attrs["NetworkSettings"]["Networks"][self._mark]["IPAddress"]
        fields = {"status.podIP": pod.address, "metadata.name": pod.name, "metadata.uid": pod.uid}
        limits = spec["resources"]["limits"]
        resources = {f"limits.{name}": str(bytes_of(str(value))) for name, value in limits.items()}
        whole, own = pod.template["spec"]["securityContext"], spec["securityContext"]
        pod.service = self._engine.containers.run(
            image,
            environment=environment(pod.template, fields, self._secrets, resources),
            network_mode=f"container:{pod.pause.id}",
            pid_mode=f"container:{pod.pause.id}" if pod.template["spec"]["shareProcessNamespace"] else None,
            user=f"{whole['runAsUser']}:{whole['runAsGroup']}",
            read_only=own["readOnlyRootFilesystem"],
            cap_drop=own["capabilities"]["drop"],
            security_opt=[] if own["allowPrivilegeEscalation"] else ["no-new-privileges:true"],
            mem_limit=bytes_of(limits["memory"]),
            mounts=mounts,
            labels=labels,
            detach=True,
        )

    def _names_of(self, pod: Pod) -> list[str]:
        """The Services with an address that lead to this pod: its ports are theirs."""
        labels = {
            **pod.template["metadata"]["labels"],
            "statefulset.kubernetes.io/pod-name": pod.name,
        }
        specs = {name: each["spec"] for name, each in self._services.items()}
        return [
            name
            for name, spec in specs.items()
            if spec.get("clusterIP") != "None" and chosen({"matchLabels": spec["selector"]}, labels)
        ]

    def _mounts(self, pod: Pod) -> Iterator[Mount]:
        volumes = {each["name"]: each for each in pod.template["spec"]["volumes"]}
        claims = {each["metadata"]["name"] for each in pod.owner["spec"].get("volumeClaimTemplates", ())}
        for mount in container(pod.template)["volumeMounts"]:
            name, path = mount["name"], mount["mountPath"]
            if name in claims:
                source = f"{self._mark}-{name}-{pod.name}"
                self._engine.volumes.create(source, labels={self._mark: ""})
                yield Mount(path, source, type="volume")
            elif secret := volumes[name].get("secret"):
                assert self._secrets_folder is not None
                folder = self._secrets_folder / secret["secretName"]
                folder.mkdir(exist_ok=True)
                yield Mount(path, str(folder), type="bind", read_only=True)
            else:
                # As long as the pod, which holds it, so that it outlives the service's container.
                limit, source = volumes[name]["emptyDir"].get("sizeLimit", "1Gi"), f"{name}-{pod.uid}"
                options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={bytes_of(limit)},mode=1777"}
                self._engine.volumes.create(source, driver_opts=options, labels={self._mark: ""})
                yield Mount(path, source, type="volume", no_copy=True)

    def _missing(self, pod: Pod, probe: Manifest) -> str:
        """What the probe's answer lacks; "" when it succeeds. A service that ended is begun again."""
        pod.service.reload()
        if pod.service.status == "exited":
            self._restart(pod)
        limit_s = probe.get("timeoutSeconds", 1)
        if "exec" in probe:
            status, said = pod.service.exec_run(["timeout", str(limit_s), *probe["exec"]["command"]])
            return "" if status == 0 else f"{pod.name}: {said.decode()}; {pod.service.logs(tail=5).decode()}"
        asked = probe["grpc"]
        try:
            with grpc.insecure_channel(f"{pod.address}:{asked['port']}") as channel:
                asking = HealthCheckRequest(service=asked["service"])
                answer = HealthStub(channel).Check(asking, timeout=limit_s)
        except grpc.RpcError as error:
            return f"{pod.name}: {error.code()}; {pod.service.logs(tail=5).decode()}"
        return "" if answer.status == HealthCheckResponse.SERVING else f"{pod.name} isn't ready: {answer}"

    def _restart(self, pod: Pod) -> None:
        """The container of the service, in the same pod: its address, name and volumes stay."""
        pod.ends.append(pod.service.logs(tail=5).decode())
        pod.service.restart(timeout=pod.grace_s)

    def _remove(self, pod: Pod) -> None:
        for each in (pod.service, pod.pause):
            each.remove(force=True, v=True)


@contextmanager
def played(
    engine: docker.DockerClient,
    manifests: list[Manifest],
    machines: dict[str, int],
    secrets_folder: Path | None = None,
) -> Iterator[PlayedCluster]:
    """A cluster whose pods all begin, until the end of the block."""
    cluster = PlayedCluster(engine, manifests, machines, secrets_folder)
    try:
        cluster.reconcile()
        yield cluster
    finally:
        cluster.close()


def wait_until(missing: Callable[[], str], limit_s: float = READY_LIMIT_S) -> None:
    """Asks five times a second, as kubelets and users do, until nothing is missing."""
    deadline_s, pause = time.monotonic() + limit_s, threading.Event()
    while what := missing():
        assert time.monotonic() < deadline_s, f"not within {limit_s:g} s: {what}"
        pause.wait(0.2)


def step_of(job: Job) -> int:
    """The last committed step, 0 before the first."""
    return job.progress.step if job.progress else 0


def living(job: Job) -> set[str]:
    """The ids of its workers that haven't ended."""
    return {worker.id for worker in job.workers if not worker.ended}
