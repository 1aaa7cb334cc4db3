"""docs/reference/errors.md, which generate_reference.py writes: each error's reason, with what it says."""

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from peerloom import errors
from peerloom.errors import NotFoundError, PeerloomError

ROOT = Path(__file__).parents[1]
ELSEWHERE = "…"  # what is known only when it happens
HEAD = """# Errors

Made from the code. Every error of a service and of the SDK is a subclass of `peerloom.PeerloomError`, and the
gRPC status of a call with a `google.rpc.ErrorInfo`. Its `reason` is for programs: it stays as it is when the
message, which is for people, is worded anew. Where no other reason stands below it is the name of the status.
`…` is what is known only when it happens; a reason with several messages has a row for each.
"""
CLASSES: dict[str, type[PeerloomError]] = {
    name: each
    for name, each in vars(errors).items()
    if inspect.isclass(each) and issubclass(each, PeerloomError) and each is not PeerloomError
}


@dataclass(frozen=True, order=True)
class Said:
    """One message with its reason."""

    reason: str
    message: str


def errors_page() -> str:
    """A section for each class of error."""
    found: dict[str, set[Said]] = defaultdict(set)
    trees = [ast.parse(path.read_text()) for path in _sources()]
    constants = {name: text for tree in trees for name, text in _constants(tree)}
    for name, said in _passed_on(trees):
        found[name].add(said)
    for tree in trees:
        for name, said in _raised(tree, constants):
            found[name].add(said)
    parts = [HEAD]
    for name, each in CLASSES.items():
        status = f"`{each.status}`" + (
            "" if each.default_reason == each.status else f", reason `{each.default_reason}`"
        )
        parts.append(f"## `{name}`\n\n{inspect.getdoc(each)} Status {status}.\n")
        if found[name]:
            parts.append("\n".join(_table(found[name])) + "\n")
    return "\n".join(parts)


def _sources() -> Iterator[Path]:
    for folder in ("src/peerloom", "services"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "/v1/" not in str(path) and "/migrations/" not in str(path):
                yield path


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """A module's names for texts."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield from ((one.id, node.value.value) for one in node.targets if isinstance(one, ast.Name))


def _raised(tree: ast.Module, constants: dict[str, str]) -> Iterator[tuple[str, Said]]:
    """Errors that are made with a reason, by their class."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in CLASSES:
            made = (call for name, call in _calls(node) if name == "cls")
            yield from ((node.name, said) for call in made for said in _said_by(call, constants))
    for name, call in _calls(tree):
        if name in CLASSES:
            yield from ((name, said) for said in _said_by(call, constants))
        elif name == "of_name" and isinstance(kind := call.args[0], ast.Constant):
            reason = NotFoundError.of_name(str(kind.value), "", ()).reason
            message = f"There is no {kind.value} {ELSEWHERE}. Did you mean {ELSEWHERE}?"
            yield NotFoundError.__name__, Said(reason, message)


def _said_by(call: ast.Call, constants: dict[str, str]) -> Iterator[Said]:
    for keyword in call.keywords:
        if keyword.arg == "reason" and call.args and (reason := _reason(keyword.value, constants)):
            yield Said(reason, " ".join(_text(call.args[0]).split()))


def _passed_on(trees: Sequence[ast.Module]) -> Iterator[tuple[str, Said]]:
    """Errors of functions to which whoever calls them gives the reason, by their class."""
    made = {
        node.name: (name, _text(call.args[0]))
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "reason" in {one.arg for one in node.args.args}
        for name, call in _calls(node)
        if name in CLASSES
        and any(
            isinstance(one.value, ast.Name) and one.value.id == one.arg == "reason" for one in call.keywords
        )
    }
    for function, call in (found for tree in trees for found in _calls(tree)):
        if function in made:
            name, message = made[function]
            given = [one.value for one in call.args if isinstance(one, ast.Constant)]
            yield from ((name, Said(one, message)) for one in given if str(one).isupper())


def _calls(within: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """All calls, each behind the name of what is called."""
    for node in ast.walk(within):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield called, node


def _reason(node: ast.expr, constants: dict[str, str]) -> str:
    """As far as it is known before; else ""."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return constants.get(name, "") if name.isupper() else ""


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_text(one) for one in node.values)
        case ast.BinOp():
            return _text(node.left) + _text(node.right)
        case _:
            return ELSEWHERE


def _table(said: set[Said]) -> list[str]:
    """Rows in order; a message of which nothing is known only where a reason has no other."""
    known = {one.reason for one in said if one.message.strip(f"{ELSEWHERE}.")}
    rows = [one for one in sorted(said) if one.message.strip(f"{ELSEWHERE}.") or one.reason not in known]
    lines = [f"| `{one.reason}` | {one.message.replace('|', chr(92) + '|')} |" for one in rows]
    return ["| reason | message |", "| --- | --- |", *lines]
