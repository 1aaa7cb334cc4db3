"""The dashboard's pages in Debian's Chromium: over real services, or over a board that a test fills."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from axe_playwright_python.sync_playwright import Axe
from conftest import PAGE_LIMIT_MS
from playwright.sync_api import Browser, Page
from starlette.routing import BaseRoute

from peerloom.client.types import (
    Belief,
    BeliefTerms,
    BeliefWeights,
    EpochFinished,
    Evidence,
    GenerationFormed,
    GpuLoad,
    Job,
    JobSpec,
    KeptArtifact,
    MachineLoad,
    Model,
    Node,
    NodeAnswer,
    NodeChoice,
    NotChosen,
    Progress,
    RawInput,
    ScriptRun,
    Standardise,
    StepCommitted,
    SyncInUse,
    Worker,
    WorkerLost,
)
from peerloom.dashboard.availability import SERVICES, Availability, services_page
from peerloom.dashboard.board import Board
from peerloom.dashboard.job_page import JobPage
from peerloom.dashboard.listings import (
    artifact_rows,
    belief_rows,
    belief_steps,
    job_rows,
    jobs_by_node,
    model_rows,
)
from peerloom.dashboard.network_page import NetworkPage
from peerloom.dashboard.window import WebServer, listening_socket, web_application

CHROMIUM = shutil.which("chromium")
STOP_LIMIT_S = 30.0
TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)
WEIGHTS = BeliefWeights(0.3, 0.35, 0.35, 0.1, 10.0)
DIGITS = RawInput((1, 8, 8), "uint8", 0, 16, Standardise((0.3,), (0.4,), 16), tuple("0123456789"))


@contextmanager
def dashboard(address: str, *flags: str) -> Iterator[tuple[str, str]]:
    """`peerloom dashboard` as a process: its URL, and the token of --actions. Ctrl-C ends it."""
    command = [sys.executable, "-m", "peerloom.cli", "dashboard", "--address", address]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *flags], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            yield url, process.stdout.readline().split()[-1] if "--actions" in flags else ""
            process.send_signal(signal.SIGINT)
            assert process.wait(STOP_LIMIT_S) == 0
        finally:
            process.kill()


def points(page: Page) -> int:
    """How many steps the curve of the loss shows."""
    return int(page.locator("[id^=chart-job][id$=-loss]").get_attribute("data-points") or 0)


def await_more_points(page: Page, than: int) -> None:
    page.wait_for_function(
        "than => Number(document.querySelector('[id^=chart-job][id$=-loss]')?.dataset.points ?? 0) > than",
        arg=than,
    )


class Look:
    """A page of the dashboard, and what went wrong while it was looked at."""

    def __init__(self, browser: Browser, url: str, scheme: str = "light", width: int = 1200) -> None:
        self.page: Page = browser.new_page(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": 800},
            reduced_motion="reduce",
        )
        self.page.set_default_timeout(PAGE_LIMIT_MS)
        self.errors, self.asked, self.url = list[str](), list[str](), url
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)

    def check(self) -> None:
        """Nothing was said on the console, and nothing was asked of another place."""
        place = self.url.partition("?")[0].partition("#")[0]
        assert self.errors == []
        assert [url for url in self.asked if not url.startswith(place)] == []
        assert self.asked

    def check_accessible(self, *rules: str) -> None:
        """axe-core finds nothing serious in what is seen now, by these rules or all."""
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = {"type": "rule", "values": list(rules)}
        found = Axe().run(self.page, options=options).response["violations"]
        serious = [
            f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == []

    def picture(self, name: str, height: int) -> None:
        """Keeps what is seen at the top, where somebody asked for it by PEERLOOM_PICTURES."""
        if folder := os.environ.get("PEERLOOM_PICTURES"):
            size = self.page.viewport_size
            assert size is not None
            self.page.set_viewport_size({"width": size["width"], "height": height})
            self.page.screenshot(path=Path(folder) / name)


def node(number: int, *, slots: int = 2, free: int = 1, state: str = "alive") -> Node:
    """A node whose name is as long as a machine's may be."""
    name = f"reading-room-{number:03}.library"
    gpu = GpuLoad(None if number == 3 else 0.9, 40 * 10**9, 80 * 10**9)
    load = MachineLoad(0.34, 0.12, 16, 12 * 10**9, 64 * 10**9, (gpu,) if number % 2 else ())
    is_told = state != "dead" and number != 4  # of which the agent is an older one
    return Node(
        id=f"node-{number}",
        name=name,
        address=f"10.0.0.{number}:7410",
        state=state,  # type: ignore[arg-type]
        reason="",
        slots=slots,
        free_slots=free,
        accelerators=(),
        speed=None,
        labels={},
        draining=False,
        incarnation=1,
        registered_time=TIME,
        last_seen_time=TIME,
        online_s=60.0,
        owner="library",
        load=load if is_told else None,
    )


def worker(number: int, *, rank: int = 0, ended: bool = False) -> Worker:
    """A worker on the node of that number."""
    return Worker(f"w{number}", f"node-{number}", node(number).name, rank, ended, "", generation=2)


def job(workers: Sequence[Worker], **others: Any) -> Job:
    """A job that runs."""
    progress = Progress(40, 90, 2, 5, 0.4, 640.0, 0.8, "accuracy")
    one = Job(
        id="job-1",
        spec=JobSpec("digits", sync="auto", name="digits"),
        state="running",
        reason="3 workers train.",
        answers=(NodeAnswer("node-1", node(1).name, "a:1", 2, 1.25, "the best", 1, "granted", 0.02),),
        workers=tuple(workers),
        generation=2,
        backend="gloo",
        progress=progress,
        result=None,
        submit_time=TIME,
        first_step_time=TIME,
        end_time=None,
        choice=NodeChoice("survival", 3, 1, 4, (NotChosen("its session is young", 3, (node(2).name,)),)),
        sync=SyncInUse("codec=int8", "it is the fastest", None, 0.2, 0.1, 0.1, "topology=ring", 0.3, 1),
    )
    return replace(one, **others)


