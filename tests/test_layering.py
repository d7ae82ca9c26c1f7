"""Imports point one way: image, scores, rule, certificate, rows; each stage knows only what comes before it."""

import ast
from pathlib import Path

import bagcert

PACKAGE = Path(bagcert.__file__).parent

# Each stage may import itself and the stages named here.
BASE = {"errors", "shapes", "files", "config", "program"}
MAY_IMPORT = {
    "errors": set(),
    "shapes": set(),
    "program": {"errors"},
    "distributed": set(),
    "files": {"errors"},
    "config": {"errors"},
    "data": BASE,
    "threats": BASE,
    "rules": BASE | {"threats"},
    "certify": BASE | {"threats", "rules"},
    "scorers": BASE | {"threats"},
    "attacks": BASE | {"threats", "rules", "scorers"},  # a defense hands itself over; they know it by what it offers
    "defense": BASE | {"threats", "rules", "scorers", "attacks"},
    "training": BASE | {"distributed", "threats", "rules", "scorers", "defense", "data"},
    "rows": BASE | {"distributed", "threats", "rules", "scorers", "attacks", "defense", "data"},
    "report": BASE | {"threats", "rules", "scorers", "attacks", "defense", "data", "rows"},
    "onnx": BASE | {"threats", "rules", "scorers", "defense"},
    "audit": BASE | {"threats", "rules", "scorers", "attacks", "defense", "onnx"},
    "server": BASE | {"threats", "rules", "scorers", "attacks", "defense", "onnx", "audit"},
}


def stages_imported(path: Path) -> set[str]:
    """The parts of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module or ""]
        found |= {name.split(".")[1] for name in names if name.startswith("bagcert.")}
        assert "bagcert" not in names, f"{path}: import the stage, not the package"
    return found


def test_every_file_imports_only_earlier_stages() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name not in ("__main__.py",)]
    assert len(files) > 40
    for path in files:
        stage = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if stage in ("cli", "__init__"):
            continue  # the outside: they may see everything
        extra = stages_imported(path) - MAY_IMPORT[stage] - {stage}
        assert not extra, f"{path} imports {extra}"
