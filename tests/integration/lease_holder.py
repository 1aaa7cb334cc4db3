"""A process that takes a lease and then does what it is told on its standard input, a word a line.

write    adds a row; prints "written", or the reason why it was not
begin    begins a transaction that writes, and leaves it open
batch    the same, in the midst of a batch of rows: PostgreSQL only
release  releases the lease
"""

import asyncio
import sys
from typing import Any

import sqlalchemy as sa

from peerloom.errors import PeerloomError
from peerloom.kit.clock import SystemClock
from peerloom.kit.database import connect_database
from peerloom.kit.lease import Lease
from peerloom.kit.logs import configure_logs


def main() -> None:
    """Runs until its standard input ends."""
    url, service = sys.argv[1:]
    configure_logs("holder", "error")
    database = connect_database(url, service)
    lease = Lease(database, SystemClock())
    print(lease.take_if_allowed().reason, flush=True)
    transactions = []
    for line in sys.stdin:
        try:
            match line.strip():
                case "begin" | "batch" as word:
                    transactions.append(database.write())
                    connection = transactions[-1].__enter__()
                    if word == "batch":
                        driver: Any = connection.connection.driver_connection
                        driver.pipeline().__enter__()
                        driver.execute("INSERT INTO notes VALUES (3)")
                        driver.pgconn.send_flush_request()
                        driver.pgconn.flush()
                    print("begun", flush=True)
                case "write":
                    with database.write() as connection:
                        connection.execute(sa.text("INSERT INTO notes VALUES (1)"))
                    print("written", flush=True)
                case "release":
                    asyncio.run(lease.release())
                    print("released", flush=True)
        except PeerloomError as error:
            print(error.reason, flush=True)


main()
