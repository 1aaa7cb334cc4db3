"""A process that takes a lease and then does what it is told on its standard input, a word a line.

write    adds a row; prints "written", or the reason why it was not
begin    begins a transaction that writes, and leaves it open
release  releases the lease
"""

import asyncio
import sys

import sqlalchemy as sa

from peerloom.errors import PeerloomError
from peerloom.kit import database as database_module
from peerloom.kit.clock import SystemClock
from peerloom.kit.database import connect_database
from peerloom.kit.lease import Lease
from peerloom.kit.logs import configure_logs


def main() -> None:
    """Runs until its standard input ends."""
    url, service, idle_limit_s = sys.argv[1:]
    configure_logs("holder", "error")
    database_module.IDLE_LIMIT_S = float(idle_limit_s)
    database = connect_database(url, service)
    lease = Lease(database, SystemClock())
    print(lease.take_if_allowed().reason, flush=True)
    transactions = []
    for line in sys.stdin:
        try:
            match line.strip():
                case "begin":
                    transactions.append(database.write())
                    transactions[-1].__enter__()
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
