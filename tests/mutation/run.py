"""Change the rules and the threats in every small way, and see that some test fails each time: `make mutants`.

First mutmut on every function, then its operators on what it skips (`rest.py`). Mutants that change no behavior are
listed in `equivalent.md` with the reason; they are not run. Exits with 1 when any other mutant survives.
"""

import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

FOLDERS = (Path("src/bagcert/rules"), Path("src/bagcert/threats"))
CHILDREN = 2
SETTINGS = {
    "OMP_NUM_THREADS": "1",  # torch's threads cost more than they bring on tiny tensors
    "BAGCERT_EXAMPLES": "10",
    "PYTHONHASHSEED": "0",
}
KILLED = {"killed"}  # no mutant loops for ever: one that was stopped from outside was not noticed


def functions(known: set[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Run mutmut; every mutant with its function, its changed lines and what became of it."""
    import mutmut.__main__ as mutmut
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    from tests.mutation.equivalent import Ordinals, normal

    changes: dict[str, tuple[str, str]] = {}
    collect = mutmut.collect_source_file_mutation_data

    def without_equivalents(
        *, mutant_names: tuple[str, ...] | list[str]
    ) -> tuple[list[tuple[SourceFileMutationData, str, int | None]], dict[str, SourceFileMutationData]]:
        mutants, files = collect(mutant_names=mutant_names)
        numbered = Ordinals()
        for number, (file, name, _) in enumerate(mutants):
            lines = get_diff_for_mutant(name, path=file.path).splitlines()
            added = [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")]
            changes[name] = numbered(place(name), normal(added))
            if changes[name] in known:
                file.exit_code_by_key[name] = 34
                mutants[number] = file, name, 34
        return mutants, files

    mutmut.collect_source_file_mutation_data = without_equivalents
    mutmut._run([], CHILDREN)
    results = []
    for file in walk_mutatable_files():
        data = SourceFileMutationData(path=file)
        data.load()
        results += [(*changes[name], status_by_exit_code[code]) for name, code in data.exit_code_by_key.items()]
    return results


def place(name: str) -> str:
    """`bagcert.rules.sums.xǁEveryRegionǁ_certify__mutmut_3` is in rules.sums.EveryRegion._certify."""
    path, _, function = name.partition("__mutmut_")[0].removeprefix("bagcert.").rpartition(".")
    return f"{path}.{function.removeprefix('x_').removeprefix('xǁ').replace('ǁ', '.')}"


def main() -> int:
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, "-m", "tests.mutation.run"], {**os.environ, **SETTINGS})
    from tests.mutation.equivalent import read_list
    from tests.mutation.rest import run_rest

    start = time.monotonic()
    shutil.rmtree("mutants", ignore_errors=True)
    known = read_list()
    rest = run_rest(FOLDERS, known, CHILDREN)
    results = functions(known) + rest
    survivors = [(where, change) for where, change, status in results if status not in KILLED | {"skipped"}]
    unused = known - {(where, change) for where, change, _ in results}
    print()
    for where, change in sorted(survivors):
        print(f"survived: {where}: `{change}`")
    for where, change in sorted(unused):
        print(f"listed but no longer made: {where}: `{change}`")
    counts = Counter("killed" if status in KILLED else status for _, _, status in results)
    minutes = (time.monotonic() - start) / 60
    print(f"{len(results)} mutants: {dict(counts)}; {len(survivors)} survived unlisted; {minutes:.0f} minutes")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
