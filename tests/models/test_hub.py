"""Pulls from a hub: what is fetched, how it resumes, and what each failure says."""

from __future__ import annotations

import errno
import hashlib
import os
from email.message import Message
from io import BytesIO, FileIO
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest

from bench.clock import FakeClock
from bench.errors import ModelError, UsageError
from bench.models import http
from bench.models.hub import HuggingFace
from tests.models.conftest import MakeStore, no_progress
from tests.models.hub_server import COMMIT, Hub, Script, serve
from tests.models.samples import combined_sha256, gguf_bytes, repository, safetensors_bytes

SOURCE = "hf:org/tiny@main"
BIG = "model-00001-of-00002.safetensors"


def _part(tmp_path: Path, name: str = BIG) -> Path:
    [found] = (tmp_path / "cache" / "partial").glob(f"*/files/{name}.part")
    return found


def _nothing_finished(tmp_path: Path) -> bool:
    return not list((tmp_path / "cache").glob("models/*"))


def test_fetches_weights_configuration_and_tokenizer_only(hub: Hub, make_store: MakeStore) -> None:
    model = make_store().fetch("tiny", SOURCE, no_progress)
    folder = Path(model.path)
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        BIG,
        "model-00002-of-00002.safetensors",
        "tokenizer.json",
        "tokenizer.model",
    ]
    files = repository()
    assert (folder / BIG).read_bytes() == files[BIG]
    assert model.format == "safetensors"
    assert model.size_b == len(files[BIG]) + len(files["model-00002-of-00002.safetensors"])
    assert model.weights_sha256 == combined_sha256(files[BIG], files["model-00002-of-00002.safetensors"])
    assert model.licence == "mit"
    assert (model.shape.layers, model.shape.kv_heads, model.shape.head_dim, model.shape.parameters) == (2, 2, 16, 64 * 100 + 64)
    assert all(f"/resolve/{COMMIT}/" in s.path for s in hub.script.file_requests()), (
        "files come from the commit, not from the branch"
    )


def test_progress_counts_the_whole_snapshot(make_store: MakeStore) -> None:
    seen: list[tuple[str, int, int | None]] = []
    make_store().fetch("tiny", SOURCE, lambda what, done, total: seen.append((what, done, total)))
    total = seen[0][2]
    assert total is not None
    assert total > 500_000
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("tiny", total, total)


def test_a_cached_model_needs_no_network_and_no_second_hash(hub: Hub, make_store: MakeStore, tmp_path: Path) -> None:
    first = make_store().fetch("tiny", SOURCE, no_progress)
    entry = next((tmp_path / "cache" / "models").glob("*/entry.json"))
    written_ns = entry.stat().st_mtime_ns
    asked = len(hub.script.seen)
    again = make_store(BENCH_OFFLINE="1").fetch("tiny", SOURCE, no_progress)
    assert again == first
    assert len(hub.script.seen) == asked
    assert entry.stat().st_mtime_ns == written_ns


