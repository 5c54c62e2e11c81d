"""Which addresses may be connected to. A host is resolved, checked and connected to in one step: no second look-up."""

import ipaddress
import re
import socket
from ipaddress import IPv4Address, IPv6Address

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

_HINT = "Give --allow-private-addresses if documents are to be read from inside this network."
#: Ranges that hold no public hosts. Source: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890),
#: IPv4 as updated on 2020-09-04, with the later RFC 9602 (5f00::/16), 9637 (3fff::/20), and 9780 (100:0:0:1::/64);
#: also multicast and Azure's wire server. The table replaces `ipaddress`, whose notion of private and global differs
#: between Python releases. Globally reachable entries (AS112, AMT, anycast of PCP and TURN) publish no documents.
_SPECIAL = tuple(
    (ipaddress.ip_network(block), kind)
    for block, kind in (
        ("0.0.0.0/32", "unspecified"),
        ("0.0.0.0/8", "reserved"),  # "this network"
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private"),  # shared address space of carriers
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "private"),  # public in form; inside a virtual machine of Azure it tells of the machine
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),  # IETF protocol assignments, such as 192.0.0.192 of Oracle's metadata
        ("192.0.2.0/24", "reserved"),  # documentation
        ("192.31.196.0/24", "reserved"),  # AS112
        ("192.52.193.0/24", "reserved"),  # AMT
        ("192.88.99.0/24", "reserved"),  # relays of 6to4, deprecated
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "reserved"),  # AS112
        ("198.18.0.0/15", "private"),  # benchmarking
        ("198.51.100.0/24", "reserved"),  # documentation
        ("203.0.113.0/24", "reserved"),  # documentation
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),  # limited broadcast included
        ("::1/128", "loopback"),
        ("::/128", "unspecified"),
        ("64:ff9b:1::/48", "private"),  # local translators: where the IPv4 address is in it is not known
        ("100::/64", "reserved"),  # discard-only
        ("100:0:0:1::/64", "reserved"),  # dummy prefix
        ("2001::/23", "reserved"),  # IETF protocol assignments, Teredo included
        ("2001:db8::/32", "reserved"),  # documentation
        ("2620:4f:8000::/48", "reserved"),  # AS112
        ("3fff::/20", "reserved"),  # documentation
        ("5f00::/16", "reserved"),  # segment routing
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),  # site-local, deprecated
        ("ff00::/8", "multicast"),
    )
)
#: The only IPv6 addresses that are given to hosts of the internet; the rest is not assigned.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
#: Prefixes before an IPv4 address, and the bits behind it: IPv4-mapped, NAT64 (RFC 6052), 6to4.
_EMBEDDING = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)
#: A last label that is a number makes a host an IPv4 address in one of its old spellings (URL Standard, "ends in a
#: number"): 127.1, 0x7f.1 and 2130706433 all are 127.0.0.1.
_NUMBER = re.compile(r"(?:\d+|0[xX][0-9a-fA-F]*)")


def problem(address: IPv4Address | IPv6Address) -> str:
    """Why the address is not one of the public internet; empty when it is."""
    if isinstance(address, IPv6Address) and (inner := _embedded(address)) is not None:
        return problem(inner)
    kind = next((kind for block, kind in _SPECIAL if block.version == address.version and address in block), "")
    unassigned = isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST
    return kind or ("reserved" if unassigned else "")


def check_literal(host: str) -> None:
    """Check a host that is an address itself: such hosts are connected to without asking a resolver.

    Raises `PageFailure` for addresses that are not public and for old spellings of addresses.
    """
    plain = host.rstrip(".")
    if ":" not in plain and not _NUMBER.fullmatch(plain.rpartition(".")[2]):
        return
    try:
        address = ipaddress.ip_address(plain)
    except ValueError as error:
        raise PageFailure(Reason.UNREADABLE, f"{host} is no address in its usual form") from error
    _refuse(host, address)


class CheckedResolver(AbstractResolver):
    """Gives the addresses of a host only when all of them are public."""

    def __init__(self, resolver: AbstractResolver | None = None) -> None:
        self._resolver = resolver or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            _refuse(host, ipaddress.ip_address(one["host"].partition("%")[0]))
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _refuse(host: str, address: IPv4Address | IPv6Address) -> None:
    if kind := problem(address):
        named = host if host == str(address) else f"{host} is {address}, which"
        raise PageFailure(Reason.UNREADABLE, f"{named} is not a public address ({kind})", hint=_HINT)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address at which packets for an IPv6 address end."""
    behind = next((bits for block, bits in _EMBEDDING if address in block), None)
    return None if behind is None else IPv4Address(int(address) >> behind & 0xFFFFFFFF)
