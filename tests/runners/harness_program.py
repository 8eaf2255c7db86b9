"""A harness that the tests can kill: `python -m tests.runners.harness_program FOLDER [raise|fork]`.

Starts the scripted engine in FOLDER, writes FOLDER/ready once it answers, and waits (or fails).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench.runners.process import EngineProcess
from tests.runners.scripted import listening, start_scripted


def main() -> None:
    """Start, tell, wait."""
    folder = Path(sys.argv[1])
    how = sys.argv[2:]
    process: EngineProcess = start_scripted(folder, grace_s=0.2)
    try:
        listening(process, folder)
        if how == ["fork"] and os.fork() == 0:  # a child that holds our end of the warden's pipe
            time.sleep(60)
        (folder / "ready").write_text("ready")
        if how == ["raise"]:
            raise RuntimeError("the harness fails")
        while True:
            time.sleep(60)
    finally:
        process.stop(0.2)


if __name__ == "__main__":
    main()
