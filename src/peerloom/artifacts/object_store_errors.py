"""What an object store's libraries raise, turned into errors that say what is missing and what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from peerloom.errors import ConfigurationError, PeerloomError, UnavailableError

# What the world says where a setting is wrong; anything else may pass.
_REFUSALS = (
    PermissionError,
    FileNotFoundError,
    NotADirectoryError,
    ImportError,
    NotImplementedError,  # fsspec's word for what a file system can't do, as one that only reads
)
_RIGHTS = {
    "write": "s3:PutObject and s3:AbortMultipartUpload",
    "read": "s3:GetObject",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}


class StoppedError(Exception):
    """A transfer was asked to end."""


@contextmanager
def store_errors(url: str, doing: str) -> Iterator[None]:
    """Turns what fsspec's libraries raise into ours: ConfigurationError for refusals, or UnavailableError."""
    try:
        yield
    except (PeerloomError, StoppedError):
        raise
    except Exception as error:
        if is_refusal(error):
            raise _refused(url, doing, error) from error
        raise UnavailableError(
            f"The object store {url} can't be reached to {doing} ({told(error)}). It is tried again.",
            reason="OBJECT_STORE_UNAVAILABLE",
        ) from error


def is_refusal(error: Exception) -> bool:
    """Whether the store has answered that it won't, so that to ask it once more is in vain."""
    if isinstance(error, OSError) and error.errno in (errno.EINVAL, errno.ENOSYS):
        return True
    # botocore's own, which is no module of ours: nobody gave credentials, or a part of them.
    return isinstance(error, (*_REFUSALS, ValueError)) or "CredentialsError" in type(error).__name__


def _refused(url: str, doing: str, error: Exception) -> ConfigurationError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        why = f"There is no bucket or folder at {url} ({told(error)}). Create it, or name another"
    elif "CredentialsError" in type(error).__name__:
        why = (
            f"There are no credentials for {url}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_PROFILE, where this service is started"
        )
    elif isinstance(error, PermissionError):
        right = f" (on S3: {_RIGHTS[doing]})" if doing in _RIGHTS else ""
        why = (
            f"The object store refuses to let this service {doing} at {url} ({told(error)}). Grant its "
            f"credentials the right to {doing} there{right}, or give other credentials by the environment"
        )
    else:
        why = f"The object store {url} can't be used to {doing} ({told(error)})"
    return ConfigurationError(f"{why}.", reason="OBJECT_STORE_REFUSED")


def told(error: Exception) -> str:
    """What an error says, as a part of a sentence."""
    return (str(error) or type(error).__name__).rstrip(".")
