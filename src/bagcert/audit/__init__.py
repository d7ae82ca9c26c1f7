"""The audit: checks, bit for bit, that a program on this machine computes scores as the proofs assume.

May import: attacks, defense, errors, onnx, program, scorers, tensors, threats.
"""

from bagcert.audit.audit import Audit, audit

__all__ = ["Audit", "audit"]
