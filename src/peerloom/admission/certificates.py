"""Certificates: keys and requests of those who join, and the authority that signs them. P-256 throughout."""

import hashlib
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from peerloom.errors import InvalidArgumentError
from peerloom.kit.identity import BACKDATED_S, Credentials
from peerloom.kit.principal import Principal

AUTHORITY_LIFE_S = 3650 * 86_400.0
REQUEST_LIMIT_BYTES = 4096
# Carries the authority's certificate inside the join port's: whoever joins knows the digest of it only.
# 2.25 is the arc of UUIDs; this one was drawn for the purpose.
AUTHORITY_OID = x509.ObjectIdentifier("2.25.139275613302547718216823154291744308217")


def new_key() -> bytes:
    """A fresh private key, PEM without a password."""
    return _key_pem(ec.generate_private_key(ec.SECP256R1()))


def make_request(key: bytes) -> bytes:
    """A certificate request (PEM) of a key. It names nobody: the authority decides on the name."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name("request"))
    request = builder.sign(_load_key(key), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def digest_of(authority: bytes) -> str:
    """What a token says of an authority: SHA-256 of its certificate (PEM), 64 hexadecimal digits."""
    certificate = x509.load_pem_x509_certificate(authority)
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def authority_inside(certificate: bytes) -> bytes:
    """The authority (PEM) that a join port's certificate carries. Raises ValueError when it carries none."""
    try:
        found = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_oid(AUTHORITY_OID)
    except x509.ExtensionNotFound as error:
        raise ValueError("it isn't the port of a Peerloom registry for those who join") from error
    assert isinstance(found.value, x509.UnrecognizedExtension), "cryptography doesn't know our extension"
    carried = x509.load_der_x509_certificate(found.value.value)
    return carried.public_bytes(serialization.Encoding.PEM)


class Authority:
    """A key whose signature makes a certificate count; `certificate` is its own, PEM."""

    def __init__(self, key: bytes, certificate: bytes) -> None:
        self._key = _load_key(key)
        self._certificate = x509.load_pem_x509_certificate(certificate)
        self.key, self.certificate = key, certificate

    @classmethod
    def new(cls, now_s: float, serial: int) -> "Authority":
        """A fresh one, valid for ten years. Two of one registry need different `serial`s in their names."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"Peerloom authority {serial}")
        begin = _time(now_s - BACKDATED_S)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + timedelta(seconds=AUTHORITY_LIFE_S))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_authority_usage(), critical=True)
        )
        certificate = builder.sign(key, hashes.SHA256())
        return cls(_key_pem(key), certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def digest(self) -> str:
        """What tokens say of it."""
        return digest_of(self.certificate)

    @property
    def begins_s(self) -> float:
        """From when on its certificate is valid, seconds since 1970."""
        return self._certificate.not_valid_before_utc.timestamp()

    def signed(self, certificate: x509.Certificate) -> bool:
        """Whether it signed this certificate."""
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def sign(self, request: bytes, principal: Principal, now_s: float, life_s: float) -> bytes:
        """A certificate (PEM) of the request's key for `principal`, valid for `life_s` seconds from now on.

        Nothing of the request counts but its key. Raises InvalidArgumentError for what is no request.
        """
        return self._signed(request_key_of(request), principal, now_s, life_s)

    def credentials(self, principal: Principal, now_s: float, life_s: float) -> Credentials:
        """A fresh key and its certificate, for a principal of this very process."""
        key = new_key()
        return Credentials.parse(
            key + self.sign(make_request(key), principal, now_s, life_s) + self.certificate
        )

    def join_port_credentials(self, now_s: float) -> tuple[bytes, bytes]:
        """Key and certificate (PEM) of the port that those who have no certificate yet come to."""
        key = ec.generate_private_key(ec.SECP256R1())
        der = self._certificate.public_bytes(serialization.Encoding.DER)
        builder = self._builder(key.public_key(), "join", now_s, AUTHORITY_LIFE_S / 2)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName("join.peerloom")]), critical=False
        ).add_extension(x509.UnrecognizedExtension(AUTHORITY_OID, der), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return _key_pem(key), certificate.public_bytes(serialization.Encoding.PEM)

    def _signed(
        self, key: ec.EllipticCurvePublicKey, principal: Principal, now_s: float, life_s: float
    ) -> bytes:
        principal.check()
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(principal.uri)]
        names += [x509.DNSName(name) for name in principal.host_names]
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = self._builder(key, principal.id, now_s, life_s)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.add_extension(usages, critical=False).sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    def _builder(
        self, key: ec.EllipticCurvePublicKey, name: str, now_s: float, life_s: float
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_time(now_s - BACKDATED_S))
            .not_valid_after(_time(now_s + life_s))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )


def request_key_of(request: bytes) -> ec.EllipticCurvePublicKey:
    """The key that signed a certificate request (PEM). Raises InvalidArgumentError for what is no request."""
    limit = f"a certificate request (PEM) of a P-256 key, at most {REQUEST_LIMIT_BYTES} bytes"
    try:
        if len(request) > REQUEST_LIMIT_BYTES:
            raise ValueError("it is too long")
        parsed = x509.load_pem_x509_csr(request)
        key = parsed.public_key()
        if not parsed.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError("it isn't signed by its own key")
        if not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("its key is of another curve")
    except (ValueError, TypeError, InvalidSignature) as error:
        raise InvalidArgumentError.of_field("certificate_request", str(error)[:200], limit) from error
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _load_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(key, password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError("the key must be one of an elliptic curve (P-256)")
    return loaded


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _time(wall_s: float) -> datetime:
    return datetime.fromtimestamp(wall_s, UTC)


def _authority_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
