from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import SuiteError
from bench.suite import available, expand, load, locate, lookup, shipped

GOOD = "description: mine\ncases:\n  - model: m\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suites").mkdir()
    return tmp_path


def test_quickstart_and_smoke_are_shipped_and_valid() -> None:
    assert {"quickstart", "smoke"} <= {info.name for info in shipped()}
    for info in shipped():
        suite = load(info.name)
        assert suite.name == info.name
        assert suite.description
        assert suite.warnings == ()
        assert all(case.suite == info.name for case in expand(suite))


def test_quickstart_measures_a_small_real_model() -> None:
    cases = load("quickstart").cases
    assert [case.load.batch_size for case in cases] == [1, 4]
    assert {(case.engine, case.model, case.precision) for case in cases} == {("llamacpp", "smollm2-135m-instruct", "q4_1")}
    assert {(case.input_tokens.mean, case.output_tokens.mean, case.exact_lengths) for case in cases} == {(32, 32, True)}
    assert {(case.duration_s, case.warmup_s, case.repeats) for case in cases} == {(15.0, 2.0, 3)}


def test_smoke_needs_no_model_and_has_a_closed_and_an_open_loop() -> None:
    cases = load("smoke").cases
    assert {case.engine for case in cases} == {"mock"}
    assert [case.load.batch_size for case in cases if case.load.kind == "closed"] == [1, 16]
    assert [case.load.arrivals for case in cases if case.load.kind == "open"] == ["poisson"]


def test_a_suite_of_this_folder_is_found_by_name_and_by_path(here: Path) -> None:
    (here / "suites" / "mine.yaml").write_text(GOOD)
    (here / "other.yml").write_text(GOOD)
    assert load("mine").path == str(Path("suites/mine.yaml"))
    assert load("suites/mine.yaml").name == "mine"
    assert load(str(here / "other.yml")).path == "other.yml"
    assert ("mine", "here") in [(info.name, info.origin) for info in available()]
    assert "mine" not in [info.name for info in shipped()]


def test_this_folder_wins_over_what_is_shipped(here: Path) -> None:
    assert load("smoke").description != "mine"
    (here / "suites" / "smoke.yaml").write_text(GOOD)
    assert load("smoke").description == "mine"
    assert [info.origin for info in available() if info.name == "smoke"] == ["here"]


def test_errors_from_a_shipped_suite_do_not_show_where_it_is_installed(here: Path) -> None:
    assert load("quickstart").path == "quickstart.yaml"
    assert str(here) not in load("quickstart").path


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("quikstart", "quikstart: there is no such suite: did you mean 'quickstart'?"),
        ("zzz", "zzz: there is no such suite: known suites: quickstart, smoke"),
        ("dir/quickstrt.yaml", "dir/quickstrt.yaml: there is no such file: did you mean 'quickstart'?"),
        ("smok.yaml", "smok.yaml: there is no such file: did you mean 'smoke'?"),
        ("", ": there is no such suite: known suites: "),
        ("x" * 5000, "there is no such suite"),
        ("a\0b", "there is no such suite"),
    ],
)
def test_a_missing_suite_names_the_nearest(here: Path, ref: str, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(ref)
    assert said in str(caught.value)
    assert caught.value.hint == "bench suites list"


def test_a_folder_is_refused_with_the_mend(here: Path) -> None:
    with pytest.raises(SuiteError, match="suites:1: is a folder, not a suite file") as caught:
        load("suites")
    assert caught.value.hint == "name a file in it: suites/NAME.yaml"


def test_an_unreadable_file_is_refused(here: Path) -> None:
    path = here / "suites" / "locked.yaml"
    path.write_text(GOOD)
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        with pytest.raises(SuiteError, match="can't be read: Permission denied"):
            load("locked")
    else:
        pytest.skip("this user may read everything")


def test_in_a_wheel_suites_stand_beside_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "bench" / "suite"
    (package / "shipped").mkdir(parents=True)
    (package / "shipped" / "only.yaml").write_text(GOOD)
    foreign = tmp_path / "site-packages" / "suites"
    foreign.mkdir()
    (foreign / "foreign.yaml").write_text(GOOD)
    monkeypatch.setattr(lookup, "__file__", str(package / "lookup.py"))
    assert [info.name for info in shipped()] == ["only"]
    assert locate("only") == package / "shipped" / "only.yaml"
