import keras
import pytest
from scenes import scene

import keras_vit
from keras_vit_cli.main import main

TINY = {"image_size": 16, "patch_size": 8, "depth": 1, "width": 12, "mlp_dim": 12, "num_heads": 2}
FILES = {
    **dict.fromkeys(
        ("m.npz", "taken.npz", "m.tflite", "m.onnx", "s/saved_model.pb", "run/model.keras", "full/mine"), b""
    ),
    **dict.fromkeys(("taken.html", "my-photos/1/1.jpg", "cifar100/1/1.jpg", "one/cat/1.jpg", "d.json/x"), b""),
    **dict.fromkeys(
        ("stopped/recipe.json", "old/metrics.json", "cut/step-3.index", "ckpt/bert-1.index", "a.tfrecord"), b"{}"
    ),
    **{"damaged.npz": b"x", "bad.keras": b"PK\3\4 and more", "list.json": b"[]", "brace.json": b"{", "text.jpg": b"x"},
}


@pytest.fixture(scope="session")
def tflite_files(tmp_path_factory):
    """Files of a tiny model, in float32 and dynamic-int8."""
    from keras_vit.export import write_tflite

    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(**{**TINY, "width": 16, "mlp_dim": 32, "num_classes": 4})
    written = write_tflite(model, tmp_path_factory.mktemp("tflite"), ["float32", "dynamic-int8"])
    return [written[name] for name in ("float32", "dynamic-int8")]


@pytest.fixture
def run_cli(capsys):
    """Runs `keras-vit` with arguments; returns the exit status, output and errors."""

    def run(*arguments):
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def no_load(monkeypatch):
    """Fails a test that loads a model."""
    monkeypatch.setattr("keras_vit.load", lambda *_, **__: pytest.fail("the model was loaded"))


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """The working folder: images in photos/{cat,dog}, other folders and files, most of them empty or damaged."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for i, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for j in range(3):
            scene(3 * i + j, (11, 9)).save(tmp_path / "photos" / name / f"{j}.png")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.fixture
def mistake(workplace, run_cli):
    """Runs a command line that must end with status 1, print nothing and change no file; returns its errors."""

    def files():
        return {path: path.read_bytes() for path in workplace.rglob("*") if path.is_file()}

    def run(line):
        before = files()
        status, output, errors = run_cli(*line.split())
        assert (status, output) == (1, "") and "keras-vit: " in errors and "Traceback" not in errors, errors
        assert files() == before
        return errors.replace(str(workplace), "HERE")

    return run


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory):
    """Files of tiny models: by number of classes, 0, 2 or 3."""
    folder = tmp_path_factory.mktemp("tiny")
    for count in (0, 2, 3):
        keras_vit.VisionTransformer(**TINY, num_classes=count).save(folder / f"{count}.keras")
    return folder
