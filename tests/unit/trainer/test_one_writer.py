"""A job's record has one writer: no other file of the trainer changes a Job message.

What is reached through a name or attribute called `job`, or a name that such a value was given to, must not
be assigned to, and none of its changing methods may be called.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerloom.services import trainer

FOLDER = Path(trainer.__file__).parent
WRITERS = {
    "jobs/audit_entries.py",
    "jobs/plan_entries.py",
    "jobs/record.py",
    "jobs/recorded_job.py",
    "jobs/sample_ledger.py",
    "jobs/stage_entries.py",
    "jobs/sync_entries.py",
}
CHANGING = {
    "CopyFrom",
    "MergeFrom",
    "ParseFromString",
    "Clear",
    "ClearField",
    "SetInParent",
    "add",
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "remove",
    "reverse",
    "sort",
    "update",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_of_job(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is a job's message, or lies inside one."""
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr=attr, value=value):
            return attr in ("job", "_job") or is_of_job(value, names)
        case ast.Subscript(value=value):
            return is_of_job(value, names)
    return False


def names_of_jobs(function: Function) -> set[str]:
    """Names that stand for a job's message or a part of it anywhere in a function."""
    names = {"job"}
    arguments = [*function.args.args, *function.args.kwonlyargs]
    names |= {a.arg for a in arguments if a.annotation and ast.unparse(a.annotation).strip('"') == "Job"}
    while True:
        found = {name for node in ast.walk(function) for name in _given(node, names)}
        if found <= names:
            return names
        names |= found


def _given(node: ast.AST, names: set[str]) -> Iterator[str]:
    pairs: list[tuple[ast.expr, ast.expr]] = []
    match node:
        case ast.Assign(targets=targets, value=value):
            pairs = [(target, value) for target in targets]
        case ast.For(target=target, iter=iterated) | ast.comprehension(target=target, iter=iterated):
            pairs = [(target, iterated)]
        case ast.NamedExpr(target=target, value=value):
            pairs = [(target, value)]
    for target, value in pairs:
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        each = zip(target.elts, value.elts, strict=False) if both else [(target, value)]  # type: ignore[attr-defined]  # both are tuples
        yield from (t.id for t, v in each if isinstance(t, ast.Name) and is_of_job(v, names))


def writes(tree: ast.Module) -> list[str]:
    """The places where a job's message is changed."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return sorted({place for function in functions for place in _writes_in(function)})


def _writes_in(function: Function) -> Iterator[str]:
    names = names_of_jobs(function)
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                changed = targets
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                changed = [target]
            case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in CHANGING:
                changed = [ast.Attribute(value=value, attr=attr)]
            case _:
                continue
        flat = [each for one in changed for each in (one.elts if isinstance(one, ast.Tuple) else [one])]
        for each in flat:
            if isinstance(each, ast.Attribute | ast.Subscript) and is_of_job(each.value, names):
                yield f"{node.lineno}: {ast.unparse(each)}"


def test_only_the_record_writes_to_a_job() -> None:
    files = sorted(path for path in FOLDER.rglob("*.py") if "migrations" not in path.parts)
    broken = {
        str(path.relative_to(FOLDER)): found
        for path in files
        if str(path.relative_to(FOLDER)) not in WRITERS
        if (found := writes(ast.parse(path.read_text())))
    }
    assert broken == {}


@pytest.mark.parametrize(
    "line",
    [
        "job.state = 1",
        "self._record.job.generation += 1",
        "job.answers.append(a)",
        "del job.answers[:]",
        "self.journal.job.checkpoint.CopyFrom(c)",
        "progress = record.job.progress; progress.step = 3",
        "a, job.state_reason = 1, 'why'",
        "for w in record.job.workers: w.ended = True",
        "full = job.spec; other = full; other.ClearField('epochs')",
        "job.spec.task_arguments['data'] = 'x'",
    ],
)
def test_the_check_finds_each_way_to_write(line: str) -> None:
    assert writes(ast.parse(f"def f(self, job, record):\n    {line}")) != []


@pytest.mark.parametrize(
    "line",
    [
        "copy.CopyFrom(job)",
        "names.append(job.job_id)",
        "self._log = get_logger(job=job.job_id)",
        "kept = Checkpoint(step=job.progress.step); kept.nodes.append('ada')",
    ],
)
def test_reading_is_no_writing(line: str) -> None:
    assert writes(ast.parse(f"def f(self, job):\n    {line}")) == []
