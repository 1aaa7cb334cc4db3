"""The folder that a task's `data` argument names."""

from pathlib import Path

from peerloom.errors import InvalidArgumentError, NotFoundError


def data_folder(text: str) -> Path:
    """The folder named by the argument `data`.

    Raises InvalidArgumentError for an empty or relative one, as workers have no useful working folder, and
    NotFoundError when this node doesn't have it.
    """
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise InvalidArgumentError.of_field("data", text, "an absolute path of a folder on the nodes")
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "isn't on this node"
        text = f"The folder {path}, given as argument data, {what}."
        raise NotFoundError(text, reason="DATA_FOLDER_NOT_FOUND", metadata={"folder": str(path)})
    return path
