import pytest

from keras_vit.recipes.check_all import check_all


def fail(error):
    raise error


def test_results_are_in_order():
    assert check_all(lambda: 1, lambda: "two") == [1, "two"]


def test_all_errors_are_reported_once():
    checks = [lambda: fail(ValueError("a")), lambda: 1, lambda: fail(OSError("b")), lambda: fail(ValueError("a"))]
    with pytest.raises(ValueError, match="^a\nb$"):
        check_all(*checks)
    with pytest.raises(ValueError, match="^c\na\nb$"):
        check_all(lambda: fail(ValueError("c\na")), *checks)
    with pytest.raises(OSError, match="^b$"):
        check_all(*checks[1:3])
    with pytest.raises(TypeError, match="a mistake"):
        check_all(checks[0], lambda: fail(TypeError("a mistake")))
