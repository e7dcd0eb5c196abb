"""Write the JSON Schema of run records that the package ships: run it after a change of records/types.py."""

from __future__ import annotations

import json
from pathlib import Path

from harness.records.record_files import schema

TARGET = Path(__file__).resolve().parent.parent / "harness" / "records" / "run-record.schema.json"

if __name__ == "__main__":
    TARGET.write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf-8")
