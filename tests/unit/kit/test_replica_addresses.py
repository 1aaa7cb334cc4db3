"""What `--registry a:7400,b:7400` means, and what is no such list."""

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.kit.replica_addresses import addresses_in, check_addresses, target_of


def test_one_address_is_dialled_as_it_is() -> None:
    assert target_of("registry.example:7400") == "registry.example:7400"


def test_several_are_one_target() -> None:
    assert target_of("127.0.0.1:7400, 127.0.0.2:7401") == "ipv4:127.0.0.1:7400,127.0.0.2:7401"
    assert target_of("[::1]:7400,[::1]:7401") == "ipv6:[::1]:7400,[::1]:7401"
    assert addresses_in("a:1, b:2") == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:1,a:1", "different addresses"),
        ("a:1,", "host:port"),
        ("a:1,b", "registry is 'b'"),
        ("a:1,dns:2", "registry is 'dns:2'"),
        (",".join(f"a:{port}" for port in range(1, 10)), "9 addresses"),
    ],
)
def test_what_is_no_list_of_replicas_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        check_addresses("registry", text)
