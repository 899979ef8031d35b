"""The page: markup, style, scripts and data in one file. A policy in it forbids loading or running anything else."""

from __future__ import annotations

import base64
import hashlib
import html
from importlib import resources
from string import Template

from areabench.views.report.records import ReportPage, to_json

SCRIPTS = (
    "basics.js", "chart.js", "cursor.js", "panels.js", "strips.js", "target.js", "clients.js", "picture.js",
    "timeline.js", "table.js", "run.js", "page.js",
)  # fmt: skip
STYLES = ("page.css",)


def page_text(report: ReportPage) -> str:
    """The whole file."""
    scripts, styles = [_asset(name) for name in SCRIPTS], [_asset(name) for name in STYLES]
    return Template(_asset("page.html")).substitute(
        policy=html.escape(_policy(scripts, styles)),
        title=html.escape(report.title.encode(errors="replace").decode()),  # an argument may not be valid text
        version=html.escape(report.version),
        styles="\n".join(f"<style>{text}</style>" for text in styles),
        data=to_json(report),
        scripts="\n".join(f"<script>{text}</script>" for text in scripts),
    )


def _asset(name: str) -> str:
    return resources.files("areabench.views.report").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(scripts: list[str], styles: list[str]) -> str:
    """A Content-Security-Policy: exactly these scripts and styles, and nothing from elsewhere."""
    allowed = f"script-src {_hashes(scripts)}; style-src {_hashes(styles)}"
    return f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action 'none'"


def _hashes(texts: list[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{digest}'" for digest in digests)
