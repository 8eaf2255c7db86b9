"""A hub on 127.0.0.1 that does what a test tells it: Hugging Face's and ModelScope's API, ranges, redirects, and failures."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]


@dataclass
class Script:
    """What the hub holds and how it misbehaves. Lists are used up from the front, one item for each file request."""

    files: dict[str, bytes] = field(default_factory=dict)
    lie: dict[str, bytes] = field(default_factory=dict)
    """Sent instead of the real content: the list of files still promises the real one."""
    statuses: list[tuple[int, str | None]] = field(default_factory=list)
    """(status, X-Error-Code) of the next file requests; 200 lets one through."""
    listing_status: tuple[int, str | None] | None = None
    cut_after_b: list[int] = field(default_factory=list)
    """The connection breaks after so many bytes of the body of the next file requests."""
    ignore_range: bool = False
    etag: str | None = None
    """ETag of every file instead of a hash of its content; empty: none."""
    no_lfs: bool = False
    no_digest: bool = False
    redirect_to: str | None = None
    redirect_api: bool = False
    hold: threading.Event | None = None
    """The body stops halfway until this is set."""
    license_tag: str = "license:mit"
    listing_body: bytes | None = None
    seen: list[Seen] = field(default_factory=list)

    def file_requests(self) -> list[Seen]:
        return [s for s in self.seen if "/resolve/" in s.path or "FilePath=" in s.path]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    script: Script


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        script = self.server.script
        script.seen.append(Seen(self.path, {k.lower(): v for k, v in self.headers.items()}))
        path = unquote(urlsplit(self.path).path)
        query = parse_qs(urlsplit(self.path).query)
        if re.match(r"/api/models/[^/]+/[^/]+/revision/", path):
            self._listing(script, self._hf_listing(script))
        elif path.endswith("/repo/files"):
            self._listing(script, self._ms_listing(script))
        elif path.endswith("/repo"):
            self._file(script, query["FilePath"][0])
        elif "/resolve/" in path:
            self._file(script, path.split("/resolve/")[1].split("/", 1)[1])
        elif path == "/links/":  # a page for pip's --find-links
            page = "".join(f'<a href="{name}">{name}</a>' for name in script.files)
            self._answer(200, f"<!DOCTYPE html><html><body>{page}</body></html>".encode(), {"Content-Type": "text/html"})
        elif path.startswith("/links/"):
            self._body(script, script.files[path.removeprefix("/links/")], "")
        else:
            self._answer(404, b"")

    def _hf_listing(self, script: Script) -> dict[str, Any]:
        siblings = []
        for name, data in script.files.items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(data)}
            if not script.no_digest:
                entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            if not name.endswith((".json", ".md")) and not script.no_lfs and not script.no_digest:
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        return {"sha": COMMIT, "siblings": siblings, "tags": ["x", script.license_tag]}

    def _ms_listing(self, script: Script) -> dict[str, Any]:
        files = [
            {"Path": name, "Name": name, "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest(), "Type": "blob"}
            for name, data in script.files.items()
        ]
        return {"Code": 200, "Data": {"Files": [{"Path": "original", "Type": "tree", "Size": 0}, *files]}}

    def _listing(self, script: Script, content: dict[str, Any]) -> None:
        if script.redirect_to and script.redirect_api:
            self._answer(307, b"", {"Location": script.redirect_to + self.path})
        elif script.listing_status:
            status, code = script.listing_status
            self._answer(status, b"", {"X-Error-Code": code} if code else {})
        else:
            self._answer(200, script.listing_body if script.listing_body is not None else json.dumps(content).encode())

    def _file(self, script: Script, name: str) -> None:
        if script.statuses:
            status, code = script.statuses.pop(0)
            if status != 200:
                self._answer(status, b"", {"X-Error-Code": code} if code else {})
                return
        if script.redirect_to:
            self._answer(302, b"", {"Location": script.redirect_to + self.path})
            return
        if name not in script.files:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        data = script.lie.get(name, script.files[name])
        etag = f'"{hashlib.md5(data).hexdigest()}"' if script.etag is None else script.etag
        self._body(script, data, etag)

    def _body(self, script: Script, data: bytes, etag: str) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, etag)
        headers = {"ETag": etag} if etag else {}
        start = 0
        status = 200
        if asked and same and not script.ignore_range:
            start = int(asked[1])
            if start >= len(data):
                self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        cut = script.cut_after_b.pop(0) if script.cut_after_b else None
        self._answer(status, data[start:], headers, cut, script.hold)

    def _answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        cut: int | None = None,
        hold: threading.Event | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            if hold is not None:
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                hold.wait(60)
                self.wfile.write(body[len(body) // 2 :])
            else:
                self.wfile.write(body if cut is None else body[:cut])
        except OSError:
            self.close_connection = True
        if cut is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silence."""


@dataclass
class Hub:
    """A running hub: its script and its address."""

    script: Script
    url: str


@contextmanager
def serve(script: Script) -> Iterator[Hub]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.script = script
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Hub(script, f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        if script.hold is not None:
            script.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
