"""What a process proves itself with: key, certificate and authorities, in one PEM file, renewed in place.

The file serves any tool as it is: it is a certificate file, a key file and a file of authorities at once.
"""

import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from peerloom.errors import ConfigurationError, InvalidArgumentError
from peerloom.kit.files import sync_folder
from peerloom.kit.principal import Principal

if TYPE_CHECKING:
    from cryptography import x509

FILE_NAME = "identity.pem"
# Clocks differ: a certificate is valid somewhat before it was made.
BACKDATED_S = 300.0
_END = b"-----END CERTIFICATE-----\n"


T = TypeVar("T")


def following_credentials(
    current: Callable[[], T],
    configuration_of: Callable[[T], grpc.ServerCertificateConfiguration],
    *,
    asks_for_certificates: bool,
) -> grpc.ServerCredentials:
    """For a gRPC server whose certificate is made of what is `current`: another one of another object."""
    offered = current()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # Asked at each connection. An answer replaces what other connections are greeted with just then, with
        # no lock in gRPC's core: given each time, it ended the process once strangers connected at once.
        nonlocal offered
        if (now := current()) is offered:
            return None
        offered = now
        return configuration_of(now)

    return grpc.dynamic_ssl_server_credentials(
        configuration_of(offered),
        changed,  # type: ignore[arg-type]  # None says: as before
        require_client_authentication=asks_for_certificates,
    )


@dataclass(frozen=True)
class Credentials:
    """A key, the certificate of it, and the authorities that others' certificates are checked with, as PEM.

    Valid from `begins_s` to `ends_s`, seconds since 1970.
    """

    key: bytes = field(repr=False)
    certificate: bytes
    authorities: bytes
    principal: Principal
    begins_s: float
    ends_s: float

    @classmethod
    def parse(cls, bundle: bytes) -> "Credentials":
        """Reads what `bundle` gives. Raises ValueError or InvalidArgumentError for anything else."""
        from cryptography import x509  # 40 ms to import, and a plain system needs none of it

        begin = bundle.find(b"-----BEGIN CERTIFICATE")
        certificates = [part + _END for part in bundle[begin:].split(_END) if part.strip()]
        if begin <= 0 or len(certificates) < 2:
            raise ValueError("a key, its certificate and an authority must be there, in this order")
        certificate = x509.load_pem_x509_certificate(certificates[0])
        return cls(
            bundle[:begin],
            certificates[0],
            b"".join(certificates[1:]),
            principal_of(certificate),
            certificate.not_valid_before_utc.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
        )

    @property
    def bundle(self) -> bytes:
        """All of it as one PEM file."""
        return self.key + self.certificate + self.authorities

    @property
    def renewal_s(self) -> float:
        """When to renew: two thirds into its life, seconds since 1970."""
        issued_s = self.begins_s + BACKDATED_S
        return issued_s + (self.ends_s - issued_s) * 2 / 3


class Identity:
    """The credentials in the file at `path`. `version` counts their renewals, so that who uses them knows.

    Raises ConfigurationError for a file that can't be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        self.revoked: frozenset[str] = frozenset()
        try:
            self.current = Credentials.parse(path.read_bytes())
        except (OSError, ValueError, InvalidArgumentError) as error:
            raise ConfigurationError(
                f"the identity {path} can't be used ({error}): join again with a new token, "
                "which `peerloom token create` prints."
            ) from error

    @property
    def principal(self) -> Principal:
        """Whom it speaks for."""
        return self.current.principal

    def reload(self) -> bool:
        """Takes what another process put into the file meanwhile; False when that is nothing newer."""
        found = Identity(self.path).current
        if found.ends_s <= self.current.ends_s:
            return False
        self.current = found
        self.version += 1
        return True

    def renew(self, credentials: Credentials) -> None:
        """Puts others in their place, for connections that begin from now on, and on disk.

        Raises OSError when the disk doesn't take them: this process is who it is all the same.
        """
        self.current = credentials
        self.version += 1
        write_identity(self.path, credentials)

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server that lets nobody in without a certificate; follows renewals by itself."""

        def configuration_of(now: Credentials) -> grpc.ServerCertificateConfiguration:
            return grpc.ssl_server_certificate_configuration([(now.key, now.certificate)], now.authorities)

        return following_credentials(lambda: self.current, configuration_of, asks_for_certificates=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel that is opened now; a renewal needs a new one."""
        now = self.current
        return grpc.ssl_channel_credentials(now.authorities, now.key, now.certificate)

    def server_context(self) -> ssl.SSLContext:
        """For sockets that others connect to; they must show a certificate of ours. As of now."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self) -> ssl.SSLContext:
        """For sockets that connect; `server_hostname` is one of the `Principal.host_names`. As of now."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.current.authorities.decode())
        context.load_cert_chain(self.path)
        return context


def principal_of(certificate: "x509.Certificate") -> Principal:
    """Whom a certificate of ours names. Raises ValueError or InvalidArgumentError for another's."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as error:
        raise ValueError("the certificate names nobody") from error
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return Principal.parse(uris[0] if uris else "")


def write_identity(path: Path, credentials: Credentials) -> None:
    """Writes what an `Identity` reads. Raises OSError."""
    write_private(path, credentials.bundle)


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that only this user reads, in one step. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
