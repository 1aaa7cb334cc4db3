"""MNIST's files, which whoever measures names: MNIST=DIR."""

import os
from pathlib import Path

FOLDER = "MNIST"  # the environment variable


def mnist_arguments() -> dict[str, str]:
    """Those of the task "mnist": a folder with only the test images is trained on nine tenths of these.

    Raises SystemExit where no folder is named.
    """
    named = os.environ.get(FOLDER, "")
    if not named:
        raise SystemExit(f"error: name a folder with MNIST's files: {FOLDER}=DIR")
    folder = Path(named).resolve()
    has_training_files = any(folder.glob("train-*"))
    return {"data": str(folder), **({} if has_training_files else {"test_fraction": "0.1"})}
