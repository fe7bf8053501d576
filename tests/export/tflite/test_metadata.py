"""Metadata read by keras_vit, LiteRT and zipfile; test_mediapipe.py reads it with MediaPipe."""

import zipfile
from dataclasses import replace

import flatbuffers
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from pixel_models import CLASSES, SIZE, converted, random_classifier, signature_functions

from keras_vit.export.tflite.flatbuffer import unpack_model
from keras_vit.export.tflite.metadata import Description, read_description, with_metadata
from keras_vit.export.tflite.metadata_schema import decode_metadata

pytestmark = pytest.mark.slow

ABOUT = Description(
    name="ViT",
    description="Classifies ten objects.",
    version="1.2",
    author="An author",
    license="Apache-2.0",
    class_names=tuple(f"object {i}, é" for i in range(CLASSES)),
    preprocessing={"image_size": SIZE, "mean": (0.485, 0.456, 0.406), "antialias": False},
)


@pytest.fixture(scope="module")
def unannotated(tmp_path_factory):
    """Kind -> .tflite content without metadata."""
    model, folder = random_classifier(), tmp_path_factory.mktemp("unannotated")
    functions = signature_functions(model)

    def attention(images):
        times = tf.cast(images[0, 0, 0, 0] / 100.0, tf.int32) + 1  # a loop that the converter cannot unroll: WHILE
        maps = tf.while_loop(lambda i, x: i < times, lambda i, x: (i + 1, x * 1.5), (0, images[..., 0]))[1]
        return {"attention": maps[:, ::8, ::8]}

    images = np.random.default_rng(0).uniform(0, 255, (20, *SIZE, 3)).astype("float32")
    images[0, 0, 0], images[0, 0, 1] = 0, 255
    classify = {"classify": functions["classify"]}
    return {
        "float32": converted(model, classify, folder / "float32"),
        "uint8": converted(model, classify, folder / "uint8", calibration=images),
        "embed": converted(model, {"embed": functions["embed"]}, folder / "embed"),
        "signatures": converted(model, {**functions, "attention": attention}, folder / "signatures"),
        "external": converted(model, classify, folder / "external", _experimental_use_buffer_offset=True),
    }


def description(kind):
    return ABOUT if kind != "embed" else replace(ABOUT, class_names=None)


def results(content):
    """Signature -> outputs for two images."""
    interpreter, random = Interpreter(model_content=content), np.random.default_rng(5)
    pixels = random.integers(0, 256, (2, 1, *SIZE, 3))
    found = {}
    for name in interpreter.get_signature_list():
        run = interpreter.get_signature_runner(name)
        dtype = run.get_input_details()["images"]["dtype"]
        found[name] = [run(images=image.astype(dtype)) for image in pixels]
    return found


@pytest.mark.parametrize("name", ["float32", "uint8", "embed", "signatures", "external"])
def test_results_are_identical_in_litert(unannotated, name):
    before, after = results(unannotated[name]), results(with_metadata(unannotated[name], description(name)))
    assert set(before) == set(after) == ({"attention", "classify", "embed"} if name == "signatures" else set(before))
    for signature, pairs in before.items():
        assert not all(np.array_equal(*pair) for pair in zip(pairs[0].values(), pairs[1].values()))
        for one, other in zip(pairs, after[signature]):
            assert one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", ["float32", "uint8", "embed", "signatures", "external"])
def test_read_description(unannotated, tmp_path, name):
    path = tmp_path / "model.tflite"
    path.write_bytes(with_metadata(unannotated[name], description(name)))
    found = read_description(path)
    assert found.description == description(name)
    assert found.size_bytes == path.stat().st_size
    first = next(iter(found.signatures))
    assert first == ("embed" if name == "embed" else "classify")
    (image,), (result,) = found.signatures[first].inputs, found.signatures[first].outputs
    assert (image.name, image.shape) == ("images", (1, *SIZE, 3))
    assert result.name == {"embed": "embedding"}.get(first, "probabilities")
    assert result.shape == (1, 32 if first == "embed" else CLASSES)
    dtype = "uint8" if name == "uint8" else "float32"
    assert (image.dtype, result.dtype) == (dtype, dtype)
    if name == "uint8":
        assert image.quantization == (pytest.approx(1.0, rel=1e-3), 0) and result.quantization == (1 / 256, 0)
    else:
        assert image.quantization is result.quantization is None


