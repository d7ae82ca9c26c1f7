"""Do the scores of this program, on this machine, keep what the proofs assume? Bit for bit."""

from bagcert.deploy.audit.audit import Audit, audit
from bagcert.deploy.audit.programs import Program

__all__ = ["Audit", "Program", "audit"]
