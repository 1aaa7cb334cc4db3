"""Who this machine's user is in a system that has a door: a login, in the user's state folder."""

import asyncio
import os
import shutil

from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import join_by_token
from peerloom.client.address import LOGIN_ADDRESS, login_folder
from peerloom.kit.identity import FILE_NAME, Identity, write_private


def log_in(token: str) -> tuple[str, str]:
    """Joins with a token's whole string; the registry's address, and in words who one is there.

    Raises InvalidArgumentError for what is no token, PermissionDeniedError for one that is refused,
    UnavailableError when the join port can't be reached.
    """
    folder = login_folder(os.environ)
    address = asyncio.run(join_by_token(JoinString.parse(token), folder / FILE_NAME))
    write_private(folder / LOGIN_ADDRESS, f"{address}\n".encode())
    return address, str(Identity(folder / FILE_NAME).principal)


def log_out() -> bool:
    """Forgets the login; False when there was none."""
    folder = login_folder(os.environ)
    was_in = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return was_in
