"""Lists of nodes and sessions in pages, bounded in number, in bytes and in the time they hold the loop."""

import asyncio
from typing import Any, TypeVar

from peerloom.errors import InvalidArgumentError
from peerloom.kit.clock import Clock
from peerloom.kit.paging import decode_token, encode_token, page_size_of, page_token_after
from peerloom.services.registry.answers import node_messages
from peerloom.services.registry.core import Core
from peerloom.services.registry.membership.table import MembershipTable, moment_of, passes
from peerloom.v1 import registry_pb2 as pb

PAGE_BYTES = 2 * 1024 * 1024
_SCAN_STEP = 500
K = TypeVar("K", str, int)


async def node_page(
    table: MembershipTable, clock: Clock, request: pb.ListNodesRequest
) -> pb.ListNodesResponse:
    """The nodes that pass the request's filter, ordered by name, at most 2 MiB of them."""
    size, states = page_size_of(request.page_size), frozenset(request.states)
    name, page_bytes = _key(request.page_token, str, ""), 0
    page = pb.ListNodesResponse()
    while members := table.after(name, _SCAN_STEP):
        now = moment_of(clock)
        for member in members:
            if not passes(member, states, request.labels):
                continue
            if len(page.nodes) == size or page_bytes >= PAGE_BYTES:
                page.next_page_token = encode_token(page.nodes[-1].spec.name)
                return page
            page.nodes.append(node_messages.member_message(member, now))
            page_bytes += page.nodes[-1].ByteSize()
        name = members[-1].record.name
        await asyncio.sleep(0)  # heartbeats go first
    return page


async def session_page(
    core: Core, request: pb.ListSessionsRequest | pb.ListInterruptionsRequest, *, interrupted_only: bool
) -> tuple[list[pb.Session], str]:
    """Sessions of one node or of all, newest first, and the next page's token."""
    size, before = page_size_of(request.page_size), _key(request.page_token, int, 0)
    node_id = core.table.find(request.node).record.node_id if request.node else None
    rows = await core.run_sql(
        core.store.sessions,
        node_id,
        interrupted_only=interrupted_only,
        before=before or None,
        limit=size,
    )
    now = moment_of(core.clock)
    messages = [node_messages.session_message(row, core.table.by_id[row.node_id], now) for row in rows]
    return messages, page_token_after(rows, size, rows[-1].number if rows else 0)


def _key(token: str, kind: type[K], first: K) -> K:
    key: Any = decode_token(token)
    if key is None:
        return first
    if not isinstance(key, kind) or isinstance(key, bool):
        limit = "a next_page_token from an earlier answer to the same list"
        raise InvalidArgumentError.of_field("page_token", token[:80], limit)
    return key
