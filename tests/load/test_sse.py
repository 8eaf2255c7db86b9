from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.load.sse import last_complete, split_events


def payloads(body: bytes) -> list[bytes]:
    return split_events(body)[0]


def test_plain_events_end_behind_their_blank_line() -> None:
    found, ends = split_events(b"data: a\n\ndata: bcd\n\n")
    assert found == [b"a", b"bcd"]
    assert ends.tolist() == [9, 20]


def test_comments_names_and_ids_are_not_data() -> None:
    assert payloads(b": ping\n\nevent: message\nid: 7\nretry: 10\ndata: a\n\n: pong\ndata: b\n\n") == [b"a", b"b"]


def test_several_data_lines_are_joined_by_line_feeds() -> None:
    assert payloads(b"data: {\ndata: }\n\n") == [b"{\n}"]


def test_data_without_space_and_with_two() -> None:
    assert payloads(b"data:a\n\ndata:  b\n\n") == [b"a", b" b"]


def test_last_event_without_blank_line_counts() -> None:
    found, ends = split_events(b"data: a\n\ndata: [DONE]")
    assert found == [b"a", b"[DONE]"]
    assert ends.tolist() == [9, 21]
    assert payloads(b"data: a\n\ndata: [DONE]\n") == [b"a", b"[DONE]"]


def test_byte_order_mark_and_extra_blank_lines() -> None:
    assert payloads(b"\xef\xbb\xbfdata: a\n\n\n\ndata: b\n\n\n") == [b"a", b"b"]


def test_error_lines_of_older_llama_cpp() -> None:
    assert payloads(b'error: {"message":"full"}\n\n') == [b'{"error":{"message":"full"}}']


def test_empty_body() -> None:
    found, ends = split_events(b"")
    assert found == []
    assert len(ends) == 0


TEXTS = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=8)


@given(TEXTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sampled_from([b"data: ", b"data:"]))
def test_any_line_end_gives_the_same_events(texts: list[str], line_end: bytes, name: bytes) -> None:
    sent = [text.encode() for text in texts if not (name == b"data:" and text.startswith(" "))]
    body = b"".join(name + text + line_end + line_end for text in sent)
    found, ends = split_events(body)
    assert found == sent
    pieces = [len(name + text) + 2 * len(line_end) for text in sent]
    assert ends.tolist() == [sum(pieces[: i + 1]) for i in range(len(pieces))]


@given(st.binary(max_size=200))
def test_no_bytes_can_break_it(body: bytes) -> None:
    found, ends = split_events(body)
    assert len(found) == len(ends)
    assert all(0 < end <= len(body) for end in ends)
    assert sorted(ends) == ends.tolist()


@given(st.integers(0, 20))
def test_last_complete_is_behind_a_blank_line(cut: int) -> None:
    body = b"data: a\n\ndata: b\r\n\r\n"
    expected = 20 if cut >= 20 else 9 if cut >= 9 else 0
    assert last_complete(body[:cut]) == expected
