"""How much the server accepts, and how long it waits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits that bound memory and waiting time, whatever is sent."""

    body_bytes: int = 16 * 2**20
    files: int = 64  # per request
    pixels: int = 2**24  # per picture, read from its header before anything is decoded
    side: int = 2**14
    score_numbers: int = 2**20  # in all score maps of one response
    requests: int = 128  # in flight: being received, decoded or answered
    waiting_images: int = 512
    waiting_attacks: int = 4
    attack_steps: int = 100
    attack_shapes: int = 16  # per patch: finding the placements of each shape takes time
    body_seconds: float = 30.0  # from the first byte of a request to its last
    answer_seconds: float = 60.0
    retry_seconds: int = 1  # what Retry-After says
