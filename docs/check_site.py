"""Whether the built docs site is whole: links and anchors lead somewhere, pages are in the navigation, and
nothing is loaded from another place.

python docs/check_site.py FOLDER            FOLDER is build_site.py's; ends with 1 and names what is wrong
"""

import os
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from build_site import LINK, pages, resolve

INDEX = "index.html"
LIST = Path("docs/README.md")
ELSEWHERE = re.compile(r"(?:url\(\s*|@import\s+)['\"]?(?:https?:)?//[^)'\"\s]+")
# `link` elements that say something of a page, and load nothing.
ONLY_SAID = {"canonical", "next", "prev"}


class Page(HTMLParser):
    """What a built page links to, loads, and can be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.loads, self.anchors = list[str](), list[str](), {""}
        self.navigation = list[str]()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sorts an element's addresses."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
            if "md-nav__link" in found.get("class", "").split():
                self.navigation.append(found["href"])
        elif tag == "link" and found.get("rel", "") not in ONLY_SAID:
            self.loads.append(found.get("href", ""))
        elif tag != "a":
            self.loads += [found[name] for name in ("src", "data", "poster") if found.get(name)]


def main() -> int:
    """Checks the folder that was named; the exit status."""
    out = Path(sys.argv[1])
    wrong = problems(out / "site", pages())
    wrong += of_list((out / "source" / LIST).read_text(), pages())
    print("\n".join(wrong) or f"{len(pages())} pages are whole", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


def problems(site: Path, expected: list[Path]) -> list[str]:
    """What is wrong with a site, a sentence each; `expected` are the pages' sources."""
    built = {path.relative_to(site): Page(path) for path in sorted(site.rglob("*.html"))}
    built.pop(Path("404.html"), None)  # its addresses begin at the server's root
    wrong = [f"{page}: {problem}" for page in built for problem in of_page(site, built, page)]
    wrong += of_navigation(built[Path(INDEX)], expected)
    for sheet in sorted(site.rglob("*.css")):
        wrong += [f"{sheet.relative_to(site)}: loads {at}" for at in ELSEWHERE.findall(sheet.read_text())]
    return wrong


def of_page(site: Path, built: dict[Path, Page], name: Path) -> Iterator[str]:
    """What is wrong with a page's own addresses."""
    page = built[name]
    for address in page.loads:
        if urlsplit(address).scheme not in ("", "data") or address.startswith("//"):
            yield f"loads {address} from another place; have it here"
        elif not urlsplit(address).scheme and not (site / target(name, address)).is_file():
            yield f"loads {address}, which isn't there"
    for address in page.links:
        if urlsplit(address).scheme or address.startswith("//"):
            continue
        to, anchor = target(name, address), unquote(urlsplit(address).fragment)
        if not (site / to).is_file():
            yield f"links to {address}, which isn't there"
        elif to in built and anchor not in built[to].anchors:
            yield f"links to {address}, but {to} has no heading with this anchor"


def target(page: Path, address: str) -> Path:
    """The file of the site that an address on a page means."""
    path = unquote(urlsplit(address).path)
    found = Path(os.path.normpath(page.parent / path)) if path else page
    return found if found.suffix else found / INDEX


def of_navigation(home: Page, expected: list[Path]) -> Iterator[str]:
    """Pages that the navigation lacks, as the home page shows it."""
    named = {target(Path(INDEX), address) for address in home.navigation}
    for source in expected:
        if html_of(source) not in named:
            yield f"{source} is not in the navigation: add it to nav in docs/zensical.toml"


def of_list(text: str, expected: list[Path]) -> Iterator[str]:
    """Pages of docs/ that the lists of pages and decisions there lack; `text` is their page."""
    named = {resolve(LIST, link) for link in LINK.findall(text)} | {LIST}
    for source in expected:
        if source.parts[0] == "docs" and source not in named:
            yield f"{source} is not in {LIST}: add a line that says for what it is"


def html_of(source: Path) -> Path:
    """The built file of a source."""
    return source.with_name(INDEX) if source.name == "README.md" else source.with_suffix(".html")


if __name__ == "__main__":
    sys.exit(main())
