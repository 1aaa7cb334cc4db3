"""Who this machine's user is in a system that has a door: the login, or a profile, in a state folder."""

import asyncio
import os
import shutil

from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import join_by_token
from peerloom.client.address import ADDRESS_FILE, LOGIN_FOLDER, PROFILES_FOLDER, state_folder
from peerloom.kit.checks import check_name
from peerloom.kit.identity import FILE_NAME, Identity, write_private


def log_in(token: str, profile: str = "") -> tuple[str, str]:
    """Joins with a token's whole string; the registry's address, and in words who one is there.

    What it gets becomes the login, or the `profile` of that name. Raises InvalidArgumentError for what is no
    token or no name, PermissionDeniedError for one that is refused, UnavailableError when the join port can't
    be reached.
    """
    if profile:
        check_name("profile", profile)
    folder = state_folder(os.environ) / (f"{PROFILES_FOLDER}/{profile}" if profile else LOGIN_FOLDER)
    address = asyncio.run(join_by_token(JoinString.parse(token), folder / FILE_NAME))
    write_private(folder / ADDRESS_FILE, f"{address}\n".encode())
    return address, str(Identity(folder / FILE_NAME).principal)


def log_out() -> bool:
    """Forgets the login; False when there was none."""
    folder = state_folder(os.environ) / LOGIN_FOLDER
    was_in = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return was_in
