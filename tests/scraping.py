"""Reads metrics as Prometheus does, with the library's own parser."""

from collections.abc import Mapping
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

LIMIT_S = 30.0
Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one scrape, and the type of each family by its name."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.types = {family.name: family.type for family in families}
        self.samples: Mapping[tuple[str, Labels], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    @property
    def names(self) -> set[str]:
        """The names of all samples."""
        return {name for name, _ in self.samples}

    def value(self, name: str, **labels: str) -> float:
        """One sample; 0 where there is none yet."""
        return self.samples.get((name, frozenset(labels.items())), 0.0)


def scrape(address: str) -> Scrape:
    """What is served at host:port now."""
    return Scrape(scraped_text(address))


def scraped_text(address: str) -> str:
    """The same as it came."""
    with build_opener(ProxyHandler({})).open(f"http://{address}/metrics", timeout=LIMIT_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return str(answer.read().decode())
