"""The examples of docs/testing.md, run as they stand there."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "testing.md"


def _examples() -> dict[str, Callable[[], None]]:
    told: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(GUIDE), "exec"), told)
    return {name: test for name, test in told.items() if name.startswith("test_") and callable(test)}


EXAMPLES = _examples()


def test_the_guide_has_its_examples() -> None:
    assert len(EXAMPLES) == 8


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_of_the_guide_holds(name: str) -> None:
    EXAMPLES[name]()
