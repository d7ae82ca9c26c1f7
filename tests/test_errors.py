from bagcert.errors import UsageError, unknown_name


def test_unknown_name_suggests_the_nearest() -> None:
    error = unknown_name("a rule", "two-maks", ["two-mask", "masked"])
    assert isinstance(error, UsageError)
    assert str(error) == "expected a rule in masked, two-mask, got 'two-maks'; did you mean 'two-mask'?"


def test_unknown_name_far_from_all_lists_them() -> None:
    assert str(unknown_name("a rule", "zzz", ["masked"])).endswith("got 'zzz'; choose one of these")
