"""A Kerberos realm with its own KDC on the loopback address, from Debian's packages (scripts/kerberos.sh).

Everything is in one folder: the database, the configuration and one keytab with the keys of all principals. Nothing of
the machine's own Kerberos (/etc/krb5.conf) is read or changed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from scripts.servers.common import HOST, Skipped, free_ports, running, wait_until

REALM = "SPARKLOG.TEST"
PATH = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/sbin"
TICKET_LIFETIME = "10m"
CLIENT = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  ticket_lifetime = {lifetime}
[realms]
  {realm} = {{
    kdc = {host}:{port}
  }}
[domain_realm]
  localhost = {realm}
"""
SERVER = """\
[kdcdefaults]
  kdc_listen = {host}:{port}
  kdc_tcp_listen = {host}:{port}
[realms]
  {realm} = {{
    database_name = {home}/principals
    key_stash_file = {home}/stash
    supported_enctypes = aes256-cts:normal
  }}
"""


class Realm(NamedTuple):
    """A running KDC: its folder, the file with all keys, and the variables by which clients find it.

    Java finds it by ``JAVA_TOOL_OPTIONS``: it reads no other variable.
    """

    home: Path
    keytab: Path
    environment: dict[str, str]

    def log_in(self, principal: str, cache: str) -> dict[str, str]:
        """Get a ticket, as ``kinit`` does; return the variables of a process that has it."""
        variables = {**self.environment, "KRB5CCNAME": f"FILE:{self.home / cache}"}
        _run(["kinit", "-k", "-t", str(self.keytab), principal], variables)
        return variables


@contextmanager
def realm(home: Path, principals: Sequence[str]) -> Iterator[Realm]:
    """A realm with these principals. Raises ``Skipped`` where there is no KDC, ``ServerFailed``."""
    if not all(shutil.which(program, path=PATH) for program in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")):
        raise Skipped("there is no Kerberos KDC on this machine: bash scripts/kerberos.sh")
    home.mkdir(parents=True)
    (port,) = free_ports(1)
    names = {"realm": REALM, "host": HOST, "port": port, "home": home, "lifetime": TICKET_LIFETIME}
    (home / "krb5.conf").write_text(CLIENT.format(**names))
    (home / "kdc.conf").write_text(SERVER.format(**names))
    variables = {"KRB5_CONFIG": str(home / "krb5.conf")}
    of_server = {**variables, "KRB5_KDC_PROFILE": str(home / "kdc.conf")}
    _run(["kdb5_util", "create", "-s", "-P", "secret", "-r", REALM], of_server)
    keytab = home / "keytab"
    for principal in principals:
        _run(["kadmin.local", "-q", f"addprinc -randkey {principal}"], of_server)
        _run(["kadmin.local", "-q", f"ktadd -k {keytab} {principal}"], of_server)
    variables["JAVA_TOOL_OPTIONS"] = f"-Djava.security.krb5.conf={home / 'krb5.conf'}"
    with running({"krb5kdc": [_program("krb5kdc"), "-n", "-P", str(home / "pid")]}, home, of_server):
        wait_until(lambda: _answers(port), "the KDC", home)
        yield Realm(home, keytab, variables)


def _answers(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=1):
        return True


def _program(name: str) -> str:
    return shutil.which(name, path=PATH) or name


def _run(command: Sequence[str], variables: dict[str, str]) -> None:
    subprocess.run(
        [_program(command[0]), *command[1:]],
        env={**os.environ, **variables},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )
