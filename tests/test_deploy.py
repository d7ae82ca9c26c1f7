"""The limits and loads in docs/deploy.md are those of the server and of the stored benchmark."""

import json
from pathlib import Path

from bagcert.cli.serve import CONNECTIONS
from bagcert.server.limits import Limits

ROOT = Path(__file__).parents[1]
CELLS = {
    tuple(cell.strip() for cell in line.strip("| ").split(" | ")[:2])
    for line in (ROOT / "docs/deploy.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|")
}


def test_limits_are_those_of_the_server() -> None:
    limits = Limits()
    assert {
        ("size of a request", f"{limits.body_bytes // 2**20} MiB"),
        ("files per request", f"{limits.files}"),
        ("pixels per picture, read from its header before decoding", f"2**{limits.pixels.bit_length() - 1}"),
        ("longer side of a picture", f"2**{limits.side.bit_length() - 1}"),
        ("numbers in all score maps of an answer (`scores=true`)", f"2**{limits.score_numbers.bit_length() - 1}"),
        ("steps of an attack", f"{limits.attack_steps}"),
        ("shapes of the patch of an attack", f"{limits.attack_shapes}"),
        ("requests inside", f"{limits.requests}"),
        ("images waiting", f"{limits.waiting_images}"),
        ("attacks waiting", f"{limits.waiting_attacks}"),
        ("time for a request to arrive", f"{limits.body_seconds:.0f} s"),
        ("time for everything else, decoding included", f"{limits.answer_seconds:.0f} s"),
        ("open connections", f"{CONNECTIONS:,}"),
    } <= CELLS
    assert limits.pixels.bit_count() == limits.side.bit_count() == limits.score_numbers.bit_count() == 1


def test_the_load_is_that_of_the_stored_benchmark() -> None:
    stored = json.loads((ROOT / "benchmarks/results/serving.json").read_text(encoding="utf-8"))
    found = stored["cifar10-small, threads=1"]
    right, asked = found["requests_answered_right"], found["requests_answered_right"] + found["answered_wrongly"]
    assert {
        ("answers equal to those of `Defense.certify`", f"{right:,} of {asked:,}"),
        ("requests lost", f"{found['lost']}"),
        ("speed relative to the network alone, by the clock", f"{100 * found['share_of_raw']:.0f} %"),
        ("speed relative to the network alone, by processor time", f"{100 * found['share_by_processor_time']:.0f} %"),
    } <= CELLS
