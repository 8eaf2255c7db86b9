"""JSON Schema of the format, made from the models: editors complete and check with it.

It accepts every suite that `load` accepts and refuses unknown keys and wrong values; rules that join two keys are `load`'s alone.
"""

from __future__ import annotations

from typing import Any

from bench.suite.settings import EXPANDABLE, MAPPINGS, Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of a suite file (draft 2020-12)."""
    settings = Settings.model_json_schema()
    definitions = settings.pop("$defs", {})
    properties = {key: _property(key, prop) for key, prop in settings["properties"].items()}
    in_defaults = {key: prop for key, prop in properties.items() if key != "name"}
    return {
        "$schema": DIALECT,
        "title": "bench suite",
        "description": "What to measure: defaults and a list of cases; lists of values make a matrix.",
        "type": "object",
        "additionalProperties": False,
        "required": ["cases"],
        "properties": {
            "name": {
                "type": ["string", "null"],
                "pattern": r"\S",
                "description": "Name of the suite. Default: that of the file.",
            },
            "description": {"type": ["string", "null"], "pattern": r"\S", "description": "What it is for."},
            "defaults": {
                "type": ["object", "null"],
                "additionalProperties": False,
                "properties": in_defaults,
                "description": "Keys that every case begins with.",
            },
            "cases": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "object", "additionalProperties": False, "properties": properties},
                "description": "What is measured, in this order.",
            },
        },
        "$defs": definitions,
    }


def _property(key: str, prop: dict[str, Any]) -> dict[str, Any]:
    kinds = prop["anyOf"]
    if key in EXPANDABLE:
        kinds = [*kinds, _list_of(kinds)]
    elif key in MAPPINGS:
        kinds = [_entries(key, kind) if kind.get("type") == "object" else kind for kind in kinds]
    return {"description": prop["description"], "anyOf": kinds}


def _entries(key: str, mapping: dict[str, Any]) -> dict[str, Any]:
    one = [mapping["additionalProperties"], {"type": "null"}]
    return {**mapping, "additionalProperties": {"anyOf": [*one, _list_of(one)] if key == "engine_args" else one}}


def _list_of(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"anyOf": kinds}}
