"""The pages' rows as a terminal shows them: the columns that fit its width, the most telling first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size

from peerloom.kit.printable import Column, escaped
from peerloom.kit.quantity_texts import plural

GAP = 2
CELL_LIMIT = 28  # one long name must not push all else off the screen
TROUBLED = frozenset({"suspect", "dead", "failed", "no compute"})


@dataclass(frozen=True)
class TerminalTable:
    """Cells that fit a width: texts of `columns`, cut to `widths`, in `rows` with the ids `keys`."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    keys: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _node_state(row: Mapping[str, Any]) -> str:
    return "draining" if row["draining"] and row["state"] == "alive" else str(row["state"])


def _node_jobs(row: Mapping[str, Any]) -> str:
    first, *others = row["jobs"] or ["-"]
    return f"{first} +{len(others)}" if others else first


def _load(row: Mapping[str, Any], part: str) -> str:
    return _number(row["load"][part] if row["load"] else None, ".0%")


NODE_COLUMNS = (
    Column("NODE", lambda row: row["name"]),
    Column("STATE", _node_state),
    Column("USED", lambda row: f"{_number(row['used'], 'd')}/{row['slots']}", right=True),
    Column("BELIEF", lambda row: _number(row["belief"], ".3f"), right=True),
    Column("JOBS", _node_jobs),
    Column("CPU", lambda row: _load(row, "cpu"), right=True),
    Column("MEM", lambda row: _load(row, "memory"), right=True),
    Column("GPU", lambda row: _load(row, "gpu"), right=True),
    Column("GFLOPS", lambda row: _number(row["gflops"], ",.0f"), right=True),
    Column("DEVICE", lambda row: ", ".join(row["accelerators"]) or "-"),
    Column("OWNER", lambda row: row["owner"] or "-"),
    Column("ADDRESS", lambda row: row["address"]),
)
JOB_COLUMNS = (
    Column("JOB", lambda row: row["id"]),
    Column("STATE", lambda row: row["state"].replace("_", " ")),
    Column(
        "STEP", lambda row: f"{row['step']}/{row['total_steps'] or '?'}" if row["step"] else "-", right=True
    ),
    Column("LOSS", lambda row: _number(row["loss"], ".4f"), right=True),
    Column("TEST", lambda row: _number(row["metric"], ".4f"), right=True),
    Column("TASK", lambda row: row["task"]),
    Column("SAMPLES/S", lambda row: _number(row["samples_per_s"], ",.0f"), right=True),
    Column("NAME", lambda row: row["name"] or "-"),
    Column("WHY", lambda row: row["reason"] or "-"),
)


def table_within(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int) -> TerminalTable:
    """The columns from the first on that fit into `width` cells, at least one; the rows keep order."""
    kept: list[Column] = []
    widths: list[int] = []
    cells: list[list[str]] = []
    left = width
    for column in columns:
        texts = [shortened(escaped(column.text(row), ""), CELL_LIMIT) for row in rows]
        wanted = max([len(column.head), *map(cell_len, texts)])
        if kept and wanted > left:
            break
        wanted = min(wanted, max(1, left))
        kept.append(column)
        widths.append(wanted)
        cells.append([shortened(text, wanted) for text in texts])
        left -= wanted + GAP
    keys = tuple(str(row["id"]) for row in rows)
    return TerminalTable(tuple(kept), tuple(widths), keys, tuple(zip(*cells, strict=True)))


def shortened(text: str, limit: int) -> str:
    """The text on at most `limit` cells of a terminal, with its end cut off visibly."""
    return text if cell_len(text) <= limit else set_cell_size(text, limit - 1).rstrip() + "…"


def summary_line(section: Callable[[str], Any]) -> str:
    """E.g. "3 of 4 nodes alive, 5 of 8 slots in use, 1 job going on", from the board's sections.

    A service that has told nothing yet leaves its part unknown; so are slots of which nobody told the use.
    """
    services, nodes = section("services")["services"], section("nodes")
    alive = [row for row in nodes if row["state"] == "alive"]
    told = [row for row in alive if row["used"] is not None]
    used, slots = sum(row["used"] for row in told), sum(row["slots"] for row in told)
    in_use = f"{used} of {slots} slots in use" if told or not alive else "slots in use unknown"
    of_nodes = f"{len(alive)} of {len(nodes)} nodes alive, {in_use}"
    going = sum(not row["ended"] for row in section("jobs"))
    of_jobs = f"{plural(going, 'job')} going on"
    parts = {"registry": (of_nodes, "nodes unknown"), "trainer": (of_jobs, "jobs unknown")}
    return ", ".join(known if services[name]["told"] else unknown for name, (known, unknown) in parts.items())


def trouble_lines(services: Mapping[str, Any], width: int) -> list[str]:
    """A line of at most `width` for each service that is away, with what its last call said."""
    return [
        shortened(f"{name} away since {_clock_time(one['away_since'])}{_as_of(one)}", width)
        for name, one in services["services"].items()
        if one["away_since"]
    ]


def _as_of(service: Mapping[str, Any]) -> str:
    """How old what it told is, if it told something, and why it doesn't now."""
    told = f" (shown as of {_clock_time(service['answered'])})" if service["told"] else ""
    return f"{told}: {escaped(service['trouble'], '')}"


def lines_of(table: TerminalTable) -> list[str]:
    """The table as plain lines, heads first."""
    heads = tuple(column.head for column in table.columns)
    return [_line(table, row) for row in (heads, *table.rows)]


def snapshot_lines(section: Callable[[str], Any], width: int) -> list[str]:
    """All that the window shows at once, from the board's sections, as plain lines."""
    nodes, jobs = section("nodes"), section("jobs")
    lines = [summary_line(section), *trouble_lines(section("services"), width)]
    for columns, rows in ((NODE_COLUMNS, nodes), (JOB_COLUMNS, jobs)):
        if rows:
            lines += ["", *lines_of(table_within(columns, rows, width))]
    return lines


def _line(table: TerminalTable, cells: Sequence[str]) -> str:
    shown = [
        cell.rjust(width) if column.right else set_cell_size(cell, width)
        for column, width, cell in zip(table.columns, table.widths, cells, strict=True)
    ]
    return (" " * GAP).join(shown).rstrip()


def event_line(event: Mapping[str, Any]) -> str:
    """A job's or a node's event on one line."""
    text = event["text"] if "text" in event else _node_event(event)
    return f"{_clock_time(event['time'])}  {escaped(text, '')}"


def _clock_time(time: datetime | None) -> str:
    """In the zone of who looks."""
    return f"{time.astimezone():%H:%M:%S}" if time else "-"


def _node_event(event: Mapping[str, Any]) -> str:
    why = f": {event['reason']}" if event["reason"] else ""
    return f"{event['kind'].replace('_', ' ')}{why}"


def job_line(page: Mapping[str, Any]) -> str:
    """A job's head: what it does and how far it is; what the trainer said where it isn't known."""
    if "trouble" in page:
        return escaped(page["trouble"], "")
    if "state" not in page:
        return "asking the trainer"
    progress = page["progress"] or {}
    parts = [page["task"], page["state"].replace("_", " ")]
    if progress.get("step"):
        parts.append(f"step {progress['step']} of {progress['total_steps'] or '?'}")
    if progress.get("loss") is not None:
        parts.append(f"loss {progress['loss']:.4f}")
    if progress.get("metric") is not None:
        parts.append(f"{progress['metric_name']} {progress['metric']:.4f}")
    return escaped(", ".join(parts), "")
