"""Findings for scripts."""

from __future__ import annotations

import json

from headrace.model import Findings


def findings_json(findings: Findings, *, language: str = "en") -> str:
    """Return one JSON document of schema `headrace/findings/1`."""
    return json.dumps(findings.as_json(language), ensure_ascii=False, indent=2)
