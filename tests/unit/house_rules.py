"""The rules of the house as data: its rooms, who may import whom, which files decide, what may be long."""

import peerloom

SERVICES = ("registry", "selector", "node_agent", "trainer")
ROOMS = ("__init__", "__main__", "config", "servicer")
STORED = ("registry", "selector", "trainer")
# Beside these rooms a service has its subjects, folders and a few files, and nothing else.
SUBJECTS = {
    "registry": ("admission", "answers", "core", "discovery", "events", "membership", "registry_metrics"),
    "selector": ("belief", "catalog", "choosing", "messages", "policies", "selector_metrics"),
    "node_agent": (
        "artifact_exchange",
        "agent_runtime",
        "inference_process",
        "membership",
        "node_metrics",
        "owner",
        "tunnels",
        "work_requests",
        "workers",
    ),
    "trainer": ("generations", "jobs", "models", "nodes", "trainer_metrics", "workers"),
}
# What several parts have on purpose: the rooms of services, and what two of them do alike.
SHARED_NAMES = {
    "__init__",
    "__main__",
    "config",
    "decisions",
    "failure_detector",
    "servicer",
    "store",
    "tables",
}
# Files here are named for a subject that other layers have too: its command, type, conversion or picture.
LAYERS = (
    "src/peerloom/cli/",
    "src/peerloom/client/conversions/",
    "src/peerloom/client/types/",
    "src/peerloom/experiments/pictures/",
)
FILE_LIMIT, FUNCTION_LIMIT = 300, 60
# A suite may be longer: it is a list, and nobody has to keep its beginning in mind at its end.
TEST_FILE_LIMIT = 450
# Longer than the limit, each for a reason that holds.
LONG_FILES = {
    "tests/integration/test_client.py": "the SDK's whole surface over one set of scripted services",
}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "managers", "manager", "base", "common", "misc"}


