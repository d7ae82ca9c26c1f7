"""Change the rules and the threats in every small way, and see that some test fails each time: `make mutants`.

    python -m tests.mutation.run                (as many processes as there are cores)
    python -m tests.mutation.run --since REV    (just the mutants that REV did not have)
    python -m tests.mutation.run --resume       (run what `mutants/` does not know as killed: after a stop)
    python -m tests.mutation.run --report       (run nothing: what `mutants/` holds so far)
    python -m tests.mutation.run --list         (run nothing: check the list of equivalent mutants)

`--plan` only writes to `mutants/` what there is to run, and `--planned` runs that, be it on another machine: it needs
pytest, hypothesis and torch, but not mutmut. Mutants that change no behavior are listed in `equivalent.md` with the
reason; they are not run. Exits with 1 when any other mutant survives or was not run, or when an entry of the list is no
mutant.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections import Counter
from pathlib import Path

from tests.mutation.covering import Covering, record
from tests.mutation.equivalent import Key, read_list
from tests.mutation.forked import BROKEN, QUIET, Change, exit_codes
from tests.mutation.mutant import Mutant, read_plan, write_plan

PLAN, RESULTS = Path("mutants/plan.json.gz"), Path("mutants/results.jsonl")
NO_TESTS = 5  # pytest's exit code
COPY = "needs a copy"  # the status of a mutant of a function that was not decided without one
SETTINGS = {
    "OMP_NUM_THREADS": "1",  # torch's threads cost more than they bring on tiny tensors
    "BAGCERT_EXAMPLES": "10",
    "PYTHONHASHSEED": "0",
    "CUDA_VISIBLE_DEVICES": "",  # which no fork could share
}


def main() -> int:
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        command = [sys.executable, "-m", "tests.mutation.run", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **SETTINGS})
    arguments, known = parse(), read_list()
    if arguments.list:
        return check_list(known)
    if not (arguments.planned or arguments.report):
        plan(known, arguments.since)
    if arguments.plan:
        return 0
    if not (arguments.resume or arguments.report):
        RESULTS.unlink(missing_ok=True)
    mutants = read_plan(PLAN)
    if not arguments.report:
        run(mutants, arguments.children, arguments.limit)
    return report(mutants)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Change the rules and the threats; some test must fail each time.")
    parser.add_argument("--children", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for one mutant")
    parser.add_argument("--since", metavar="REV", help="first the mutants that this revision did not have")
    parser.add_argument("--resume", action="store_true", help="run what is not known to be killed")
    parser.add_argument("--planned", action="store_true", help="run what is planned already")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--plan", action="store_true", help="run nothing: write what there is to run")
    way.add_argument("--report", action="store_true", help="run nothing: what is known so far")
    way.add_argument("--list", action="store_true", help="run nothing: check the list of equivalent mutants")
    return parser.parse_args()


def check_list(known: set[Key]) -> int:
    from tests.mutation.mutants import all_mutants

    made = {mutant.key for mutant in all_mutants()}
    for place, change in sorted(known - made):
        print(f"listed, but no mutant: {place}: `{change}`")
    print(f"{len(made)} mutants, {len(known)} listed as equivalent, {len(known - made)} of these unknown")
    return 1 if known - made else 0


def plan(known: set[Key], since: str | None) -> None:
    """Write every mutant that is not known to change nothing, and which tests may notice it."""
    from tests.mutation.mutants import all_mutants, keys_of

    left_out = known | (keys_of(since) if since else set())
    write_plan(PLAN, [mutant for mutant in all_mutants() if mutant.key not in left_out])
    assert record() == 0, "the tests do not pass as it is"


def run(mutants: list[Mutant], children: int, limit: float) -> None:
    """Run every mutant, but for those that an earlier run killed."""
    process = multiprocessing.get_context("fork").Process(target=run_functions, args=(mutants, children, limit))
    process.start()  # this one stays without bagcert
    process.join()
    assert process.exitcode == 0, "the mutants of functions could not be run"
    statuses, covering = read_results(), Covering()
    copies = {
        Change(Path(mutant.path), mutant.text, tuple(covering.of(mutant))): mutant
        for mutant in mutants
        if statuses.get(mutant.digest, COPY) == COPY
    }
    for change, code in exit_codes(copies, children, limit):
        write_result(copies[change], status(code))


def run_functions(mutants: list[Mutant], children: int, limit: float) -> None:
    """Run the mutants of functions without a copy of the package each."""
    import pytest

    from tests.mutation.live import CANNOT, Live

    statuses, covering = read_results(), Covering()

    def ended(mutant: Mutant, code: int) -> None:
        again = code == CANNOT or (code == 0 and covering.is_run_on_import(mutant))
        write_result(mutant, COPY if again else status(code))

    todo = [mutant for mutant in mutants if mutant.function and statuses.get(mutant.digest) not in ("killed", COPY)]
    plugin = Live(todo, covering.of, ended, covering.leave_out, children, limit)
    sys.exit(pytest.main([*QUIET, "-s", *covering.files], plugins=[plugin]))


def write_result(mutant: Mutant, status: str) -> None:
    line = {"digest": mutant.digest, "status": status, "place": mutant.place, "change": mutant.change}
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{status}: {mutant.place}: `{mutant.change}`", flush=True)


def read_results() -> dict[str, str]:
    """What became of mutants, by digest."""
    lines = RESULTS.read_text("utf-8").splitlines() if RESULTS.exists() else []
    return {result["digest"]: result["status"] for result in map(json.loads, lines)}


def status(code: int) -> str:
    """No mutant loops for ever: one that was stopped from outside was not noticed; nor is one without a test."""
    return "survived" if code in (0, NO_TESTS) else "timeout" if code < 0 else "broken" if code == BROKEN else "killed"


def report(mutants: list[Mutant]) -> int:
    """Print what became of every mutant; the exit code."""
    statuses = read_results()
    results = [(mutant, statuses.get(mutant.digest, "not run")) for mutant in mutants]
    for mutant, status in results:
        if status != "killed":
            print(f"{status}: {mutant.place}: `{mutant.change}`")
    counts = Counter(status for _, status in results)
    print(f"{len(mutants)} mutants: {', '.join(f'{count} {status}' for status, count in counts.items())}")
    return 1 if counts.keys() - {"killed"} else 0


if __name__ == "__main__":
    raise SystemExit(main())
