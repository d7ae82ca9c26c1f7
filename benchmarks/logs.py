"""What a run logged while it trained."""

import json
from pathlib import Path
from typing import Any


def read_log(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def steady_mean(log: list[dict[str, Any]], key: str) -> float:
    """The mean of a number that every step has, without the first line of steps, which holds the compilation."""
    values = [line[key] for line in log if "loss" in line][1:]
    return float(sum(values) / len(values)) if values else 0.0