# The files that decide: pure functions of state and a given time, which return decision and reason.
DECISIONS = (
    "services/node_agent/work_requests.py",
    "services/node_agent/owner/leaving.py",
    "services/node_agent/owner/policy.py",
    "services/registry/admission/decisions.py",
    "services/registry/events/transitions.py",
    "services/registry/membership/decisions.py",
    "services/selector/belief/formula.py",
    "services/selector/belief/lies.py",
    "services/selector/belief/machine_speed.py",
    "services/selector/belief/movement.py",
    "services/selector/belief/track.py",
    "services/selector/catalog/entries.py",
    "services/selector/choosing/choice.py",
    "services/selector/policies/",
    "services/trainer/generations/decisions.py",
    "services/trainer/generations/pipeline_decisions.py",
    "services/trainer/generations/plan_decisions.py",
    "services/trainer/generations/plan_measures.py",
    "services/trainer/generations/plan_situation.py",
    "services/trainer/generations/script_decisions.py",
    "services/trainer/generations/stage_states.py",
    "services/trainer/generations/sync_decisions.py",
    "services/trainer/generations/sync_measures.py",
    "services/trainer/jobs/audit_entries.py",
    "services/trainer/jobs/federated_entries.py",
    "services/trainer/jobs/plan_entries.py",
    "services/trainer/jobs/sample_ledger.py",
    "services/trainer/jobs/script_runs.py",
    "services/trainer/jobs/specs.py",
    "services/trainer/jobs/stage_entries.py",
    "services/trainer/jobs/sync_entries.py",
    "services/trainer/models/evaluation_rules.py",
    "services/trainer/nodes/offers.py",
    "services/trainer/workers/decisions.py",
    "services/trainer/workers/reports.py",
    "services/trainer/workers/state.py",
    "src/peerloom/artifacts/fetch/chunk_schedule.py",
    "src/peerloom/artifacts/upload_decisions.py",
    "src/peerloom/client/notebook/html_tables.py",
    "src/peerloom/client/notebook/job_picture.py",
    "src/peerloom/client/tracking/track_entries.py",
    "src/peerloom/client/curves.py",
    "src/peerloom/dashboard/job_facts.py",
    "src/peerloom/dashboard/job_page.py",
    "src/peerloom/dashboard/listings.py",
    "src/peerloom/dashboard/network_page.py",
    "src/peerloom/dashboard/availability.py",
    "src/peerloom/dashboard/terminal_rows.py",
    "src/peerloom/inference/client/costs.py",
    "src/peerloom/inference/client/ensemble.py",
    "src/peerloom/inference/client/hedging.py",
    "src/peerloom/inference/client/opinion_rules.py",
    "src/peerloom/inference/cut.py",
    "src/peerloom/inference/server/batching.py",
    "src/peerloom/inference/trusted_modules.py",
    "src/peerloom/kit/allowance.py",
    "src/peerloom/kit/audit_rules.py",
    "src/peerloom/kit/codec_sizes.py",
    "src/peerloom/kit/federated_rounds.py",
    "src/peerloom/kit/ownership.py",
    "src/peerloom/kit/plan_model/",
    "src/peerloom/kit/parallel_plan.py",
    "src/peerloom/kit/principal.py",
    "src/peerloom/kit/roles.py",
    "src/peerloom/kit/sync_auto.py",
    "src/peerloom/kit/sync_explained.py",
    "src/peerloom/kit/sync_method.py",
    "src/peerloom/kit/sync_model/",
    "src/peerloom/sandbox/grant.py",
    "src/peerloom/sandbox/process_environment.py",
    "src/peerloom/sandbox/system_calls.py",
    "src/peerloom/worker/federated/drawing.py",
    "src/peerloom/worker/federated/versions.py",
    "src/peerloom/worker/plan/balancing.py",
    "src/peerloom/worker/plan/shadow_limits.py",
    "src/peerloom/worker/script/environment.py",
)
# What they must not reach for: no clock, chance, disk, network, database or event loop inside.
IMPURE = (
    "asyncio",
    "grpc",
    "os",
    "pathlib",
    "peerloom.kit.clock",
    "peerloom.kit.database",
    "random",
    "socket",
    "sqlalchemy",
    "subprocess",
    "threading",
    "time",
    "uuid",
)
# The selector's own pure modules, which the simulator uses too.
SIMULATED = (
    "services.selector.choosing.choice",
    "services.selector.catalog.columns",
    "services.selector.belief.machine_speed",
    "services.selector.policies",
    "services.selector.catalog.entries",
    "services.selector.belief.formula",
    "services.selector.belief.track",
)
# Which other parts of the package a part may import. The first prefix that fits counts.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "peerloom.errors": (),
    "peerloom.kit": ("errors", "v1"),
    "peerloom.admission": ("errors", "kit", "v1"),
    "peerloom.artifacts": ("errors", "kit", "v1"),
    "peerloom.services.registry": ("admission", "errors", "kit", "v1"),
    "peerloom.services.selector": ("admission", "errors", "kit", "v1"),
    "peerloom.services.node_agent": (
        "admission",
        "artifacts",
        "errors",
        "kit",
        "sandbox",
        "v1",
        "worker.assignment",
        "worker.data_roots",
        "worker.tasks.built_in",
    ),
    "peerloom.services.trainer": (
        "admission",
        "artifacts",
        "errors",
        "kit",
        "sandbox",
        "v1",
        "worker.evaluator.evaluation_order",
        "worker.tasks.built_in",
        "worker.shares",
    ),
    "peerloom.services": (),
    # It simulates what is around the selector, with the selector's own pure rules, policies and columns: the
    # same objects, so that what a simulation shows holds for the service.
    "peerloom.simulator": ("errors", "v1", *SIMULATED),
    "peerloom.sandbox": (),
    "peerloom.worker": ("artifacts", "errors", "kit", "sandbox", "v1"),
    # The loops of others, over the worker's.
    "peerloom.integrations": ("errors", "kit", "worker"),
    # What other libraries load is written by torch, where the user is.
    "peerloom.model_formats": ("errors", "kit", "worker"),
    "peerloom.client": ("admission", "artifacts", "errors", "kit", "v1", "inference.client", "model_formats"),
    # All services on one loop, with the worker's own session: who tests with it meets the real ones.
    "peerloom.testing": (
        *("artifacts", "client", "errors", "kit", "sandbox.kernel_support", "services", "v1"),
        *("worker.assignment", "worker.evaluator.evaluation_order"),
        *("worker.session_ground", "worker.trainer_session"),
    ),
    "peerloom.embedded": ("errors", "kit", "v1", "client"),
    "peerloom.testbed": ("admission", "errors", "kit", "sandbox", "v1", "client", "embedded"),
    "peerloom.inference.server": (
        "admission",
        "artifacts",
        "errors",
        "inference.trusted_modules",
        "kit",
        "v1",
        "worker",
    ),
    # A model that computes in the client's own process is built as a server builds it.
    "peerloom.inference.client.local_model": (
        "errors",
        "kit",
        "v1",
        "inference.server",
        "inference.trusted_modules",
    ),
    "peerloom.inference.client": (
        "errors",
        "kit",
        "v1",
        "client",
        "inference.cut",
        "inference.trusted_modules",
    ),
    "peerloom.inference": ("errors",),
    "peerloom.experiments": (
        "artifacts",
        "errors",
        "kit",
        "v1",
        "client",
        "embedded",
        "simulator",
        "testbed",
        "worker.tasks.layer_shapes",
    ),
    "peerloom.dashboard": ("client", "errors", "kit.clock", "kit.printable", "kit.lifeline"),
    "peerloom.cli": (
        "errors",
        "client",
        "dashboard",
        "embedded",
        "experiments",
        "kit.codec_sizes",
        "kit.federated_rounds",
        "kit.linux",
        "kit.listening",
        "kit.parallel_plan",
        "kit.plan_model",
        "kit.printable",
        "kit.sync_explained",
        "kit.sync_method",
        "kit.sync_model",
        "sandbox.bubblewrap",
        "sandbox.cgroups",
        "sandbox.kernel_support",
        "worker.tasks.built_in",
        "simulator",
        "testbed",
    ),
    "peerloom": ("errors", "client", "embedded", "worker.task"),
}
# What `import peerloom` offers: the SDK by its public names.
PUBLIC = {f"peerloom.{name}" for name in peerloom.__all__}
USES_TORCH = (
    "peerloom.worker",
    "peerloom.integrations",
    "peerloom.model_formats",
    "peerloom.inference.server",
    "peerloom.inference.client.local_model",
)
