"""Builds the docs site from the Markdown files as they are; nothing is fetched.

python docs/build_site.py FOLDER            FOLDER/site/index.html (`make docs`: build/docs)

The site's source is a copy in FOLDER/source that looks like the repository, so links between pages hold in
both. What a page links to beside pages becomes one too: a file its text, a folder a list of what lies in it.
Code hosts show those by themselves.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "deploy/*.md", "ns3/*.md")
AS_THEY_ARE = {".png", ".svg", ".json"}  # what a browser shows by itself
LANGUAGES = {".py": "python", ".proto": "protobuf", ".yaml": "yaml", ".toml": "toml", ".sh": "bash"}
STATIC = Path("docs/static")  # what zensical.toml names: a style sheet, and what searches without a server
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)")


def main() -> int:
    """Builds into the folder that was named; the exit status."""
    out = Path(sys.argv[1])
    try:
        build(out)
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(f"open {out / 'site' / 'index.html'}")
    return 0


def build(out: Path, root: Path = ROOT) -> None:
    """The site of `root` in `out`/site, made anew. Raises CalledProcessError where Zensical warns."""
    shutil.rmtree(out, ignore_errors=True)
    collect(root, out / "source")
    shutil.copytree(ROOT / STATIC, out / "source" / STATIC)
    shutil.copy(ROOT / "docs" / "zensical.toml", out)
    zensical = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file"]
    subprocess.run([*zensical, str(out / "zensical.toml")], check=True, stdout=sys.stderr)


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown files that are pages, relative to `root`."""
    return sorted({path.relative_to(root) for pattern in PAGES for path in root.glob(pattern)})


def collect(root: Path, source: Path) -> None:
    """Writes all pages, and what they link to, below `source`."""
    texts = {path: (root / path).read_text() for path in pages(root)}
    waiting = list(texts)
    while waiting:
        page = waiting.pop()
        for target in {resolve(page, link) for link in LINK.findall(texts[page])}:
            made = page_of(root, target)
            if target.suffix in AS_THEY_ARE and (root / target).is_file():
                copy(root / target, source / target)
            elif made not in texts and (root / target).exists():
                texts[made] = shown(root, target)
                waiting.append(made)
    for page, text in texts.items():
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        linked = LINK.sub(lambda link, page=page: to_page(root, page, link[1]), text)
        # Code hosts read Markdown within HTML; Python's Markdown wants to be told.
        (source / page).write_text(linked.replace("<details>", '<details markdown="1">'))


def resolve(page: Path, link: str) -> Path:
    """The file or folder that a page's link means, relative to the root."""
    return Path(os.path.normpath(page.parent / link))


def page_of(root: Path, target: Path) -> Path:
    """The page that shows a file or folder: itself, if it is a page. Hidden files would not be built."""
    if (root / target).is_dir():
        return target / "README.md"
    return target if target.suffix == ".md" else target.with_name(f"{target.name.lstrip('.')}.md")


def to_page(root: Path, page: Path, link: str) -> str:
    """A page's link as the site has it: to a page, or to what is shown as it is."""
    target = resolve(page, link)
    if target.suffix in AS_THEY_ARE or not (root / target).exists():
        return link
    return os.path.relpath(page_of(root, target), page.parent)


def shown(root: Path, target: Path) -> str:
    """A file's text, or a folder's list of its files, as Markdown."""
    path, head = root / target, f"{UNSEARCHED}# {target}\n\n"
    if path.is_file():
        return f"{head}`````{LANGUAGES.get(target.suffix, 'text')}\n{path.read_text()}`````\n"
    files = sorted(each for each in path.iterdir() if each.is_file())
    return head + "".join(f"- [{title(each)}]({each.name})\n" for each in files)


def title(path: Path) -> str:
    """A page's first heading; another file's name."""
    found = re.search(r"^# (.+)", path.read_text()) if path.suffix == ".md" else None
    return found[1] if found else path.name


def copy(path: Path, to: Path) -> None:
    """Copies a file, with the folders that it needs."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, to)


if __name__ == "__main__":
    sys.exit(main())
