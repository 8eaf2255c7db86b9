"""HTTP over a socket file, for the standard library's client."""

from __future__ import annotations

import http.client
import socket


class UnixConnection(http.client.HTTPConnection):
    """An `HTTPConnection` whose server listens on `socket_path`; the host only stands in its `Host` header."""

    def __init__(self, socket_path: str, host: str = "localhost", *, timeout: float | None = None) -> None:
        super().__init__(host, timeout=timeout)
        self._socket_path = socket_path

    def connect(self) -> None:
        """Raises: OSError."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._socket_path)
        except OSError:
            self.close()
            raise
