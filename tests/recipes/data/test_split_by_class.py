from keras_vit.recipes.data.split_by_class import split_by_class


def images(**counts):
    return [(name, f"{name}/{i}.jpg") for name, count in counts.items() for i in range(count)]


def test_a_fifth_of_each_class_is_for_evaluation():
    given = images(ant=100, bee=10, cow=3, doe=2, elk=1)
    splits = split_by_class(given)
    counts = {name: [label for label, _ in splits["test"]].count(name) for name in ("ant", "bee", "cow", "doe", "elk")}
    assert counts == {"ant": 20, "bee": 2, "cow": 1, "doe": 1, "elk": 0}
    assert sorted(splits["train"] + splits["test"]) == sorted(given)


def test_order_does_not_matter_and_few_images_change_sides_when_some_are_added():
    before = set(split_by_class(images(ant=100))["test"])
    assert set(split_by_class(images(ant=100)[::-1])["test"]) == before
    assert len(before - set(split_by_class(images(ant=110))["test"])) <= 4
