"""Runs the Python blocks of docs/arrow.md on a topic ``orders``, but for pandas', and prints what came of them.

arrow_document.py ROOT FOLDER
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import duckdb
import polars
from deltalake import DeltaTable

root, folder = sys.argv[1:]
text = (Path(__file__).resolve().parents[3] / "docs" / "arrow.md").read_text(encoding="utf-8")
blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
names: dict[str, object] = {"duckdb": duckdb, "polars": polars}
for block in blocks:
    if "to_pandas" not in block:
        code = block.replace("/data/log", root).replace("/data/tables", folder)
        exec(compile(code, "docs/arrow.md", "exec"), names)

orders = names["orders"]
counts = duckdb.sql(
    "SELECT partition, count(*), min(decode(value)) FROM orders GROUP BY partition ORDER BY 1"
).fetchall()
copied = names["copy"]("orders", root, f"{folder}/orders")  # type: ignore[operator]
rows = DeltaTable(f"{folder}/orders").count()
print(json.dumps({"polars": len(names["frame"]), "duckdb": counts, "copied": copied, "delta": rows}))  # type: ignore[arg-type]
