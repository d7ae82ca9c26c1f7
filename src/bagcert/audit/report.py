"""What an audit found, as JSON and as a self-contained page."""

from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from bagcert.audit.audit import Audit
from bagcert.onnx.guard import GuardBand


def to_object(audit: Audit, info: dict[str, Any]) -> dict[str, Any]:
    """What `--json` prints; differences are in logits. `info` says what was audited."""
    return {
        **info,
        "program": str(audit.program),
        "passed": audit.passed,
        "checks": [
            {
                "name": check.name,
                "asks": check.asks,
                "passed": check.passed,
                "compared": check.found.compared,
                "moved": check.found.moved,
                "largest": check.found.largest,
                "problems": list(check.problems),
            }
            for check in audit.checks
        ],
        "guard_band": {"inside": option(audit.inside), "to_eager_torch": option(audit.to_torch)},
        "cure": audit.cure,
    }


def option(band: GuardBand) -> str:
    """The option of `bagcert export` that sets this guard band."""
    if band.slack:
        return f"--slack {band.slack}"
    return f"--uncertain {band.uncertain:g}" if band.uncertain else "none"


def to_page(found: dict[str, Any]) -> str:
    """The page of one audit, from its JSON."""
    template = resources.files("bagcert.audit").joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(found=found)
