"""A defense as one ONNX graph: network, rule and certificate.

May import: config, defense, errors, rules, scorers, tensors, threats.
"""

from bagcert.errors import need_packages

PACKAGES = {name: name for name in ("onnx", "onnxscript", "onnxruntime")}


def need_onnx() -> None:
    """Refuse in one line if a package is missing; the modules of this folder import them."""
    need_packages("ONNX", PACKAGES)
