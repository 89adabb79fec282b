"""The network of the nodes, with a wall around it: they reach each other and the machine, and nothing else.

Without the wall a pod's packet for a Service address leaves the machine until kube-proxy has written its rules, and
whenever it fails: somebody outside answers in place of the Service.
"""

import ipaddress
import json
from collections.abc import Iterator

from tests.support.cluster import ClusterError
from tests.support.cluster.kind.docker import Docker

NETWORK = "gpusharing-e2e"
BRIDGE = "gsp-e2e"
_WALL = ("DOCKER-USER", "-i", BRIDGE, "!", "-o", BRIDGE, "-j", "REJECT")
# Debian's iptables is made of nftables, that of the machine's Docker perhaps not: then it has no such chain there.
_IPTABLES = 'iptables -w "$@" || iptables-legacy -w "$@"'


class Network:
    """The network NETWORK; `make` and `remove` do all or nothing."""

    def __init__(self, docker: Docker, tools: str) -> None:
        self._docker = docker
        self._tools = tools
        """An image with iptables: the packet filter is Docker's machine's, which may be another than this one."""

    def make(self) -> None:
        """Make the network and its wall."""
        subnet = self.subnet()
        self._docker(
            "network", "create", f"--subnet={subnet}", f"--opt=com.docker.network.bridge.name={BRIDGE}", NETWORK
        )
        try:
            self._iptables("-I", *_WALL)
        except BaseException:
            self._docker("network", "rm", NETWORK, check=False)
            raise

    def remove(self) -> None:
        """Take both away."""
        self._iptables("-D", *_WALL)
        self._docker("network", "rm", NETWORK)

    def _iptables(self, *args: str) -> None:
        run = ("run", "--rm", "--pull=never", "--network=host", "--cap-add=NET_ADMIN", "--entrypoint=/bin/sh")
        try:
            self._docker(*run, self._tools, "-c", _IPTABLES, "iptables", *args)
        except ClusterError as error:
            raise ClusterError(
                f"this Docker may not set packet filter rules, without which pods reach outside: {error}. "
                "hint: use a Docker that is not rootless, or run as root on Linux without one"
            ) from error

    def subnet(self) -> str:
        """The subnet that is asked for, or the first of ours that no other network has."""
        taken = list(self._taken())
        if wanted := self._docker.environment.get("GPUSHARING_KIND_SUBNET"):
            if rival := _overlapping(wanted, taken):
                raise ClusterError(
                    f"GPUSHARING_KIND_SUBNET is {wanted}, which overlaps {rival} of another Docker network. "
                    "hint: name a free one, or unset it"
                )
            return wanted
        for number in range(100, 116):
            if not _overlapping(subnet := f"172.30.{number}.0/24", taken):
                return subnet
        raise ClusterError(
            "172.30.100.0/24 to 172.30.115.0/24 are all taken by Docker networks. "
            "hint: set GPUSHARING_KIND_SUBNET to a free /24"
        )

    def _taken(self) -> Iterator[str]:
        if listed := self._docker("network", "ls", "--quiet").split():
            for network in json.loads(self._docker("network", "inspect", *listed)):
                yield from (entry["Subnet"] for entry in network["IPAM"]["Config"] or [] if "Subnet" in entry)


def _overlapping(subnet: str, others: list[str]) -> str:
    """The first of the others that shares an address with the subnet; empty = none does."""
    try:
        ours = ipaddress.IPv4Network(subnet)
    except ValueError as error:
        raise ClusterError(f"GPUSHARING_KIND_SUBNET is {subnet!r}: {error}. hint: 172.30.200.0/24") from error
    found = [ipaddress.ip_network(other, strict=False) for other in others]
    return next((str(other) for other in found if other.version == 4 and ours.overlaps(other)), "")
