"""The authorities of one registry: a file each, in a folder that only its user reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from peerloom.admission.certificates import Authority
from peerloom.errors import ConfigurationError
from peerloom.kit.clock import Clock
from peerloom.kit.identity import BACKDATED_S, Identity, write_private
from peerloom.services.registry.admission.decisions import AuthoritySchedule, schedule_authorities


class AuthorityFolder:
    """Reads the authorities in `folder`, and makes the first one. Certificates live for `life_s` seconds.

    Raises ConfigurationError for a folder or a file in it that can't be used.
    """

    def __init__(self, folder: Path, life_s: float, now_s: float) -> None:
        self._folder, self._life_s = folder, life_s
        self._authorities: list[Authority] = []
        self._made_s: list[float] = []
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in sorted(folder.glob("authority-*.pem")):
                self._keep(_load(path))
            if not self._authorities:
                self.make_next(now_s)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"the authorities in {folder} can't be used: {error}") from error

    def make_next(self, now_s: float) -> Authority:
        """Makes another one, which signs once all had time to learn of it. Raises OSError."""
        number = len(self._authorities) + 1
        authority = Authority.new(now_s, number)
        write_private(self._folder / f"authority-{number:06}.pem", authority.key + authority.certificate)
        self._keep(authority)
        return authority

    def signing(self, now_s: float) -> Authority:
        """The one whose signature new certificates get."""
        return self._authorities[self._schedule(now_s).signing]

    def counting(self, now_s: float) -> bytes:
        """The certificates (PEM) of all whose signature counts, the signing one first."""
        schedule = self._schedule(now_s)
        others = [number for number in schedule.counting if number != schedule.signing]
        return b"".join(self._authorities[number].certificate for number in (schedule.signing, *others))

    def signs_from_s(self) -> float:
        """When the newest one signs, or began to; seconds since 1970."""
        return self._made_s[-1] + self._life_s if len(self._made_s) > 1 else self._made_s[0]

    def signed(self, certificate: x509.Certificate) -> bool:
        """Whether one of them, even one that counts no longer, signed this certificate."""
        return any(authority.signed(certificate) for authority in self._authorities)

    def _schedule(self, now_s: float) -> AuthoritySchedule:
        made: Sequence[float] = self._made_s
        return schedule_authorities(made, now_s, self._life_s)

    def _keep(self, authority: Authority) -> None:
        self._authorities.append(authority)
        self._made_s.append(authority.begins_s + BACKDATED_S)


@dataclass(frozen=True)
class OwnIdentities:
    """What the registry proves itself with, and what whoever runs it does.

    `clock` dates certificates: this machine's, since whoever verifies them goes by a machine's own, too.
    """

    authorities: AuthorityFolder
    registry: Identity
    operator: Identity
    clock: Clock


def _load(path: Path) -> Authority:
    pem = path.read_bytes()
    begin = pem.index(b"-----BEGIN CERTIFICATE")
    return Authority(pem[:begin], pem[begin:])
