"""A defense as one ONNX graph: network, rule and certificate.

May import: defense, errors, rules, scorers, tensors, threats.
"""

from importlib.util import find_spec

from bagcert.errors import UsageError

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def need_onnx() -> None:
    """Refuse in one line if a package is missing; modules that import them are imported after this call."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"ONNX needs {', '.join(PACKAGES)}, but lacks {', '.join(missing)}. Run pip install 'bagcert[all]'."
        )
