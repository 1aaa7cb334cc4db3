"""Lists of nodes and sessions in pages, bounded in number, in bytes and in the time they hold the loop."""

import asyncio

from peerloom.kit.clock import Clock
from peerloom.kit.paging import (
    PAGE_BYTES,
    byte_size,
    encode_token,
    fill_page,
    name_key,
    number_key,
    page_size_of,
    page_token_after,
)
from peerloom.services.registry.answers import node_messages
from peerloom.services.registry.core import Core
from peerloom.services.registry.membership.table import MembershipTable, moment_of, passes
from peerloom.v1 import registry_pb2 as pb

_SCAN_STEP = 500


async def node_page(
    table: MembershipTable, clock: Clock, request: pb.ListNodesRequest
) -> pb.ListNodesResponse:
    """The nodes that pass the request's filter, ordered by name, at most 2 MiB of them."""
    size, states = page_size_of(request.page_size), frozenset(request.states)
    name, page_bytes = name_key(request.page_token), 0
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
    size, before = page_size_of(request.page_size), number_key(request.page_token)
    node_id = core.table.find(request.node).record.node_id if request.node else None
    rows = await core.run_sql(
        core.store.sessions,
        node_id,
        interrupted_only=interrupted_only,
        before=before,
        limit=size,
    )
    now, members = moment_of(core.clock), core.table.by_id
    # A node may have been forgotten since its sessions were read.
    known = [(row.number, members[row.node_id], row) for row in rows if row.node_id in members]
    found = [(number, node_messages.session_message(row, member, now)) for number, member, row in known]
    messages, has_more = fill_page([message for _, message in found], size, byte_size)
    if has_more:
        return messages, encode_token(found[len(messages) - 1][0])
    return messages, page_token_after(rows, size, rows[-1].number if rows else 0)
