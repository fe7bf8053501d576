from keras_vit.name_list import first_names


def test_long_lists_are_cut():
    assert first_names([]) == "" and first_names("abcde") == "a, b, c, d, e"
    assert first_names(map(str, range(2000))) == "0, 1, 2, 3, 4 and 1,995 more"
    assert first_names(map(repr, "abcd"), 3) == "'a', 'b', 'c' and 1 more"
