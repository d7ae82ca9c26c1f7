from bagcert.errors import UsageError, unknown_name


def test_unknown_name_suggests_the_nearest() -> None:
    error = unknown_name("rule", "two-maks", ["two-mask", "masked"])
    assert isinstance(error, UsageError)
    assert str(error) == "Unknown rule 'two-maks'. Did you mean 'two-mask'? Known: masked, two-mask."


def test_unknown_name_far_from_all_lists_them() -> None:
    assert str(unknown_name("rule", "zzz", ["two-mask", "masked"])) == "Unknown rule 'zzz'. Known: masked, two-mask."
