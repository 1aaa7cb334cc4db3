"""moto's server: a real S3 over HTTP on loopback, in a process of its own."""

import json
import math
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any
from urllib.request import Request, urlopen

import boto3
import pytest

KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_DEFAULT_REGION": "us-east-1"}
_SERVE = "from moto.server import main; main(['--host', '127.0.0.1', '--port', '0'])"


@contextmanager
def s3_server(requests: "SimpleQueue[str] | None" = None) -> Iterator[Any]:
    """boto3's client of a server, which all in this process and its children reach by the environment.

    `requests` is given the line that the server logs of each, in the order in which it answers them.
    """
    command = [sys.executable, "-c", _SERVE]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "Running on http" in line)
            # Unread, what it logs fills the pipe, and the server waits for ever.
            Thread(target=_pass_on, args=(process.stderr, requests)).start()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ENDPOINT_URL", "http" + line.partition("http")[2].strip())
                for name, value in KEYS.items():
                    patch.setenv(name, value)
                yield boto3.client("s3")
        finally:
            process.kill()


@contextmanager
def user_without(action: str) -> Iterator[None]:
    """Whoever opens a bucket in here is a user who may do all but one thing."""
    iam, name = boto3.client("iam"), f"user-{secrets.token_hex(8)}"
    allowed = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    denied = {"Effect": "Deny", "Action": action, "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allowed, denied]})
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=document)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        _check_rights_after(iam, 0)
        try:
            yield
        finally:
            _check_rights_after(iam, math.inf)


def _check_rights_after(iam: Any, requests: float) -> None:
    """moto's own: rights count after so many requests, which is by default that they never do."""
    url = f"{iam.meta.endpoint_url}/moto-api/reset-auth"
    with urlopen(Request(url, str(requests).encode(), {"Content-Type": "text/plain"})) as answer:
        assert answer.status == 200


def _pass_on(lines: IO[str], requests: "SimpleQueue[str] | None") -> None:
    for line in lines:
        if requests is not None:
            requests.put(line)
