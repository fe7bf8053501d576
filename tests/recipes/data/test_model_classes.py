"""Heads that a training keeps, and teachers, have the classes of the data."""

import pytest
from images_on_disk import jpeg

from keras_vit.recipes import fit
from keras_vit.recipes.recipe import Architecture, Data, Distillation, Optimizer, Supervised
from keras_vit.weights import save


@pytest.fixture
def fields(tmp_path, monkeypatch):
    """Fields of a recipe for a folder of cats and dogs. What passes the checks is not trained."""
    monkeypatch.setattr(fit.loop, "fit", lambda *_: {})
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "data" / name / f"{i}.jpg").write_bytes(jpeg(40 * i))
    data = Data(dataset=f"folder:{tmp_path}/data", image_size=16, batch_size=4, crop="none", validation_split=None)
    architecture = Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3)
    return {"data": data, "architecture": architecture, "optimizer": Optimizer(warmup_steps=0), "total_steps": 1}


def test_a_kept_head_has_the_classes_of_the_data(fields, trained_toy, tmp_path):
    recipe, swapped = Supervised(**fields, keep_head=True), trained_toy(num_classes=2, class_names=["dog", "cat"])
    order = "the order differs: class 0 is 'dog' there, but 'cat' here.*set keep_head=False"
    with pytest.raises(ValueError, match=f"keeps the head of the model to start from, .*{order}"):
        fit.train(recipe, swapped)
    swapped.save(tmp_path / "model.keras")
    weights = str(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=rf"keeps the head of .*model.keras, .*{order}.*write .* into .*labels\.txt"):
        fit.train(Supervised(**fields, keep_head=True, weights=weights))
    (tmp_path / "labels.txt").write_text("cat\ndog\n")  # the user states that the names in the file are wrong
    model, _ = fit.train(Supervised(**fields, keep_head=True, weights=weights))
    assert model.class_names == ("cat", "dog")
    swapped.class_names = ["kitten", "puppy"]  # in memory: perhaps the same classes in other words
    fit.train(recipe, swapped)


def test_a_teacher_has_the_classes_of_the_data(fields, trained_toy, tmp_path):
    teachers = {"x.keras": ["cat", "yak"], "folder": ["dog", "cat"]}
    for name, class_names in teachers.items():
        save(trained_toy(num_classes=2), tmp_path / name, class_names=class_names)
        recipe = Distillation(**fields, teacher=str(tmp_path / name), distillation_token=False)
        with pytest.raises(ValueError, match="The teacher is .*, whose classes .there. are not those of .*here"):
            fit.train(recipe)
