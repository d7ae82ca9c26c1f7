"""Do the scores of this program, on this machine, keep what the proofs assume? Bit for bit."""

from bagcert.audit.audit import Audit, audit
from bagcert.audit.programs import Program

__all__ = ["Audit", "Program", "audit"]
