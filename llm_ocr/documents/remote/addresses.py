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
#: RFC 6052: IPv4 addresses behind a translator.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
#: Public in form, and answers inside every virtual machine of Azure with what concerns the machine.
_AZURE_HOST = ipaddress.IPv4Address("168.63.129.16")
#: A last label that is a number makes a host an IPv4 address in one of its old spellings (URL Standard, "ends in a
#: number"): 127.1, 0x7f.1 and 2130706433 all are 127.0.0.1.
_NUMBER = re.compile(r"(?:\d+|0[xX][0-9a-fA-F]*)")


def problem(address: IPv4Address | IPv6Address) -> str:
    """Why the address is not one of the public internet; empty when it is."""
    inner = _embedded(address)
    if inner is not None:
        return problem(inner)
    kinds = {
        "loopback": address.is_loopback,
        "link-local": address.is_link_local,
        "multicast": address.is_multicast,
        "unspecified": address.is_unspecified,
        "private": address.is_private or getattr(address, "is_site_local", False) or address == _AZURE_HOST,
        "reserved": address.is_reserved or not address.is_global,
    }
    return next((kind for kind, found in kinds.items() if found), "")


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


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets for an IPv6 address end at."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
