"""The rules of the house: who may import whom, what a service consists of, how long things are."""

import ast
from collections.abc import Iterable

import pytest
from house_rules import (
    DECISIONS,
    EMPTY_NAMES,
    FILE_LIMIT,
    FUNCTION_LIMIT,
    IMPURE,
    LAYERS,
    LONG_FILES,
    MAY_IMPORT,
    PUBLIC,
    ROOMS,
    SERVICES,
    SHARED_NAMES,
    STORED,
    SUBJECTS,
    TEST_FILE_LIMIT,
    USES_TORCH,
)
from package_sources import ROOT, Source, all_sources, imports_of, inside, listed, package, parse


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


def test_services_reach_their_database_only_through_its_lease() -> None:
    """What is begun on the engine itself is written without a look at the lease's epoch."""
    broken = [
        f"{source.name}:{node.lineno}"
        for source in package()
        if source.module.startswith("peerloom.services.") and "/migrations/" not in source.name
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr in ("engine", "create_engine")
    ]
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


@pytest.mark.parametrize(
    ("library", "user", "opener"),
    [
        ("prometheus_client", "metrics_server", "metrics_port"),
        ("opentelemetry", "otel_tracer", "tracing_setup"),
    ],
)
def test_what_watches_us_is_loaded_only_where_it_is_asked_for(library: str, user: str, opener: str) -> None:
    """One module uses the library, and one imports that where it is asked for."""
    users = {
        (source.path.stem, name.split(".")[0])
        for source in package()
        for name, _ in imports_of(source)
        if inside(name, library) or inside(name, f"peerloom.kit.{user}")
    }
    assert users == {(user, library), (opener, "peerloom")}


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
        for node in source.nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save")
    ]
    assert broken + loads == [], listed(broken + loads)


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_has_the_same_rooms_and_few_subjects(service: str) -> None:
    folder = ROOT / "services" / service
    rooms = {*ROOMS, *(("store", "tables", "migrations") if service in STORED else ())}
    found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or list(path.rglob("*.py"))}
    assert found - {"decisions"} == rooms | set(SUBJECTS[service])
    folders = [folder / name for name in SUBJECTS[service] if (folder / name).is_dir()]
    assert 3 <= len(folders) <= 5
    assert any(name.startswith(f"services/{service}/") for name in DECISIONS), "it decides something"
    silent = [str(one) for one in (folder, *folders) if not ast.get_docstring(parse(one / "__init__.py"))]
    assert silent == [], "the docstring tells what is inside, the service's its algorithm"


def repeated(names: Iterable[tuple[str, str]]) -> list[str]:
    """Names that stand for several things, with their places; from pairs of both."""
    places: dict[str, list[str]] = {}
    for name, place in names:
        places.setdefault(name, []).append(place)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def named_sources() -> list[Source]:
    return [
        source
        for source in package()
        if not source.name.startswith(LAYERS) and "/migrations/" not in source.name
    ]


def test_no_two_modules_have_one_name() -> None:
    """One word, one meaning. A folder may share its name with another: it is read with its part's."""
    names = [(source.path.stem, source.name) for source in named_sources()]
    found = [line for line in repeated(names) if line.partition(":")[0] not in SHARED_NAMES]
    assert found == [], listed(found)


@pytest.mark.parametrize("layer", ["", *LAYERS])
def test_no_two_classes_have_one_name(layer: str) -> None:
    """Nor do two of one layer."""
    of_layer = [source for source in package() if source.name.startswith(layer)]
    names = [
        (node.name, source.name)
        for source in (of_layer if layer else named_sources())
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    found = repeated(names)
    assert found == [], listed(found)


def decides(source: Source) -> bool:
    return any(source.name.startswith(one) if one.endswith("/") else source.name == one for one in DECISIONS)


def test_decisions_touch_nothing() -> None:
    broken = [
        f"{source.name}:{line}: {name}"
        for source in package()
        if decides(source)
        for name, line in imports_of(source)
        if any(inside(name, one) for one in IMPURE)
    ]
    assert broken == [], listed(broken)


def test_every_file_that_decides_is_there() -> None:
    assert [name for name in DECISIONS if not (ROOT / name).exists()] == []


def limit_of(source: Source) -> int:
    return TEST_FILE_LIMIT if source.name.startswith("tests/") else FILE_LIMIT


def test_the_map_of_contributors_names_every_room() -> None:
    """Those of the library, of its worker, and of the repository."""
    rows = [line.split("|") for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines()]
    columns = (row[1] for row in rows if len(row) > 3)
    known = {part for column in columns for name in column.split(",") for part in name.strip().split("/")}
    package = ROOT / "src" / "peerloom"
    rooms = [file.parent for place in ("*", "worker/*") for file in package.glob(f"{place}/__init__.py")]
    unnamed = sorted(room.name for room in rooms if room.name not in {*known, "v1"})
    assert unnamed == [], "they are missing in CONTRIBUTING.md"


def test_files_can_be_read_in_one_sitting() -> None:
    long = {source.name: source.lines for source in all_sources() if source.lines > limit_of(source)}
    assert {name: lines for name, lines in long.items() if name not in LONG_FILES} == {}
    assert set(LONG_FILES) <= set(long), "no longer long: take it off the list"


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{source.name}:{node.lineno}: {node.name} has {length} lines"
        for source in all_sources()
        for node in source.nodes
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
        if not source.name.startswith("tests/") or source.name.startswith("tests/simulation/"):
            continue  # in a simulation time is virtual, and a sleep costs none
        broken += [f"{source.name}:{line}" for name, line in imports_of(source) if name == "time.sleep"]
        for node in source.nodes:
            if isinstance(node, ast.Call) and ast.unparse(node) != "asyncio.sleep(0)":
                called = ast.unparse(node.func)
                broken += (
                    [f"{source.name}:{node.lineno}"] if called in ("time.sleep", "asyncio.sleep") else []
                )
    assert broken == [], listed(broken)


def test_a_test_file_has_a_name_of_its_own() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