@pytest.mark.parametrize("variable", ["BENCH_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_without_a_cached_copy(hub: Hub, make_store: MakeStore, variable: str) -> None:
    with pytest.raises(ModelError, match=rf"not in the cache .* {variable}"):
        make_store(**{variable: "1"}).fetch("tiny", SOURCE, no_progress)
    assert hub.script.seen == []


def test_one_file_of_a_repository(hub: Hub, make_store: MakeStore) -> None:
    data = gguf_bytes()
    hub.script.files = {"a-Q4.gguf": data, "a-Q8.gguf": gguf_bytes(payload_b=999), "sub/README.md": b""}
    model = make_store().fetch("a", "hf:org/tiny@main#a-Q4.gguf", no_progress)
    assert Path(model.path).read_bytes() == data
    assert model.format == "gguf"
    assert model.weights_sha256 == hashlib.sha256(data).hexdigest()
    assert model.shape.vocab == 100
    assert len(hub.script.file_requests()) == 1


def test_several_models_and_none_named(hub: Hub, make_store: MakeStore) -> None:
    hub.script.files = {"a-Q4.gguf": b"", "a-Q8.gguf": b""}
    with pytest.raises(ModelError, match="holds 2 models") as caught:
        make_store().fetch("a", SOURCE, no_progress)
    assert caught.value.hint is not None
    assert "hf:org/tiny@main#a-Q4.gguf" in caught.value.hint


def test_modelscope(hub: Hub, make_store: MakeStore) -> None:
    model = make_store(MODELSCOPE_API_TOKEN="s3cret").fetch("tiny", "modelscope:org/tiny@master", no_progress)
    assert model.shape.parameters == 64 * 100 + 64
    assert {s.headers.get("authorization") for s in hub.script.seen} == {"Bearer s3cret"}
    assert all("Revision=master" in s.path for s in hub.script.seen)


# --- resume -----------------------------------------------------------------------------------------------------------


def test_a_cut_body_is_resumed_in_the_same_pull(hub: Hub, make_store: MakeStore) -> None:
    hub.script.cut_after_b = [1 << 30, 100_000]  # config.json whole, then the first shard breaks
    model = make_store().fetch("tiny", SOURCE, no_progress)
    assert (Path(model.path) / BIG).read_bytes() == repository()[BIG]
    shard = [s for s in hub.script.file_requests() if s.path.endswith(BIG)]
    assert [s.headers.get("range") for s in shard] == [None, "bytes=100000-"]
    assert shard[1].headers["if-range"] == f'"{hashlib.md5(repository()[BIG]).hexdigest()}"'


def _break_for_good(hub: Hub, make_store: MakeStore, tmp_path: Path) -> int:
    """A pull that gives up in the middle of the first shard; returns the bytes it leaves."""
    hub.script.statuses = [(200, None), (200, None), *[(503, None)] * 4]
    hub.script.cut_after_b = [1 << 30, 120_000]
    with pytest.raises(ModelError, match=r"broke off at 117\.2 KiB of .*: HTTP 503") as caught:
        make_store().fetch("tiny", SOURCE, no_progress)
    assert caught.value.hint is not None
    assert "goes on from there" in caught.value.hint
    assert _nothing_finished(tmp_path)
    assert hub.script.statuses == []
    hub.script.seen.clear()
    return _part(tmp_path).stat().st_size


def test_the_next_pull_goes_on(hub: Hub, make_store: MakeStore, tmp_path: Path) -> None:
    left_b = _break_for_good(hub, make_store, tmp_path)
    model = make_store().fetch("tiny", SOURCE, no_progress)
    assert (Path(model.path) / BIG).read_bytes() == repository()[BIG]
    requests = hub.script.file_requests()
    assert not any(s.path.endswith("config.json") for s in requests), "finished files are not fetched again"
    assert requests[0].headers["range"] == f"bytes={left_b}-"
    assert not list((tmp_path / "cache" / "partial").iterdir())
    assert not list(Path(model.path).glob("*.part*"))


def test_a_server_that_ignores_ranges(hub: Hub, make_store: MakeStore, tmp_path: Path) -> None:
    _break_for_good(hub, make_store, tmp_path)
    hub.script.ignore_range = True
    model = make_store().fetch("tiny", SOURCE, no_progress)
    assert (Path(model.path) / BIG).read_bytes() == repository()[BIG]


def test_a_file_that_changed_meanwhile_starts_again(hub: Hub, make_store: MakeStore, tmp_path: Path) -> None:
    _break_for_good(hub, make_store, tmp_path)
    new = safetensors_bytes({"a": (3, 3)}, payload_b=310_000)
    hub.script.files[BIG] = new
    model = make_store().fetch("tiny", SOURCE, no_progress)
    assert (Path(model.path) / BIG).read_bytes() == new
    assert "range" not in hub.script.file_requests()[0].headers


@pytest.mark.parametrize(("etag", "resumes"), [('W/"weak"', False), ("", False), ('"strong"', True)])
def test_without_a_hash_only_a_strong_etag_lets_a_part_be_continued(
    hub: Hub, make_store: MakeStore, tmp_path: Path, etag: str, resumes: bool
) -> None:
    hub.script.no_digest, hub.script.etag = True, etag
    _break_for_good(hub, make_store, tmp_path)
    model = make_store().fetch("tiny", SOURCE, no_progress)
    assert ("range" in hub.script.file_requests()[0].headers) is resumes
    assert (Path(model.path) / BIG).read_bytes() == repository()[BIG]


def test_a_part_longer_than_the_file_is_dropped(hub: Hub, make_store: MakeStore, tmp_path: Path) -> None:
    _break_for_good(hub, make_store, tmp_path)
    _part(tmp_path).write_bytes(b"x" * 400_000)
    model = make_store().fetch("tiny", SOURCE, no_progress)
    assert (Path(model.path) / BIG).read_bytes() == repository()[BIG]


def test_a_part_with_a_wrong_beginning_is_found_out_and_removed(hub: Hub, make_store: MakeStore, tmp_path: Path) -> None:
    left_b = _break_for_good(hub, make_store, tmp_path)
    _part(tmp_path).write_bytes(b"x" * left_b)
    with pytest.raises(ModelError, match="wrong content"):
        make_store().fetch("tiny", SOURCE, no_progress)
    assert not list((tmp_path / "cache").rglob(f"{BIG}.part*"))
    model = make_store().fetch("tiny", SOURCE, no_progress)
    assert (Path(model.path) / BIG).read_bytes() == repository()[BIG]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [BIG, "config.json"], ids=["sha256", "git blob id"])
def test_wrong_content(hub: Hub, make_store: MakeStore, tmp_path: Path, name: str) -> None:
    real = repository()[name]
    hub.script.lie[name] = real[:-1] + bytes([real[-1] ^ 1])
    with pytest.raises(ModelError, match=r"wrong content: expected \w+, got \w+; it was removed") as caught:
        make_store().fetch("tiny", SOURCE, no_progress)
    assert name in str(caught.value)
    assert not list((tmp_path / "cache").rglob(f"{name}*"))
    assert _nothing_finished(tmp_path)


def test_another_size_than_announced(hub: Hub, make_store: MakeStore, tmp_path: Path) -> None:
    hub.script.lie["config.json"] = b"{}"
    with pytest.raises(ModelError, match=r"offers 2 bytes where the list of files says \d+"):
        make_store().fetch("tiny", SOURCE, no_progress)
    assert _nothing_finished(tmp_path)


def test_gated_without_a_token(hub: Hub, make_store: MakeStore) -> None:
    hub.script.statuses = [(401, "GatedRepo")]
    with pytest.raises(ModelError, match="org/tiny is gated") as caught:
        make_store().fetch("tiny", SOURCE, no_progress)
    assert caught.value.hint == f"accept it at {hub.url}/org/tiny, then set HF_TOKEN to a token of that account"


def test_gated_with_a_token_never_shows_the_token(hub: Hub, make_store: MakeStore, notes: list[str]) -> None:
    hub.script.statuses = [(403, "GatedRepo")]
    with pytest.raises(ModelError, match="account of HF_TOKEN has no access") as caught:
        make_store(HF_TOKEN="hf_s3cret").fetch("tiny", SOURCE, no_progress)
    assert hub.script.seen[0].headers["authorization"] == "Bearer hf_s3cret"
    shown = f"{caught.value} {caught.value.hint} {caught.value.__cause__!r} {notes}"
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "RepoNotFound", "no repository org/tiny"),
        (404, "RepoNotFound", "no repository org/tiny"),
        (404, "RevisionNotFound", "no revision 'main'"),
        (401, None, "no repository org/tiny that can be read"),
        (403, None, "gated"),
        (418, None, "answered HTTP 418"),
    ],
)
def test_refusals_of_hugging_face(hub: Hub, make_store: MakeStore, status: int, code: str | None, message: str) -> None:
    hub.script.listing_status = (status, code)
    with pytest.raises(ModelError, match=message) as caught:
        make_store().fetch("tiny", SOURCE, no_progress)
    assert caught.value.hint


