"""What the server takes, and how long it waits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds that keep memory and waiting finite, whatever is sent."""

    body_bytes: int = 16 * 2**20
    files: int = 64  # in one request
    pixels: int = 2**24  # of one picture, told by its header before anything is decoded
    side: int = 2**14
    score_numbers: int = 2**20  # in all score maps of one answer
    requests: int = 128  # being received, decoded or waited for
    waiting_images: int = 512
    waiting_attacks: int = 4
    attack_steps: int = 100
    attack_shapes: int = 16  # of a patch: finding where it can lie takes time with each
    body_seconds: float = 30.0  # from the first byte of a request to its last
    answer_seconds: float = 60.0
    retry_seconds: int = 1  # what Retry-After says
