"""docs/security.md promises only what a test holds: each test that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_test_that_the_page_names_exists() -> None:
    named = _NAMED.findall(PAGE.read_text())
    assert len(named) >= 20
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    assert missing == []


def test_every_promise_names_one() -> None:
    promised = PAGE.read_text().partition("## Promised")[2].partition("## Not promised")[0]
    statements = re.split(r"\n(?=- |\*\*)", promised.strip())
    # A bold line that ends in a full stop alone is the heading of the list below it.
    unproved = [
        one for one in statements if not _NAMED.search(one) and not re.fullmatch(r"\*\*.*\*\*\s*", one)
    ]
    assert unproved == []
