"""Do the scores of this program, on this machine, keep what the proofs assume? Bit for bit.

May import threats, rules, scorers, attacks, defense and onnx.
"""

from bagcert.audit.audit import Audit, audit

__all__ = ["Audit", "audit"]
