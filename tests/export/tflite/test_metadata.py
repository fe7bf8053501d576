"""Metadata read by keras_vit, LiteRT and zipfile; test_mediapipe.py reads it with MediaPipe."""

import zipfile
from dataclasses import replace

import flatbuffers
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from pixel_models import CLASSES, SIZE, converted

from keras_vit.export.tflite.description import Description
from keras_vit.export.tflite.flatbuffer import unpack_model
from keras_vit.export.tflite.metadata import read_description, with_metadata

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
    folder, random = tmp_path_factory.mktemp("unannotated"), np.random.default_rng(0)
    patches, head = (tf.constant(random.normal(size=size), "float32") for size in ((8, 8, 3, 32), (32, CLASSES)))

    def embed(images):
        return {"embedding": tf.reduce_mean(tf.nn.gelu(tf.nn.conv2d(images / 2550, patches, 8, "VALID")), (1, 2))}

    def classify(images):
        return {"probabilities": tf.nn.softmax(embed(images)["embedding"] @ head)}

    def attention(images):
        times = tf.cast(images[0, 0, 0, 0] / 100.0, tf.int32) + 1  # a loop that the converter cannot unroll: WHILE
        maps = tf.while_loop(lambda i, x: i < times, lambda i, x: (i + 1, x * 1.5), (0, images[..., 0]))[1]
        return {"attention": maps[:, ::8, ::8]}

    images = random.uniform(0, 255, (20, *SIZE, 3)).astype("float32")
    images[0, 0, 0], images[0, 0, 1] = 0, 255
    all_three = {"classify": classify, "embed": embed, "attention": attention}
    one = {"classify": classify}
    return {
        "float32": converted(None, one, folder / "float32"),
        "uint8": converted(None, one, folder / "uint8", calibration=images),
        "embed": converted(None, {"embed": embed}, folder / "embed"),
        "signatures": converted(None, all_three, folder / "signatures"),
        "external": converted(None, one, folder / "external", _experimental_use_buffer_offset=True),
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


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.tflite"


@pytest.mark.parametrize("name", ["float32", "uint8", "embed", "signatures", "external"])
def test_same_results_and_description(unannotated, path, name):
    path.write_bytes(with_metadata(unannotated[name], description(name)))
    before, after = results(unannotated[name]), results(path.read_bytes())
    first = "embed" if name == "embed" else "classify"
    assert set(before) == set(after) == ({"attention", "classify", "embed"} if name == "signatures" else {first})
    for signature, pairs in before.items():
        assert not all(np.array_equal(*pair) for pair in zip(pairs[0].values(), pairs[1].values()))
        for one, other in zip(pairs, after[signature]):
            assert one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)

    found = read_description(path)
    assert found.description == description(name) and found.size_bytes == path.stat().st_size
    assert next(iter(found.signatures)) == first
    (image,), (result,) = found.signatures[first].inputs, found.signatures[first].outputs
    assert (image.name, image.shape) == ("images", (1, *SIZE, 3))
    expected = ("embedding", (1, 32)) if first == "embed" else ("probabilities", (1, CLASSES))
    assert (result.name, result.shape) == expected
    dtype = "uint8" if name == "uint8" else "float32"
    assert (image.dtype, result.dtype) == (dtype, dtype)
    if name == "uint8":
        assert image.quantization == (pytest.approx(1.0, rel=1e-3), 0) and result.quantization == (1 / 256, 0)
    else:
        assert image.quantization is result.quantization is None


def test_mediapipe(unannotated, path):
    """The task that reads a file, or why none does."""
    channels = {"mean": (123.7, 116.3, 103.5), "std": (58.4, 57.1, 57.4)}
    cases = [
        ("float32", {}, "classify", None, "ImageClassifier"),
        ("uint8", channels, "classify", None, "ImageClassifier"),
        ("embed", {"class_names": None}, "embed", None, "ImageEmbedder"),
        ("signatures", {}, "classify", "5", "5"),  # subgraphs of three signatures, and the two of WHILE
        ("signatures", {"class_names": None}, "attention", None, "no task reads attention maps"),
        ("float32", channels, "classify", "all channels alike", "all channels alike"),
    ]
    for name, changes, first, problem, printed in cases:
        path.write_bytes(with_metadata(unannotated[name], replace(ABOUT, **changes), first=first))
        found = read_description(path)
        assert printed in next(line for line in str(found).splitlines() if line.startswith("  MediaPipe"))
        if first != "attention":
            assert found.mediapipe_problem is None if problem is None else problem in found.mediapipe_problem


