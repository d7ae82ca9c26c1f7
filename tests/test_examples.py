"""Every public name has an example in its docstring, and it runs as written."""

import doctest

import pytest

import bagcert


@pytest.mark.parametrize("name", bagcert.__all__)
def test_the_example_of_a_public_name_runs(name: str) -> None:
    found = doctest.DocTestFinder(recurse=False).find(getattr(bagcert, name), name, globs={})
    assert found and found[0].examples, f"{name} has no example"
    told: list[str] = []
    for example in found:
        doctest.DocTestRunner().run(example, out=told.append)
    assert not told, "".join(told)
