"""Finds the class behind "module:Class" and makes an instance; every failure says what to do about it."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TypeVar

from peerloom.errors import InvalidArgumentError, NotFoundError, PeerloomError, nearest
from peerloom.worker.tasks.built_in import unknown_argument

_T = TypeVar("_T")


def import_class(path: str) -> type:
    """The class that `path`, "module:Class", names.

    Raises NotFoundError when the module, one that it needs, or the class is missing on this node, and
    InvalidArgumentError when importing the module fails or the name isn't a class.
    """
    module_name, _, class_name = path.partition(":")
    module = _import_module(module_name)
    found = getattr(module, class_name, None)
    if found is None:
        raise _class_missing(module, class_name)
    if not isinstance(found, type):
        text = f"{path} is a {type(found).__name__}, but a task must be a class."
        raise InvalidArgumentError(text, reason="NOT_A_TASK")
    return found


def construct(found: Callable[..., _T], task: str, arguments: Mapping[str, str]) -> _T:
    """An instance made with the `arguments` as keywords.

    Raises InvalidArgumentError for an unknown or missing argument, or whatever else the constructor
    refuses; a PeerloomError of the constructor is passed on as it is.
    """
    _check_signature(found, task, arguments)
    try:
        return found(**arguments)
    except PeerloomError:
        raise
    except Exception as error:
        text = f"The task {task!r} refused its arguments {dict(arguments)}: {_sentence(error)}"
        raise InvalidArgumentError(text, reason="TASK_ARGUMENT_REFUSED") from error


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _module_missing(name, error.name or name) from error
    # A script without a main guard may call sys.exit; that must not end the worker unexplained.
    except (Exception, SystemExit) as error:
        text = f"The task's module {name!r} can't be imported on this node: {_sentence(error)}"
        raise InvalidArgumentError(text, reason="TASK_MODULE_BROKEN") from error


def _module_missing(name: str, missing: str) -> NotFoundError:
    if name == missing or name.startswith(f"{missing}."):
        text = (
            f"There is no module {missing!r} on this node, so the task in {name!r} can't be loaded. Install "
            "the package that holds it into the node agent's environment, or put the folder that holds it "
            "on PYTHONPATH before the node agent is started."
        )
    else:
        text = (
            f"The task's module {name!r} needs the module {missing!r}, which isn't on this node. "
            "Install it into the node agent's environment."
        )
    return NotFoundError(text, reason="TASK_MODULE_NOT_FOUND", metadata={"module": missing})


def _class_missing(module: ModuleType, class_name: str) -> NotFoundError:
    known = sorted(
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    )
    near = nearest(class_name, known)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    else:
        hint = f"It defines {', '.join(known[:5])}." if known else "It defines no class."
    return NotFoundError(
        f"The module {module.__name__!r} has no class {class_name!r}. {hint}",
        reason="TASK_CLASS_NOT_FOUND",
        metadata={"module": module.__name__, "name": class_name, "nearest": ",".join(near)},
    )


def _check_signature(found: Callable[..., object], task: str, arguments: Mapping[str, str]) -> None:
    signature = inspect.signature(found)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in arguments:
            if name not in signature.parameters:
                raise unknown_argument(task, name, signature.parameters)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        text = f"The task {task!r} can't be made from its arguments {sorted(arguments)}: {error}."
        raise InvalidArgumentError(text, reason="TASK_ARGUMENT_MISSING") from error


def _sentence(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