def test_metadata_is_replaced_and_that_of_the_converter_unchanged(unannotated):
    once = with_metadata(unannotated["float32"], replace(ABOUT, name="before", class_names=tuple("abcdefghij")))
    twice = with_metadata(once, ABOUT)
    assert twice == with_metadata(unannotated["float32"], ABOUT) == with_metadata(twice, ABOUT)
    before, after = unpack_model(unannotated["float32"]), unpack_model(twice)
    of_converter = {entry.name: before.buffers[entry.buffer].data.tobytes() for entry in before.metadata}
    assert {b"min_runtime_version", b"CONVERSION_METADATA"} <= set(of_converter)
    found = {entry.name: after.buffers[entry.buffer].data.tobytes() for entry in after.metadata}
    assert found.items() >= of_converter.items() and set(found) - set(of_converter) == {b"TFLITE_METADATA"}


@pytest.mark.parametrize("name", ["float32", "inlined", "external"])
def test_alignment_and_archive(unannotated, path, monkeypatch, name):
    """Weights are aligned to 16 bytes, in the flatbuffer if it may have them, and the file is a ZIP archive, too."""
    kind = "float32" if name == "float32" else "external"
    assert (max(buffer.offset for buffer in unpack_model(unannotated[kind]).buffers) > 0) == (kind == "external")
    if name == "external":
        monkeypatch.setattr("keras_vit.export.tflite.flatbuffer.MAX_FLATBUFFER", 100)
    content = with_metadata(unannotated[kind], ABOUT)
    path.write_bytes(content)
    start, buffers = np.frombuffer(content, "uint8").ctypes.data, unpack_model(content).buffers
    internal = [one.data.ctypes.data - start for one in buffers if one.data is not None and len(one.data)]
    external = [buffer.offset for buffer in buffers if buffer.offset]
    assert len(external if name == "external" else internal) >= 4 and bool(external) == (name == "external")
    assert not [offset for offset in internal + external if offset % 16]
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["preprocessing.json", "labels.txt"] and archive.testzip() is None
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        for entry in archive.infolist():  # offsets count from the start of the file
            assert content[entry.header_offset :][:4] == b"PK\3\4"
        assert archive.read("labels.txt").decode() == "".join(f"{name}\n" for name in ABOUT.class_names)


def test_invalid_descriptions():
    cases = [
        ({"class_names": ["a", "b\nc"]}, r"Received: 'b\\nc' for class 1"),
        ({"class_names": "abc"}, "list"),
        *(({name: value}, "Received") for name, value in (("std", 0), ("mean", (1, 2)), ("mean", (1, 2, 3)))),
        ({"preprocessing": {1: object}}, "JSON"),
    ]
    for changes, message in cases:
        with pytest.raises(ValueError, match=message):
            Description("ViT", **changes)
    assert Description("ViT", class_names=["crane", "dog", "crane"]).class_names == ("crane", "dog", "crane")


def test_files_that_metadata_does_not_fit(unannotated, monkeypatch):
    module = tf.Module()
    module.double = tf.function(lambda x: 2 * x, [tf.TensorSpec((1, 7), tf.float32)])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.double.get_concrete_function()], module)
    cases = [
        (converter.convert(), Description("double"), r"Received: x \(1, 7\) float32"),
        (unannotated["float32"], replace(ABOUT, class_names=("a", "b", "c")), "3 names for 10 outputs"),
        (unannotated["embed"], ABOUT, "10 names for 32 outputs"),
    ]
    for content, about, message in cases:
        with pytest.raises(ValueError, match=message):
            with_metadata(content, about)
    monkeypatch.setattr(flatbuffers.Builder, "MAX_BUFFER_SIZE", 10_000)
    with pytest.raises(ValueError, match="at most 2 GB"):
        with_metadata(unannotated["float32"], ABOUT)


def test_invalid_files(unannotated, path):
    with pytest.raises(FileNotFoundError):
        read_description(path)
    with pytest.raises(ValueError, match="is a folder"):
        read_description(path.parent)
    path.touch()
    with pytest.raises(ValueError, match=r"Pass a file: \S+/model.tflite"):
        read_description(path.parent)
    cases = [(b"", "zero bytes"), (b"PK", "bytes 4 to 8"), (b"version https://git-lfs.github.com/spec/v1\n", "b'ion '")]
    for content, reason in cases:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot be described: it .*{reason}"):
            read_description(path)
        with pytest.raises(ValueError, match=reason):
            with_metadata(content, ABOUT)
    path.write_bytes(unannotated["float32"])
    found = read_description(path)  # without metadata
    [tensor] = found.signatures["classify"].inputs
    assert tensor.dtype == "float32" and tensor.shape[3] == 3 and found.description == Description("")
    assert "metadata" in found.mediapipe_problem and "pixels" not in str(found)


@pytest.mark.parametrize("name", ["float32", "external"])
def test_truncated_files_raise(unannotated, path, name):
    content = with_metadata(unannotated[name], ABOUT)
    for length in [8, 12, 100, len(content) - 1, *range(1000, len(content), 5_000)]:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="cannot be described: it .*(truncated|not a TFLite|archive)"):
            read_description(path)
