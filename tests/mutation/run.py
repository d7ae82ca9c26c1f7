"""Change the rules and the threats in every small way, and see that some test fails each time: `make mutants`.

    python -m tests.mutation.run             (hours on two cores; as many processes as there are cores)
    python -m tests.mutation.run --resume    (run what `mutants/` does not know as killed: after a stop, or new tests)
    python -m tests.mutation.run --report    (run nothing: what `mutants/` holds so far)
    python -m tests.mutation.run --list      (run nothing: check the list of equivalent mutants)

First mutmut's operators on what mutmut skips (`rest.py`), then mutmut on every function. Mutants that change no
behavior are listed in `equivalent.md` with the reason; they are not run. Exits with 1 when any other mutant survives or
was not run, or when an entry of the list is no mutant.
"""

import argparse
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

from tests.mutation.equivalent import Key, read_list

FOLDERS = (Path("src/bagcert/rules"), Path("src/bagcert/threats"))
SETTINGS = {
    "OMP_NUM_THREADS": "1",  # torch's threads cost more than they bring on tiny tensors
    "BAGCERT_EXAMPLES": "10",
    "PYTHONHASHSEED": "0",
    "PY_IGNORE_IMPORTMISMATCH": "1",  # mutmut's copy of tests/ beside the package `tests` that this module is in
}
KILLED = {"killed"}  # no mutant loops for ever: one that was stopped from outside was not noticed


def mutated_files() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted(folder.glob("*.py"))]


def all_mutants() -> set[Key]:
    """Every mutant, none of them run."""
    from tests.mutation.functions import mutants_of
    from tests.mutation.rest import rest_of

    made = {key for path in mutated_files() for _, key in mutants_of(path)}
    return made | {mutant.key for path in mutated_files() for mutant in rest_of(path)}


def run_functions(known: set[Key], children: int) -> None:
    """Run mutmut on the functions, but for mutants known to change nothing or killed by an earlier run."""
    import mutmut.__main__ as mutmut
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.stats import status_by_exit_code

    from tests.mutation.functions import mutants_of

    keys = {name: key for path in mutated_files() for name, key in mutants_of(path)}
    collect = mutmut.collect_source_file_mutation_data

    def without_equivalents(
        *, mutant_names: tuple[str, ...] | list[str]
    ) -> tuple[list[tuple[SourceFileMutationData, str, int | None]], dict[str, SourceFileMutationData]]:
        mutants, files = collect(mutant_names=mutant_names)
        for number, (file, name, code) in enumerate(mutants):
            if keys[name] in known:
                code = 34
            elif status_by_exit_code[code] not in KILLED:
                code = None
            file.exit_code_by_key[name] = code
            mutants[number] = file, name, code
        return mutants, files

    mutmut.collect_source_file_mutation_data = without_equivalents
    mutmut._run([], children)


def results_of_functions() -> list[tuple[Key, str]]:
    """What became of every mutant of a function, as mutmut keeps it."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.stats import status_by_exit_code

    from tests.mutation.functions import mutants_of

    results = []
    for path in mutated_files():
        data = SourceFileMutationData(path=path)
        data.load()
        results += [(key, status_by_exit_code[data.exit_code_by_key.get(name)]) for name, key in mutants_of(path)]
    return results


def report_unknown(known: set[Key], made: set[Key]) -> int:
    for place, change in sorted(known - made):
        print(f"listed, but no mutant: {place}: `{change}`")
    return len(known - made)


def report(known: set[Key]) -> int:
    """Print what became of every mutant; the exit code."""
    from tests.mutation.rest import results_of_rest

    results = results_of_functions() + results_of_rest(mutated_files())
    statuses = [(key, "listed" if key in known else status) for key, status in results]
    for (place, change), status in sorted(statuses):
        if status not in KILLED | {"listed"}:
            print(f"{status}: {place}: `{change}`")
    unknown = report_unknown(known, {key for key, _ in results})
    counts = Counter(status for _, status in statuses)
    print(f"{len(results)} mutants: {', '.join(f'{count} {status}' for status, count in counts.items())}")
    return 1 if unknown or counts.keys() - KILLED - {"listed"} else 0


def main() -> int:
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        command = [sys.executable, "-m", "tests.mutation.run", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **SETTINGS})
    parser = argparse.ArgumentParser(description="Change the rules and the threats; some test must fail each time.")
    parser.add_argument("--children", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--resume", action="store_true", help="run what is not known to be killed")
    way.add_argument("--report", action="store_true", help="run nothing: what is known so far")
    way.add_argument("--list", action="store_true", help="run nothing: check the list of equivalent mutants")
    arguments, known = parser.parse_args(), read_list()
    if arguments.list:
        made = all_mutants()
        unknown = report_unknown(known, made)
        print(f"{len(made)} mutants, {len(known)} listed as equivalent, {unknown} of these unknown")
        return 1 if unknown else 0
    if not arguments.report:
        from tests.mutation.rest import run_rest

        if not arguments.resume:
            shutil.rmtree("mutants", ignore_errors=True)
        run_rest(mutated_files(), known, arguments.children)
        run_functions(known, arguments.children)
    return report(known)


if __name__ == "__main__":
    raise SystemExit(main())