@pytest.mark.parametrize(("status", "message"), [(403, "private or gated"), (404, "no org/tiny at revision"), (418, "HTTP 418")])
def test_refusals_of_modelscope(hub: Hub, make_store: MakeStore, status: int, message: str) -> None:
    hub.script.listing_status = (status, None)
    with pytest.raises(ModelError, match=message):
        make_store().fetch("tiny", "modelscope:org/tiny@master", no_progress)


def test_a_file_that_is_not_there(make_store: MakeStore) -> None:
    with pytest.raises(ModelError, match=r"no file 'nope\.safetensors'") as caught:
        make_store().fetch("tiny", f"{SOURCE}#nope.safetensors", no_progress)
    assert caught.value.hint is not None
    assert BIG in caught.value.hint


def test_no_network(make_store: MakeStore, tmp_path: Path) -> None:
    with serve(Script()) as gone:
        pass
    with pytest.raises(ModelError, match=r"can't reach 127\.0\.0\.1: Connection refused") as caught:
        make_store(HF_ENDPOINT=gone.url).fetch("tiny", SOURCE, no_progress)
    assert caught.value.hint is not None
    assert "HF_ENDPOINT" in caught.value.hint
    assert _nothing_finished(tmp_path)


def test_a_listing_that_keeps_failing(hub: Hub, make_store: MakeStore) -> None:
    hub.script.listing_status = (503, None)
    with pytest.raises(ModelError, match="HTTP 503"):
        make_store().fetch("tiny", SOURCE, no_progress)
    assert len(hub.script.seen) == 5


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b'{"siblings": 3}', b'[{"no": "model"}]'])
def test_an_endpoint_that_is_no_hub(hub: Hub, make_store: MakeStore, body: bytes) -> None:
    hub.script.listing_body = body
    with pytest.raises(ModelError, match=r"not JSON|not as expected"):
        make_store().fetch("tiny", SOURCE, no_progress)


