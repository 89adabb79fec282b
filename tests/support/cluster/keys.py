"""Keys and certificates for the test cluster, valid for a day and for loopback."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate (or, for tokens, a bare public key) and its private key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of its own that lives in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpusharing test authority")])
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # Python 3.13 verifies strictly: an authority without these two is refused
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = builder.add_extension(identifier, critical=False).sign(self._key, hashes.SHA256())
        self.pem = folder / "ca.crt"
        """The certificate that clients trust."""
        self.pem.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def serving(self, name: str, *addresses: str) -> KeyPair:
        """A server's certificate for localhost and `addresses` (names or IP addresses)."""
        return self._issue(name, x509.Name([_common(name)]), ExtendedKeyUsageOID.SERVER_AUTH, addresses)

    def client(self, name: str, group: str) -> KeyPair:
        """The certificate of the user `name` in `group`."""
        subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), _common(name)])
        return self._issue(name.replace(":", "-"), subject, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def _issue(
        self, file_name: str, subject: x509.Name, usage: x509.ObjectIdentifier, addresses: tuple[str, ...]
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if usage == ExtendedKeyUsageOID.SERVER_AUTH:
            names = [_general_name(address) for address in ("localhost", "127.0.0.1", *addresses)]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pair = KeyPair(self._folder / f"{file_name}.crt", self._folder / f"{file_name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair


def token_keys(folder: Path) -> KeyPair:
    """The pair that signs and verifies ServiceAccount tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(folder / "tokens.pub", folder / "tokens.key")
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    pair.certificate.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, public))
    _write_key(pair.key, key)
    return pair


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _common(name: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(NameOID.COMMON_NAME, name)


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
