"""The address that a server of a command listens on: who reaches it, its URL, and the error if it cannot be taken.

Rules: pure. Not for: options (``cli.arguments.listen``).
"""

from __future__ import annotations

import ipaddress

from sparklog.errors import InvalidConfigurationError


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def url_of(host: str, port: int, path: str = "/") -> str:
    """Return the URL of a server for people."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def listen_error(host: str, port: int, error: OSError | OverflowError) -> InvalidConfigurationError:
    """Return what to raise if nothing can listen on an address."""
    reason = getattr(error, "strerror", None) or error
    return InvalidConfigurationError(
        f"cannot listen on {host} port {port}: {reason}; give another address or port to --listen", config="listen"
    )
