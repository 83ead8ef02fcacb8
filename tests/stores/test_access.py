"""Ways to reach an S3 server, and what is said where one does not work: credentials, regions, certificates, proxies,
encryption. Conditional writes hold in each."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scripts.servers import s3
from scripts.servers.common import HOST, Skipped, free_ports, running, wait_until
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageUnavailableError,
)
from sparklog.ids import RandomIds
from sparklog.store.conditional_write_probe import probe_conditional_writes
from sparklog.store.s3 import S3Store
from tests.minio import Minio, minio_server

__all__ = ["minio_server"]  # a fixture

pytestmark = pytest.mark.s3

Write = Callable[[], object]


def check_conditional_writes(store: S3Store) -> None:
    probe_conditional_writes(store, RandomIds())
    store.put_if_absent("meta/commits/1.json", b"1")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("meta/commits/1.json", b"2")
    assert store.get("meta/commits/1.json") == b"1"


def calls(store: S3Store) -> list[Write]:
    return [
        lambda: store.get("a"),
        lambda: store.info("a"),
        lambda: list(store.list()),
        lambda: store.put("a", b"1"),
        lambda: store.put_if_absent("a", b"1"),
        lambda: store.delete("a"),
    ]


def check_errors(store: S3Store, kind: type[StorageError], said: str) -> None:
    """Every call raises this class of error, in one line."""
    for call in calls(store):
        with pytest.raises(kind, match=said) as caught:
            call()
        assert "\n" not in str(caught.value)
        assert "secret-of" not in str(caught.value)
        assert not isinstance(caught.value, ObjectNotFoundError)


# -- credentials


def test_wrong_credentials_are_named(minio_server: Minio) -> None:
    root = f"s3://{minio_server.bucket}/wrong"
    keys = "check the credentials: AWS_ACCESS_KEY_ID"
    check_errors(S3Store(root, minio_server.options(key="no-such-key")), StoragePermissionError, keys)
    check_errors(S3Store(root, minio_server.options(secret="secret-of-others")), StoragePermissionError, keys)
    token = S3Store(root, minio_server.options(token="secret-of-nobody"))
    check_errors(token, StoragePermissionError, "get new temporary credentials")


def test_temporary_credentials_of_a_removed_user_are_refused_at_once(minio_server: Minio) -> None:
    user = minio_server.create_user("leaver", "temporary", "owner")
    temporary = minio_server.assume_role(user=user)
    root, options = f"s3://{minio_server.bucket}/temporary", minio_server.options(temporary)
    create_cluster(root, options).create_topic("t", partitions=1)
    cluster = open_cluster(root, options)
    with Producer(bootstrap_servers=root, storage_options=options) as producer:
        producer.send("t", b"x").get(60)
        minio_server.mc("admin", "user", "rm", "local", user.key)
        sent = producer.send("t", b"y")
        with pytest.raises(StoragePermissionError, match=r"s3://.*/temporary/"):
            sent.get(60)
    with pytest.raises(StoragePermissionError, match=r"s3://.*/temporary/"):
        cluster.refresh()


def test_a_clock_that_is_off_is_named(minio_server: Minio, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore import auth

    now = auth.get_current_datetime
    monkeypatch.setattr(auth, "get_current_datetime", lambda *given: now(*given) - datetime.timedelta(hours=1))
    store = S3Store(f"s3://{minio_server.bucket}/late", minio_server.options())
    check_errors(store, StoragePermissionError, "RequestTimeTooSkewed.*set this machine's clock")


# -- addresses


def test_another_region_than_the_servers_works(minio_server: Minio) -> None:
    options = minio_server.options(client_kwargs={"region_name": "us-west-2"})  # the client asks for the right one
    check_conditional_writes(S3Store(f"s3://{minio_server.bucket}/region", options))


def test_missing_bucket_is_named(minio_server: Minio) -> None:
    check_errors(S3Store("s3://no-such-bucket/x", minio_server.options()), StorageError, "bucket")


@pytest.mark.parametrize("style", ["path", "auto"])
def test_addresses_from_the_environment(minio_server: Minio, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in minio_server.environment().items():
        monkeypatch.setenv(name, value)
    options = {"config_kwargs": {"s3": {"addressing_style": style}}}
    check_conditional_writes(S3Store(f"s3://{minio_server.bucket}/environment-{style}", options))


def test_addresses_from_a_profile(minio_server: Minio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = tmp_path / "config"
    settings = {
        "aws_access_key_id": minio_server.root.key,
        "aws_secret_access_key": minio_server.root.secret,
        "region": minio_server.region,
        "endpoint_url": minio_server.endpoint,
    }
    profile.write_text("[profile logs]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    check_conditional_writes(S3Store(f"s3://{minio_server.bucket}/profile", {"profile": "logs"}))
    monkeypatch.setenv("AWS_PROFILE", "logs")
    check_conditional_writes(S3Store(f"s3://{minio_server.bucket}/default-profile", {}))


# -- encryption


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("s3", {"ServerSideEncryption": "AES256"}),
        ("kms", {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "log-key"}),
    ],
)
def test_encryption_by_storage_options(name: str, headers: dict[str, str], minio_server: Minio) -> None:
    store = S3Store(f"s3://{minio_server.bucket}/sse-{name}", minio_server.options(s3_additional_kwargs=headers))
    check_conditional_writes(store)
    store.put("small", b"1")
    with store.open_output("large") as file:
        file.write(bytes(20 * 1024 * 1024))
    assert store.get_range("large", 10, 3) == bytes(3)
    client = store.client.get()
    for key in ("small", "large", "meta/commits/1.json"):
        answer = client.call_s3("head_object", Bucket=minio_server.bucket, Key=f"sse-{name}/{key}")
        assert answer["ServerSideEncryption"] == headers["ServerSideEncryption"]


def test_unknown_key_of_encryption_is_an_error(minio_server: Minio) -> None:
    headers = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "no-such-key"}
    store = S3Store(f"s3://{minio_server.bucket}/sse-no", minio_server.options(s3_additional_kwargs=headers))
    with pytest.raises(StorageError, match="check the key of the encryption"):
        store.put_if_absent("a", b"1")


# -- certificates


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server with a certificate that this machine does not trust, and the file to trust it by."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("a certificate is made with openssl, which is not in PATH")
    try:
        program = s3.build()
    except Skipped as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("secure")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    request += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *request], check=True, capture_output=True, timeout=60)
    (folder / "data" / s3.BUCKET).mkdir(parents=True)
    (port,) = free_ports(1)
    command = [str(program), "--port", f"{HOST}:{port}", "--quiet", "--cert", str(certificate), "--key", str(key)]
    environment = {"ROOT_ACCESS_KEY": s3.KEY, "ROOT_SECRET_KEY": s3.SECRET}
    with running({"versitygw": [*command, "posix", str(folder / "data")]}, folder, environment):
        wait_until(lambda: socket.create_connection((HOST, port), 5).close() is None, "versitygw", folder, seconds=30)
        yield f"https://{HOST}:{port}", certificate


def secure_options(endpoint: str, **more: Any) -> dict[str, Any]:
    return {"endpoint_url": endpoint, "key": s3.KEY, "secret": s3.SECRET, "config_kwargs": {"retries": ONCE}, **more}


ONCE = {"max_attempts": 1}


def test_authority_of_ones_own(secure: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, certificate = secure
    check_conditional_writes(
        S3Store(f"s3://{s3.BUCKET}/option", secure_options(endpoint, client_kwargs={"verify": str(certificate)}))
    )
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    check_conditional_writes(S3Store(f"s3://{s3.BUCKET}/environment", secure_options(endpoint)))


def test_certificate_that_is_not_trusted_is_named(secure: tuple[str, Path]) -> None:
    store = S3Store(f"s3://{s3.BUCKET}/untrusted", secure_options(secure[0]))
    for call in (lambda: store.get("a"), lambda: store.put_if_absent("a", b"1")):
        with pytest.raises(
            StorageError, match="name a file with the authority's certificate in AWS_CA_BUNDLE"
        ) as error:
            call()
        assert not isinstance(error.value, StorageUnavailableError)


def test_address_without_tls_is_named(minio_server: Minio) -> None:
    endpoint = minio_server.endpoint.replace("http://", "https://")
    store = S3Store(f"s3://{minio_server.bucket}/x", secure_options(endpoint))
    with pytest.raises(StorageError, match="does not speak TLS: write http://"):
        store.get("a")


# -- proxies


class ForwardingProxy(BaseHTTPRequestHandler):
    """Forwards requests for http addresses, and counts them."""

    protocol_version = "HTTP/1.1"
    server: Any

    def _forward(self) -> None:
        self.server.forwarded += 1
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "proxy-connection"}
        connection.request(self.command, self.path.partition(parts.netloc)[2], body, headers)
        answer = connection.getresponse()
        data = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        if answer.status != 204 and length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(data)
        connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def forwarding_proxy() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer((HOST, 0), ForwardingProxy)
    server.daemon_threads = True
    server.forwarded = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def test_proxies_of_the_environment(minio_server: Minio, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with forwarding_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{HOST}:{proxy.server_port}")
        check_conditional_writes(S3Store(f"s3://{minio_server.bucket}/proxied", minio_server.options()))
        assert (before := proxy.forwarded) > 0
        monkeypatch.setenv("NO_PROXY", HOST)
        check_conditional_writes(S3Store(f"s3://{minio_server.bucket}/direct", minio_server.options()))
        assert proxy.forwarded == before


def test_a_proxy_that_does_not_answer_is_named(minio_server: Minio, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    (port,) = free_ports(1)
    monkeypatch.setenv("HTTP_PROXY", f"http://{HOST}:{port}")
    store = S3Store(f"s3://{minio_server.bucket}/x", minio_server.options(config_kwargs={"retries": ONCE}))
    with pytest.raises(StorageUnavailableError, match=r"check AWS_ENDPOINT_URL.*HTTPS_PROXY and NO_PROXY"):
        store.get("a")
