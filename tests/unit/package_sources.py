"""The files of the package, the tests and the benchmarks as trees, for tests that hold the house's rules."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
        return parse(self.path)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree."""
        return nodes_of(self.path)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parse(path)))


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
    for node in source.nodes:
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
