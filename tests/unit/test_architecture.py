"""The rules of the house: who may import whom, what a service consists of, how long things are."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import peerloom

ROOT = Path(__file__).parents[2]
SERVICES = ("registry", "selector", "node_agent", "trainer")
ROOMS = ("__init__", "__main__", "config", "servicer", "rules")
STORED = ("registry", "selector", "trainer")
FILE_LIMIT, FUNCTION_LIMIT = 300, 60
# A suite may be longer: it is a list, and nobody has to keep its beginning in mind at its end.
TEST_FILE_LIMIT = 450
# Longer than the limit, each for a reason that holds.
LONG_FILES = {
    "tests/integration/test_client.py": "the SDK's whole surface over one set of scripted services",
}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "managers", "manager", "base", "common", "misc"}

# The selector's modules without database, network and clock.
SELECTOR_RULES = ("rules", "track", "policies", "choice", "columns", "comparing", "roster")
# Which other parts of the package a part may import. The first prefix that fits counts.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "peerloom.errors": (),
    "peerloom.kit": ("errors", "v1"),
    "peerloom.services.registry": ("errors", "kit", "v1"),
    "peerloom.services.selector": ("errors", "kit", "v1"),
    "peerloom.services.node_agent": (
        "errors",
        "kit",
        "v1",
        "worker.assignment",
        "worker.catalogue",
        "worker.warm",
    ),
    "peerloom.services.trainer": ("errors", "kit", "v1", "worker.catalogue", "worker.shares"),
    "peerloom.services": (),
    # It simulates what is around the selector, with the selector's own pure rules, policies and columns: the
    # same objects, so that what a simulation shows holds for the service.
    "peerloom.simulator": ("errors", *(f"services.selector.{name}" for name in SELECTOR_RULES)),
    "peerloom.worker": ("errors", "kit", "v1"),
    # The cut is pure; a model runs where the client is in `inference.local`, imported when asked for.
    "peerloom.client": ("errors", "kit", "v1", "inference.cut", "inference.local"),
    "peerloom.embedded": ("errors", "kit", "v1", "client"),
    "peerloom.testbed": ("errors", "kit", "v1", "client", "embedded"),
    "peerloom.inference": ("errors", "kit", "v1", "worker"),
    "peerloom.experiments": ("errors", "kit", "v1", "client", "embedded", "simulator", "testbed"),
    "peerloom.cli": (
        "errors",
        "client",
        "embedded",
        "experiments",
        "worker.catalogue",
        "simulator",
        "testbed",
    ),
    "peerloom": ("errors", "client", "embedded", "worker.task"),
}
# What `import peerloom` offers: the SDK by its public names.
PUBLIC = {f"peerloom.{name}" for name in peerloom.__all__}
USES_TORCH = ("peerloom.worker", "peerloom.services.trainer", "peerloom.inference")
LIGHT = ("peerloom", "peerloom.client", "peerloom.embedded", "peerloom.cli.main", "peerloom.worker.catalogue")


@dataclass(frozen=True)
class Source:
    """A file, its module's name (empty outside the package), and its tree."""

    path: Path
    module: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def lines(self) -> int:
        return len(self.path.read_text().splitlines())

    @property
    def tree(self) -> ast.Module:
        return _parse(self.path)


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _module_of(path: Path, folder: Path, prefix: str) -> str:
    parts = [prefix, *path.relative_to(folder).with_suffix("").parts]
    return ".".join(part for part in parts if part and part != "__init__")


@cache
def package() -> list[Source]:
    """The files of the package, without the generated ones; services/ is linked into it."""
    found = []
    for folder, prefix in ((ROOT / "src" / "peerloom", "peerloom"), (ROOT / "services", "peerloom.services")):
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder)
            if inside.parts[0] not in ("v1", "services"):
                found.append(Source(path, _module_of(path, folder, prefix)))
    return found


@cache
def all_sources() -> list[Source]:
    """The package, the tests and the benchmarks; not what the benchmarks install into hidden folders."""
    found = [path for name in ("tests", "benchmarks") for path in sorted((ROOT / name).rglob("*.py"))]
    others = [
        path for path in found if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    ]
    return package() + [Source(path, "") for path in others]