def test_first_signature(unannotated, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(with_metadata(unannotated["signatures"], description("embed"), first="embed"))
    found = read_description(path)
    assert next(iter(found.signatures)) == "embed" and found.signatures["embed"].subgraph == 0


def test_printed_form(unannotated, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(with_metadata(unannotated["uint8"], ABOUT))
    lines = str(read_description(path)).splitlines()
    assert lines[0] == f"model.tflite: {path.stat().st_size / 1e6:.2f} MB"
    text = "\n".join(lines)
    for part in ("Classifies ten objects.", "1.2", "An author", "Apache-2.0", "10: object 0, é; object 1, é", "; ..."):
        assert part in text
    assert "signature      classify" in text and "images (1, 32, 40, 3) uint8, 1 * (stored - 0)" in text
    assert "(pixel - [0]) / [1]" in text and "preprocessing  mean: [0.485, 0.456, 0.406]" in text


def test_mediapipe_task(unannotated, tmp_path):
    path = tmp_path / "model.tflite"
    for name, task in (("float32", "supported by ImageClassifier"), ("embed", "supported by ImageEmbedder")):
        path.write_bytes(with_metadata(unannotated[name], description(name)))
        assert f"MediaPipe      {task}" in str(read_description(path))
    path.write_bytes(with_metadata(unannotated["signatures"], description("embed"), first="attention"))
    assert "MediaPipe      no task reads attention maps" in str(read_description(path))


def test_mediapipe_problem(unannotated, tmp_path):
    def problem(name, **changes):
        path = tmp_path / "model.tflite"
        path.write_bytes(with_metadata(unannotated[name], replace(ABOUT, **changes)))
        return read_description(path).mediapipe_problem

    assert problem("float32") is None and problem("uint8") is None
    assert "this file has 5" in problem("signatures")  # three signatures, and the two of WHILE
    channels = {"mean": (123.7, 116.3, 103.5), "std": (58.4, 57.1, 57.4)}
    assert "all channels alike" in problem("float32", **channels)
    assert problem("uint8", **channels) is None


def test_stats_of_input_and_output(unannotated):
    content = with_metadata(unannotated["float32"], replace(ABOUT, mean=127.5, std=127.5))
    model = unpack_model(content)
    (entry,) = [entry for entry in model.metadata if entry.name == b"TFLITE_METADATA"]
    (subgraph,) = decode_metadata(model.buffers[entry.buffer].data.tobytes())["subgraph_metadata"]
    assert subgraph["input_tensor_metadata"][0]["stats"] == {"min": [-1.0], "max": [1.0]}
    assert subgraph["output_tensor_metadata"][0]["stats"] == {"min": [0.0], "max": [1.0]}


def test_metadata_is_replaced_and_that_of_the_converter_unchanged(unannotated):
    once = with_metadata(unannotated["float32"], replace(ABOUT, name="before", class_names=tuple("abcdefghij")))
    twice = with_metadata(once, ABOUT)
    assert twice == with_metadata(unannotated["float32"], ABOUT) == with_metadata(twice, ABOUT)
    before, after = unpack_model(unannotated["float32"]), unpack_model(twice)
    of_converter = {entry.name: before.buffers[entry.buffer].data.tobytes() for entry in before.metadata}
    assert {b"min_runtime_version", b"CONVERSION_METADATA"} <= set(of_converter)
    found = {entry.name: after.buffers[entry.buffer].data.tobytes() for entry in after.metadata}
    assert found.items() >= of_converter.items() and set(found) - set(of_converter) == {b"TFLITE_METADATA"}


def test_weights_are_aligned_to_16_bytes(unannotated):
    for name in ("float32", "external"):
        content = with_metadata(unannotated[name], ABOUT)
        start = np.frombuffer(content, "uint8").ctypes.data
        buffers = unpack_model(content).buffers
        internal = [
            buffer.data.ctypes.data - start for buffer in buffers if buffer.data is not None and len(buffer.data)
        ]
        external = [buffer.offset for buffer in buffers if buffer.offset]
        assert len(internal) > 20 if name == "float32" else len(external) > 20
        assert not [offset for offset in internal + external if offset % 16]


def test_archive_is_a_valid_zip(unannotated, tmp_path):
    path = tmp_path / "model.tflite"
    for name in ("float32", "external"):
        path.write_bytes(with_metadata(unannotated[name], ABOUT))
        with zipfile.ZipFile(path) as archive:
            assert archive.namelist() == ["preprocessing.json", "labels.txt"] and archive.testzip() is None
            assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
            for entry in archive.infolist():  # offsets count from the start of the file
                assert path.read_bytes()[entry.header_offset :][:4] == b"PK\3\4"
            assert archive.read("labels.txt").decode() == "".join(f"{name}\n" for name in ABOUT.class_names)


@pytest.mark.parametrize(
    "class_names,message",
    [
        (["a", " ", "c"], "one line of text. Received: ' ' for class 1"),
        (["a", "b\nc"], r"Received: 'b\\nc' for class 1"),
        (["a", "b\r"], "for class 1"),
        (["a", 7], "Received: 7 for class 1"),
        ("abc", "a list of strings"),
    ],
)
def test_invalid_class_names(class_names, message):
    with pytest.raises(ValueError, match=message):
        Description("ViT", class_names=class_names)


def test_class_names_may_repeat():
    assert Description("ViT", class_names=["crane", "dog", "crane"]).class_names == ("crane", "dog", "crane")


@pytest.mark.parametrize("changes", [{"std": 0}, {"mean": (1, 2)}, {"mean": (1, 2, 3)}, {"preprocessing": {1: object}}])
def test_invalid_scaling_and_preprocessing(changes):
    with pytest.raises(ValueError, match="Received|JSON can represent"):
        Description("ViT", **changes)


def test_number_of_class_names(unannotated):
    with pytest.raises(ValueError, match=r"3 names for 10 outputs \(probabilities"):
        with_metadata(unannotated["float32"], replace(ABOUT, class_names=("a", "b", "c")))
    with pytest.raises(ValueError, match=r"10 names for 32 outputs \(embedding"):
        with_metadata(unannotated["embed"], ABOUT)


def test_models_without_an_image_input_raise(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((1, 7), tf.float32)])
    def double(x):
        return 2 * x

    content = tf.lite.TFLiteConverter.from_concrete_functions([double.get_concrete_function()], tf.Module()).convert()
    with pytest.raises(ValueError, match=r"one input \(1, H, W, 3\), float32 or uint8, .*Received: x \(1, 7\) float32"):
        with_metadata(content, Description("double"))


def test_flatbuffer_of_more_than_2_gb_raises(unannotated, monkeypatch):
    monkeypatch.setattr(flatbuffers.Builder, "MAX_BUFFER_SIZE", 50_000)
    with pytest.raises(ValueError, match="at most 2 GB. Received: 0.00 GB of weights"):
        with_metadata(unannotated["float32"], ABOUT)


def test_invalid_files(unannotated, tmp_path):
    path = tmp_path / "model.tflite"
    with pytest.raises(FileNotFoundError):
        read_description(path)
    with pytest.raises(ValueError, match="is a folder, not a .tflite file. A SavedModel must be exported first"):
        read_description(tmp_path)
    path.touch()
    with pytest.raises(ValueError, match=r"is a folder, not a .tflite file. Pass a file: \S+/model.tflite\.$"):
        read_description(tmp_path)
    for content, reason in (
        (b"", "has zero bytes"),
        (b"PK", "is not a TFLite model: bytes 4 to 8"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is not a TFLite model: bytes 4 to 8 are b'ion '"),
        (unannotated["float32"], "has no metadata"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"model.tflite cannot be described: it {reason}"):
            read_description(path)
        if not reason.endswith("metadata"):
            with pytest.raises(ValueError, match=reason):
                with_metadata(content, ABOUT)


@pytest.mark.parametrize("name", ["float32", "external"])
def test_truncated_files_raise(unannotated, tmp_path, name):
    path, content = tmp_path / "model.tflite", with_metadata(unannotated[name], ABOUT)
    for length in [8, 12, 100, len(content) - 1, *range(1000, len(content), 25_000)]:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="cannot be described: it .*(truncated|not a TFLite|archive)"):
            read_description(path)
