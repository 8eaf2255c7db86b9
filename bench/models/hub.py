"""Hugging Face and ModelScope: what a repository holds, where its files are, and what their refusals mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from bench.clock import Clock
from bench.errors import ModelError, UsageError
from bench.models.http import HttpClient, StatusError
from bench.models.source import Source, is_safe_member

HF_ENDPOINT = "https://huggingface.co"
MODELSCOPE_ENDPOINT = "https://www.modelscope.cn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file of a repository. `digest` is `sha256:HEX` or `git:HEX` (a git blob id), None where the hub gives neither."""

    path: str
    size_b: int | None
    digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a repository holds at one revision; `commit` is what the revision stood for when asked."""

    commit: str | None
    files: tuple[RemoteFile, ...]
    licence: str | None = None


class Site(Protocol):
    """A hub of models."""

    client: HttpClient

    def listing(self, source: Source) -> Listing:
        """Raises: StatusError, ModelError."""
        ...

    def url(self, source: Source, commit: str | None, path: str) -> str:
        """Where to get one file."""
        ...

    def refusal(self, source: Source, error: StatusError) -> ModelError:
        """What an answer other than success means for a person."""
        ...


class _Lfs(msgspec.Struct):
    sha256: str
    size: int


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None
    blob_id: str | None = msgspec.field(default=None, name="blobId")
    lfs: _Lfs | None = None


class _HfModel(msgspec.Struct):
    siblings: list[_Sibling]
    sha: str | None = None
    tags: list[str] = []


class HuggingFace:
    """Hugging Face, or a mirror of it in `HF_ENDPOINT`. Gated repositories need `HF_TOKEN`."""

    def __init__(self, env: Mapping[str, str], clock: Clock) -> None:
        self._endpoint = _endpoint(env, "HF_ENDPOINT", HF_ENDPOINT)
        token = _token(env, "HF_TOKEN")
        self._has_token = bool(token) and _may_send_secrets(self._endpoint)
        self.client = HttpClient({"Authorization": f"Bearer {token}"} if self._has_token else {}, clock)

    def listing(self, source: Source) -> Listing:
        url = f"{self._endpoint}/api/models/{source.what}/revision/{quote(source.revision, safe='')}?blobs=true"
        model = _convert(self.client.get_json(url), _HfModel, source)
        licences = [tag.removeprefix("license:") for tag in model.tags if tag.startswith("license:")]
        return Listing(
            commit=model.sha,
            files=tuple(_safe(_hf_file(f), source) for f in model.siblings),
            licence=licences[0] if licences else None,
        )

    def url(self, source: Source, commit: str | None, path: str) -> str:
        return f"{self._endpoint}/{source.what}/resolve/{quote(commit or source.revision, safe='')}/{quote(path)}"

    def refusal(self, source: Source, error: StatusError) -> ModelError:
        page = f"{self._endpoint}/{source.what}"
        if error.code == "GatedRepo" or (error.status == 403 and error.code is None):
            if self._has_token:
                return ModelError(
                    f"{source.what} is gated, and the account of HF_TOKEN has no access to it",
                    hint=f"accept the licence at {page} with that account, and check that the token may read gated repositories",
                )
            return ModelError(
                f"{source.what} is gated: its owner asks you to accept a licence first",
                hint=f"accept it at {page}, then set HF_TOKEN to a token of that account",
            )
        if error.code == "RevisionNotFound":
            return ModelError(f"{source.what} has no revision {source.revision!r}", hint=f"see {page}/commits/main")
        if error.code == "EntryNotFound":
            return ModelError(
                f"{source.what}@{source.revision} has no file {source.file!r}", hint=f"see {page}/tree/{source.revision}"
            )
        if error.status in (401, 404) or error.code == "RepoNotFound":
            return ModelError(
                f"there is no repository {source.what} that can be read (HTTP {error.status})",
                hint=f"check the name at {page}; for a private repository set HF_TOKEN",
            )
        return ModelError(f"{urlsplit(page).hostname} answered HTTP {error.status} for {source.text}", hint="try again later")


def _hf_file(file: _Sibling) -> RemoteFile:
    if file.lfs is not None:
        return RemoteFile(path=file.rfilename, size_b=file.lfs.size, digest=f"sha256:{file.lfs.sha256.lower()}")
    return RemoteFile(path=file.rfilename, size_b=file.size, digest=f"git:{file.blob_id.lower()}" if file.blob_id else None)


class _MsFile(msgspec.Struct):
    path: str = msgspec.field(name="Path")
    size: int | None = msgspec.field(default=None, name="Size")
    sha256: str | None = msgspec.field(default=None, name="Sha256")
    type: str = msgspec.field(default="blob", name="Type")


class _MsData(msgspec.Struct):
    files: list[_MsFile] = msgspec.field(name="Files")


class _MsAnswer(msgspec.Struct):
    data: _MsData = msgspec.field(name="Data")


class ModelScope:
    """ModelScope, or another address of it in `MODELSCOPE_ENDPOINT`. Private repositories need `MODELSCOPE_API_TOKEN`."""

    def __init__(self, env: Mapping[str, str], clock: Clock) -> None:
        self._endpoint = _endpoint(env, "MODELSCOPE_ENDPOINT", MODELSCOPE_ENDPOINT)
        token = _token(env, "MODELSCOPE_API_TOKEN")
        self._has_token = bool(token) and _may_send_secrets(self._endpoint)
        secret = {"Authorization": f"Bearer {token}", "Cookie": f"m_session_id={token}"} if self._has_token else {}
        self.client = HttpClient(secret, clock)

    def listing(self, source: Source) -> Listing:
        query = urlencode({"Revision": source.revision, "Recursive": "true"})
        answer = self.client.get_json(f"{self._endpoint}/api/v1/models/{source.what}/repo/files?{query}")
        files = _convert(answer, _MsAnswer, source).data.files
        return Listing(commit=None, files=tuple(_safe(_ms_file(f), source) for f in files if f.type != "tree"))

    def url(self, source: Source, commit: str | None, path: str) -> str:
        query = urlencode({"Revision": commit or source.revision, "FilePath": path})
        return f"{self._endpoint}/api/v1/models/{source.what}/repo?{query}"

    def refusal(self, source: Source, error: StatusError) -> ModelError:
        page = f"{self._endpoint}/models/{source.what}"
        if error.status in (401, 403):
            step = (
                "check that the account of MODELSCOPE_API_TOKEN has access"
                if self._has_token
                else "then set MODELSCOPE_API_TOKEN"
            )
            return ModelError(
                f"{source.what} is private or gated (HTTP {error.status})", hint=f"ask for access at {page}; {step}"
            )
        if error.status == 404:
            return ModelError(
                f"there is no {source.what} at revision {source.revision!r}", hint=f"see {page} (its branch is often `master`)"
            )
        return ModelError(f"{urlsplit(page).hostname} answered HTTP {error.status} for {source.text}", hint="try again later")


def _ms_file(file: _MsFile) -> RemoteFile:
    return RemoteFile(path=file.path, size_b=file.size, digest=f"sha256:{file.sha256.lower()}" if file.sha256 else None)


def _endpoint(env: Mapping[str, str], name: str, default: str) -> str:
    """The address of a hub. Raises: UsageError, which does not repeat a value that may hold a password."""
    text = (env.get(name) or default).strip().rstrip("/")
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        good = False
    if not good or not (text.isascii() and text.isprintable()) or " " in text:
        raise UsageError(
            f"{name} is not the http(s) address of a hub", hint=f"write it like {default}, without user and password"
        )
    return text


def _token(env: Mapping[str, str], name: str) -> str:
    """A token, empty where there is none. Raises: UsageError, which does not repeat it, if it can't be one."""
    text = env.get(name, "").strip()
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise UsageError(
            f"{name} holds characters that no token has", hint="set it again, without quotes, blanks and line breaks"
        )
    return text


def _may_send_secrets(endpoint: str) -> bool:
    """Tokens go over TLS, or stay on this machine."""
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "localhost", "::1")


def _convert(answer: Any, kind: type[Any], source: Source) -> Any:
    try:
        return msgspec.convert(answer, type=kind)
    except msgspec.ValidationError as error:
        raise ModelError(
            f"the list of files of {source.text} is not as expected: {error}", hint="check HF_ENDPOINT, or update bench"
        ) from error


def _safe(file: RemoteFile, source: Source) -> RemoteFile:
    """Raises: ModelError for a name that would leave its folder: no honest repository has one."""
    if not is_safe_member(file.path):
        raise ModelError(f"{source.text} lists a file with the unsafe name {file.path!r}", hint="don't use this repository")
    return file
