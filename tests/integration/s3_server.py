"""moto's server: a real S3 over HTTP on loopback, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import boto3
import pytest

KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_DEFAULT_REGION": "us-east-1"}
_SERVE = "from moto.server import main; main(['--host', '127.0.0.1', '--port', '0'])"


@contextmanager
def s3_server() -> Iterator[Any]:
    """boto3's client of a server, which all in this process and its children reach by the environment."""
    command = [sys.executable, "-c", _SERVE]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "Running on http" in line)
            # It tells of each request. Unread that fills the pipe, and the server waits for ever.
            Thread(target=process.stderr.read).start()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ENDPOINT_URL", "http" + line.partition("http")[2].strip())
                for name, value in KEYS.items():
                    patch.setenv(name, value)
                yield boto3.client("s3")
        finally:
            process.kill()