def imports_of(source: Source) -> Iterator[tuple[str, int]]:
    """Everything that a file imports, also inside functions, as full names with their lines."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.name}:{node.lineno}: relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def inside(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def listed(found: list[str]) -> str:
    """One a line: pytest would show the first only."""
    return "\n" + "\n".join(found)


def part_of(module: str) -> str:
    return next(part for part in MAY_IMPORT if inside(module, part))


def test_the_parts_import_only_what_they_may() -> None:
    broken = []
    for source in package():
        part = part_of(source.module)
        allowed = [part, *(f"peerloom.{name}" for name in MAY_IMPORT[part])]
        for name, line in imports_of(source):
            named = name in PUBLIC and "client" in MAY_IMPORT[part]
            if inside(name, "peerloom") and not named and not any(inside(name, one) for one in allowed):
                broken.append(f"{source.name}:{line}: {part} must not import {name}")
    assert broken == [], listed(broken)


def test_torch_is_used_only_where_processes_train() -> None:
    broken = [
        f"{source.name}:{line}: {name}"
        for source in package()
        for name, line in imports_of(source)
        if name.split(".")[0] in ("torch", "sklearn", "safetensors")
        and not any(inside(source.module, prefix) for prefix in USES_TORCH)
    ]
    assert broken == [], listed(broken)


def test_nothing_is_unpickled() -> None:
    """Only safetensors and protobuf cross the wire."""
    broken = [
        f"{source.name}:{line}: {name}"
        for source in package()
        for name, line in imports_of(source)
        if name.split(".")[0] in ("pickle", "cloudpickle", "marshal", "shelve") or name == "torch.load"
    ]
    loads = [
        f"{source.name}:{node.lineno}: torch.load"
        for source in package()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save")
    ]
    assert broken + loads == [], listed(broken + loads)


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_has_the_same_rooms(service: str) -> None:
    rooms = ROOMS + (("store", "tables") if service in STORED else ())
    folder = ROOT / "services" / service
    assert [room for room in rooms if not (folder / f"{room}.py").exists()] == []
    assert ast.get_docstring(_parse(folder / "__init__.py")), (
        "the docstring tells what it is, and its algorithm"
    )
    if service in STORED:
        assert (folder / "migrations" / "0001_first.py").exists()


def test_the_rules_of_a_service_touch_nothing() -> None:
    """Decisions are pure: no clock, disk, network or event loop inside."""
    forbidden = (
        "asyncio",
        "grpc",
        "sqlalchemy",
        "time",
        "socket",
        "subprocess",
        "pathlib",
        "os",
        "threading",
    )
    broken = [
        f"{source.name}:{line}: {name}"
        for source in package()
        if source.module.startswith("peerloom.services.") and source.path.stem == "rules"
        for name, line in imports_of(source)
        if name.split(".")[0] in forbidden
    ]
    assert broken == [], listed(broken)


def limit_of(source: Source) -> int:
    return TEST_FILE_LIMIT if source.name.startswith("tests/") else FILE_LIMIT


def test_files_can_be_read_in_one_sitting() -> None:
    long = {source.name: source.lines for source in all_sources() if source.lines > limit_of(source)}
    assert {name: lines for name, lines in long.items() if name not in LONG_FILES} == {}
    assert set(LONG_FILES) <= set(long), "no longer long: take it off the list"


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{source.name}:{node.lineno}: {node.name} has {length} lines"
        for source in all_sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LIMIT
    ]
    assert long == [], listed(long)


def test_no_file_is_named_for_nothing() -> None:
    assert [source.name for source in package() if set(source.module.split(".")) & EMPTY_NAMES] == []


def test_every_module_says_what_it_is() -> None:
    silent = [s.name for s in all_sources() if s.path.read_text().strip() and not ast.get_docstring(s.tree)]
    assert [name for name in silent if "/migrations/" not in name] == []


def test_no_test_sleeps() -> None:
    """Waiting is on events with deadlines; asyncio.sleep(0), which only lets others run, is no waiting."""
    broken = []
    for source in all_sources():
        if not source.name.startswith("tests/"):
            continue
        broken += [f"{source.name}:{line}" for name, line in imports_of(source) if name == "time.sleep"]
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and ast.unparse(node) != "asyncio.sleep(0)":
                called = ast.unparse(node.func)
                broken += (
                    [f"{source.name}:{node.lineno}"] if called in ("time.sleep", "asyncio.sleep") else []
                )
    assert broken == [], listed(broken)


def test_a_test_file_has_a_name_of_its_own() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after a statement."""
    script = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("module", [*LIGHT, *(f"peerloom.services.{name}.__main__" for name in SERVICES[:3])])
def test_only_training_loads_torch(module: str) -> None:
    assert loaded_by(f"import {module}") & {"torch", "sklearn", "safetensors"} == set()


def test_the_trainer_loads_torch_only_when_it_needs_a_store() -> None:
    assert "torch" not in loaded_by("import peerloom.services.trainer.__main__")


def test_the_command_line_answers_help_without_loading_the_system() -> None:
    """What makes `peerloom --help` slow is what it loads, so that is what is held."""
    call = "sys.argv = ['peerloom', '--help']\ntry: main()\nexcept SystemExit: pass"
    statement = f"from peerloom.cli.main import main\n{call}"
    heavy = {"grpc", "torch", "sqlalchemy", "alembic", "google", "numpy", "yaml"}
    assert loaded_by(statement) & heavy == set()
