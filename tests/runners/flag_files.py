"""The samples in `flags/` as real argument parsers. Standard library only: scripted engines use them as programs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

FLAGS = Path(__file__).with_name("flags")


def document(name: str) -> dict[str, Any]:
    """The sample called `name`, such as `vllm-0.32.0`."""
    found = json.loads((FLAGS / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def parser_of(found: dict[str, Any], *, positionals: bool = True) -> argparse.ArgumentParser:
    """An argparse parser with exactly these options; unknown ones end the program, as in the engine."""
    parser = argparse.ArgumentParser(prog=found["engine"], allow_abbrev=False, add_help=False, conflict_handler="resolve")
    for option in found["options"]:
        if "positional" in option:
            if positionals:
                parser.add_argument(option["positional"], nargs=option["nargs"])
        elif option["nargs"] == 0:
            parser.add_argument(*option["flags"], action="store_true")
        else:
            parser.add_argument(*option["flags"], nargs=option["nargs"], choices=option["choices"])
    return parser
