"""Change the rules and the threats in every small way, and see that some test fails each time: `make mutants`.

    python -m tests.mutation.run           (hours on two cores)
    python -m tests.mutation.run --list    (run nothing: check the list of equivalent mutants)

First mutmut's operators on what mutmut skips (`rest.py`), then mutmut on every function. Mutants that change no
behavior are listed in `equivalent.md` with the reason; they are not run. Exits with 1 when any other mutant survives,
or when an entry of the list is no mutant.
"""

import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from tests.mutation.equivalent import Key, read_list

FOLDERS = (Path("src/bagcert/rules"), Path("src/bagcert/threats"))
CHILDREN = 2
SETTINGS = {
    "OMP_NUM_THREADS": "1",  # torch's threads cost more than they bring on tiny tensors
    "BAGCERT_EXAMPLES": "10",
    "PYTHONHASHSEED": "0",
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


def run_functions(known: set[Key]) -> list[tuple[Key, str]]:
    """Run mutmut; every mutant and what became of it."""
    import mutmut.__main__ as mutmut
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    from tests.mutation.functions import mutants_of

    keys = {name: key for path in mutated_files() for name, key in mutants_of(path)}
    collect = mutmut.collect_source_file_mutation_data

    def without_equivalents(
        *, mutant_names: tuple[str, ...] | list[str]
    ) -> tuple[list[tuple[SourceFileMutationData, str, int | None]], dict[str, SourceFileMutationData]]:
        mutants, files = collect(mutant_names=mutant_names)
        for number, (file, name, _) in enumerate(mutants):
            if keys[name] in known:
                file.exit_code_by_key[name] = 34
                mutants[number] = file, name, 34
        return mutants, files

    mutmut.collect_source_file_mutation_data = without_equivalents
    mutmut._run([], CHILDREN)
    results = []
    for file in walk_mutatable_files():
        data = SourceFileMutationData(path=file)
        data.load()
        results += [(keys[name], status_by_exit_code[code]) for name, code in data.exit_code_by_key.items()]
    return results


def report_unknown(known: set[Key], made: set[Key]) -> int:
    for place, change in sorted(known - made):
        print(f"listed, but no mutant: {place}: `{change}`")
    return len(known - made)


def main() -> int:
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        command = [sys.executable, "-m", "tests.mutation.run", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **SETTINGS})
    known = read_list()
    if sys.argv[1:] == ["--list"]:
        made = all_mutants()
        unknown = report_unknown(known, made)
        print(f"{len(made)} mutants, {len(known)} listed as equivalent, {unknown} of these unknown")
        return 1 if unknown else 0
    from tests.mutation.rest import run_rest

    start = time.monotonic()
    shutil.rmtree("mutants", ignore_errors=True)
    rest = run_rest(mutated_files(), known, CHILDREN)
    results = run_functions(known) + rest
    survivors = [key for key, status in results if status not in KILLED | {"skipped"}]
    print()
    for place, change in sorted(survivors):
        print(f"survived: {place}: `{change}`")
    unknown = report_unknown(known, {key for key, _ in results})
    counts = Counter("killed" if status in KILLED else status for _, status in results)
    minutes = (time.monotonic() - start) / 60
    print(f"{len(results)} mutants: {dict(counts)}; {len(survivors)} survived unlisted; {minutes:.0f} minutes")
    return 1 if survivors or unknown else 0


if __name__ == "__main__":
    raise SystemExit(main())
