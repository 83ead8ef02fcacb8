"""Write docs/cli-json.md and docs/cli-json.schema.json again, after a change of ``sparklog.cli.output.documents``."""

from __future__ import annotations

from pathlib import Path

from sparklog.cli.output.json_reference import render_document, render_schema

DOCS = Path(__file__).resolve().parent.parent / "docs"

if __name__ == "__main__":
    (DOCS / "cli-json.md").write_text(render_document(), encoding="utf-8")
    (DOCS / "cli-json.schema.json").write_text(render_schema(), encoding="utf-8")
