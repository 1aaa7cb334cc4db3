"""Asks the service in this container for its health: `probe.py PORT IDENTITY [NAME]` ends with 0 if SERVING.

NAME is that of a gRPC service, or `live` for the process alone; none: all of the server. IDENTITY is the
service's own PEM file: key, certificate and authorities. It speaks the few bytes of HTTP/2 that
grpc.health.v1.Health/Check takes itself, with nothing but a TLS socket: importing gRPC takes half a second of
a core, and every container is asked every few seconds.
"""

import socket
import ssl
import struct
import sys

TIMEOUT_S = 3.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4
FRAME_LIMIT_BYTES = 2**14
SERVING = b"\x00\x00\x00\x00\x02\x08\x01"  # uncompressed, 2 bytes long: field 1 (status) is 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2 (RFC 9113, 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value: str) -> bytes:
    """A string literal of HPACK without Huffman coding (RFC 7541, 5.2), up to 126 bytes long."""
    return bytes([len(value)]) + value.encode()


def request(name: str) -> bytes:
    """Everything to send to ask for the health of that name, up to 120 bytes; the whole server's is empty."""
    message = b"\x0a" + text(name) if name else b""  # field 1 (service)
    headers = (
        b"\x83\x87"  # :method POST and :scheme https, from HPACK's table
        + b"\x04" + text("/grpc.health.v1.Health/Check")  # :path
        + b"\x01" + text("localhost")  # :authority
        + b"\x0f\x10" + text("application/grpc")  # content-type
        + b"\x00" + text("te") + text("trailers")
    )  # fmt: skip
    return (
        PREFACE
        + frame(SETTINGS, 0, 0)
        + frame(HEADERS, END_HEADERS, 1, headers)
        + frame(DATA, END_STREAM, 1, b"\x00" + struct.pack(">I", len(message)) + message)
    )


def connect(port: int, identity: str) -> ssl.SSLSocket:
    """A connection to this port of loopback, where any member has to answer. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(identity)
    context.load_cert_chain(identity)
    context.set_alpn_protocols(["h2"])
    line = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    try:
        return context.wrap_socket(line, server_hostname="member.peerloom")
    except BaseException:
        line.close()
        raise


def check(port: int, identity: str, name: str = "") -> str:
    """Empty when what has this name on this port of loopback is SERVING, else why not. Raises OSError."""
    with connect(port, identity) as line, line.makefile("rb") as answer:
        line.sendall(request(name))
        while head := answer.read(9):
            size, kind = int.from_bytes(head[:3], "big"), head[3]
            payload = answer.read(min(size, FRAME_LIMIT_BYTES))
            if kind == DATA:
                return "" if payload == SERVING else "it says that it can't serve now"
            if kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and head[4] & END_STREAM):
                break
    return "it gave no answer"


if __name__ == "__main__":
    try:
        sys.exit(check(int(sys.argv[1]), *sys.argv[2:4]) or 0)
    except OSError as error:
        sys.exit(f"it can't be reached: {error}")
