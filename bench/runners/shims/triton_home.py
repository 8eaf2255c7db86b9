"""Tells which Triton Inference Server is there: run by a Python of its host or image, with the question as JSON.

    python3 triton_home.py '{"home": "/opt/tritonserver"}'

Standard library only, Python 3.9 and newer. The answer is one line of JSON: where its program and its OpenAI frontend are (null
where they are not), its version and the release of NVIDIA's image, and the backends that it has.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path


def text_of(path: Path) -> str | None:
    """The first line of a file, None where it can't be read."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip() or None
    except OSError:
        return None


def main() -> None:
    """Answer the question in the first argument."""
    home = Path(json.loads(sys.argv[1])["home"])
    program = home / "bin" / "tritonserver"
    frontend = home / "python" / "openai" / "openai_frontend" / "main.py"
    backends = home / "backends"
    found = {
        "program": str(program) if os.access(program, os.X_OK) else shutil.which("tritonserver"),
        "frontend": str(frontend) if frontend.is_file() else None,
        "has_bindings": find_spec("tritonserver") is not None,
        "version": text_of(home / "TRITON_VERSION") or os.environ.get("TRITON_SERVER_VERSION"),
        "image": os.environ.get("NVIDIA_TRITON_SERVER_VERSION"),
        "backends": sorted(one.name for one in backends.iterdir() if one.is_dir()) if backends.is_dir() else [],
    }
    os.write(1, ("BENCH_ANSWER " + json.dumps(found) + "\n").encode())


main()