def job_page() -> JobPage:
    """A job with two generations, of which the second has other shares and another method."""
    page, first, second = JobPage(), worker(1), worker(2, rank=1)
    page.refresh(job([first, second]))
    page.apply(GenerationFormed(1, "job-1", TIME, 1, (first, second), "gloo", 1, "codec=none"))
    for number in range(1, 41):
        if number == 21:
            page.apply(WorkerLost(90, "job-1", TIME, second, "it was killed"))
            page.apply(GenerationFormed(91, "job-1", TIME, 2, (first, worker(3)), "gloo", 21, "codec=int8"))
            page.apply(EpochFinished(92, "job-1", TIME, 1, "accuracy", 0.8, 0.5, 360))
        shares = {1: (1, 1), 11: (3, 1), 21: (1, 1)}.get(number, ())
        logged = {"grad_norm": 1.0 / number}
        page.apply(
            StepCommitted(
                number,
                "job-1",
                TIME,
                number,
                90,
                1,
                2.0 / number,
                32,
                64.0,
                0.5,
                0.02,
                0.01,
                1000,
                logged,
                shares,
            )
        )
    return page


def script_page() -> JobPage:
    """A script one of whose processes failed."""
    page = JobPage()
    failed = ScriptRun(2, 1, node(2).name, -9, "Traceback\nMemoryError")
    page.refresh(job([worker(1)], id="job-2", spec=JobSpec("train.py"), script_run=failed, sync=None))
    return page


def belief(updates: int) -> Belief:
    """A belief after so many updates."""
    terms = BeliefTerms(0.1, updates, 2, 0.05, 1.0, 60.0, 0, 0, 0.5 * updates, 4.0, -4.0, WEIGHTS)
    evidence = Evidence(f"e{updates}", "node-1", "transfer", 0.1, None, 1000, "job-1", "a model", TIME)
    return Belief("node-1", node(1).name, 0.5 * updates, terms, updates, TIME, evidence)


def model(version: int, began_with: str = "") -> Model:
    """A version of the digits' model."""
    return Model(
        digest=f"{version:064x}",
        size_bytes=26_000,
        name="digits",
        version=version,
        job_id=f"job-{version}",
        task="digits",
        metric=0.9,
        metric_name="accuracy",
        create_time=TIME + timedelta(minutes=version),
        initial_model=began_with,
        raw_input=DIGITS,
    )


def testbed() -> dict[str, Any]:
    """One host behind ns-3, as the command line hands it on."""
    host = {"name": node(1).name, "node": 1, "up": True, "delay_ms": 5.0, "rate": "100 Mbit/s"}
    counts = {"sent_bytes": 1_200_000, "received_bytes": 800_000, "dropped_packets": 3}
    return {
        **{"name": "thesis", "backend": "ns3", "medium": "csma", "wall_s": 60.0, "cpu_s": 12.0},
        **{"lag_ms": 0.2, "lag_worst_ms": 1.5, "lag_bound_ms": 10.0, "hosts": [{**host, **counts}]},
    }


def filled_board(nodes: int) -> Board:
    """A system of so many nodes, of which three are lost; every third one works on a job."""
    board, network = Board(), NetworkPage()
    states = {5: "dead", 6: "suspect", 17: "dead"}
    network.refresh((node(number, state=states.get(number, "alive")) for number in range(1, nodes + 1)), 0)
    jobs = [job([worker(number) for number in range(1, nodes + 1, 3)]), script_page_job()]
    working = jobs_by_node(jobs)
    rows = [{**row, "belief": 1.5, "jobs": working.get(row["id"], [])} for row in network.nodes()]
    here = dict.fromkeys(SERVICES, Availability().answered(TIME.timestamp()))
    models = [model(3, model(2).digest), model(2, model(1).digest), model(1)]
    kept = KeptArtifact(model(1).digest, 26_000, "digits", "model", "job-1", "", (rows[0]["name"],), (), ())
    sections: dict[str, Any] = {
        "window": {"acts": True},
        "services": services_page(here, "10.0.0.1:7400"),
        "nodes": rows,
        "events": network.events(),
        "jobs": job_rows(jobs),
        "models": model_rows(models),
        "beliefs": belief_rows([belief(3)]),
        "testbed": testbed(),
        "artifacts": {"rows": artifact_rows([kept])},
        f"node:{rows[0]['name']}": {
            "name": rows[0]["name"],
            "steps": belief_steps([belief(3), belief(2), belief(1)]),
        },
        "job:job-1": job_page().page(),
        "job:job-2": script_page().page(),
    }
    for name, value in sections.items():
        board.pin(name, partial(deepcopy, value))
    return board


def script_page_job() -> Job:
    """The script's job as lists have it."""
    return job([worker(1)], id="job-2", spec=JobSpec("train.py"))


@contextmanager
def served(board: Board, posts: Sequence[BaseRoute] = ()) -> Iterator[str]:
    """The pages over a board, from a thread; their URL."""

    @contextmanager
    def looking(page: str, item: str) -> Iterator[list[str]]:
        yield [f"{page}:{item}" if item else page] if page else []

    app = web_application(board, looking, "", ["127.0.0.1"], posts)
    with listening_socket("127.0.0.1", 0) as listener:
        server = WebServer(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"), board)
        thread = threading.Thread(target=server.run, args=([listener],), name="pages")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.end()
            thread.join(60)
