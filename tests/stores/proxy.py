"""A proxy between a client and a server that forwards everything and drops answers on request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Listens on a port of its own. ``lose`` drops answers: for the next ``count`` requests that begin with
    ``starting``, the server's answer is read and the client's connection closed."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lost = 0
        self._to_lose = 0
        self._starting = b""
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, count: int, starting: bytes) -> None:
        self._to_lose, self._starting = count, starting

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                lose = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, lose), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client, lose), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, lose: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self._to_lose and data.startswith(self._starting):
                    self._to_lose -= 1
                    lose.set()
                server.sendall(data)
        _shut(server)

    def _answers(self, server: socket.socket, client: socket.socket, lose: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if lose.is_set() and not data.startswith(b"HTTP/1.1 100"):
                    self.lost += 1
                    break
                client.sendall(data)
        _shut(client)
        _shut(server)


@contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    proxy = Proxy((host, port))
    try:
        yield proxy
    finally:
        proxy.close()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