@pytest.mark.parametrize("name", ["../evil.json", "/etc/evil.json", "a/../../evil.json", "a\\..\\evil.json"])
def test_a_listing_with_names_that_leave_the_folder(hub: Hub, make_store: MakeStore, tmp_path: Path, name: str) -> None:
    hub.script.files[name] = b"evil"
    with pytest.raises(ModelError, match="unsafe name"):
        make_store().fetch("tiny", SOURCE, no_progress)
    assert not list(tmp_path.rglob("*evil*"))


def test_too_little_space_is_said_before_anything_is_fetched(hub: Hub, make_store: MakeStore) -> None:
    with pytest.raises(ModelError, match=r"needs 48\d\.\d KiB and the disk of .* has 100\.0 KiB free"):
        make_store(free_b=100 << 10).fetch("tiny", SOURCE, no_progress)
    assert hub.script.file_requests() == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_while_writing(
    hub: Hub, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real = http._write_all

    def full(file: FileIO, block: bytes) -> None:
        if "model-" in str(file.name):
            real(file, block[:1000])
            raise OSError(code, os.strerror(code))
        real(file, block)

    monkeypatch.setattr(http, "_write_all", full)
    with pytest.raises(ModelError, match="the disk is full while writing") as caught:
        make_store().fetch("tiny", SOURCE, no_progress)
    assert caught.value.hint is not None
    assert "BENCH_CACHE" in caught.value.hint
    assert _nothing_finished(tmp_path)
    monkeypatch.undo()
    model = make_store().fetch("tiny", SOURCE, no_progress)
    assert (Path(model.path) / BIG).read_bytes() == repository()[BIG]
    shard = [s for s in hub.script.file_requests() if s.path.endswith(BIG)]
    assert shard[-1].headers["range"] == "bytes=1000-"


def test_a_cache_that_cannot_be_written(make_store: MakeStore, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="can't write") as caught:
        make_store().fetch("tiny", SOURCE, no_progress)
    assert caught.value.hint is not None
    assert "BENCH_CACHE" in caught.value.hint


# --- where credentials go ---------------------------------------------------------------------------------------------


def test_credentials_do_not_follow_a_redirect_to_another_site(hub: Hub, make_store: MakeStore) -> None:
    with serve(Script(files=repository())) as storage:
        hub.script.redirect_to = storage.url
        make_store(HF_TOKEN="hf_s3cret").fetch("tiny", SOURCE, no_progress)
        assert all(s.headers["authorization"] == "Bearer hf_s3cret" for s in hub.script.seen)
        assert storage.script.seen
        assert not any("authorization" in s.headers or "s3cret" in str(s) for s in storage.script.seen)


def test_resuming_works_through_a_redirect(hub: Hub, make_store: MakeStore) -> None:
    with serve(Script(files=repository(), cut_after_b=[1 << 30, 90_000])) as storage:
        hub.script.redirect_to = storage.url
        model = make_store().fetch("tiny", SOURCE, no_progress)
        assert (Path(model.path) / BIG).read_bytes() == repository()[BIG]
        assert "bytes=90000-" in [s.headers.get("range") for s in storage.script.seen]


@pytest.mark.parametrize(("scheme", "message"), [("file", "answered HTTP 307"), ("ftp", "redirects to ftp://, which is refused")])
def test_a_redirect_to_another_kind_of_address_is_refused(
    hub: Hub, make_store: MakeStore, tmp_path: Path, scheme: str, message: str
) -> None:
    hub.script.redirect_to, hub.script.redirect_api = f"{scheme}://{tmp_path}", True
    with pytest.raises(ModelError, match=message):
        make_store().fetch("tiny", SOURCE, no_progress)


def test_a_redirect_from_tls_to_plain_http_is_refused() -> None:
    request = Request("https://hub.example/x", headers={"Authorization": "Bearer hf_s3cret"})
    with pytest.raises(URLError, match="refused"):
        http._Redirects().redirect_request(request, BytesIO(), 302, "Found", Message(), "http://hub.example/x")


def test_a_token_is_not_sent_in_the_clear() -> None:
    for endpoint, sent in (("http://hub.example", False), ("https://hub.example", True), ("http://127.0.0.1:1", True)):
        client = HuggingFace({"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_s3cret"}, FakeClock()).client
        assert ("Authorization" in client._headers) is sent


@pytest.mark.parametrize(
    "endpoint",
    ["file:///etc", "hub.example", "https://", "https://me:s3cret@hub.example", "https://hub.example:port", "https://a b"],
)
def test_an_endpoint_that_is_no_address(make_store: MakeStore, endpoint: str) -> None:
    with pytest.raises(UsageError, match="HF_ENDPOINT is not the http") as caught:
        make_store(HF_ENDPOINT=endpoint).fetch("tiny", SOURCE, no_progress)
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("token", ["hf_s3cret\nX-Evil: 1", "hf_s3cret more", "hf_s3cret\u2026"])
@pytest.mark.parametrize(("variable", "source"), [("HF_TOKEN", SOURCE), ("MODELSCOPE_API_TOKEN", "modelscope:org/tiny@master")])
def test_a_token_that_is_none_is_not_repeated(hub: Hub, make_store: MakeStore, variable: str, source: str, token: str) -> None:
    with pytest.raises(UsageError, match=f"{variable} holds characters that no token has") as caught:
        make_store(**{variable: token}).fetch("tiny", source, no_progress)
    assert "s3cret" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__!r}"
    assert hub.script.seen == []
