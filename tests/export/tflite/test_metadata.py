"""Files with metadata in LiteRT and in Python's zipfile; MediaPipe reads them in test_mediapipe.py."""

import zipfile
from dataclasses import replace

import flatbuffers
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from pixel_models import CLASSES, SIZE, answers, converted, random_classifier

from keras_vit.export.tflite.flatbuffer import unpack_model
from keras_vit.export.tflite.metadata import Description, read_description, with_metadata
from keras_vit.export.tflite.metadata_schema import decode_metadata

ABOUT = Description(
    name="ViT",
    description="Tells ten things apart.",
    version="1.2",
    author="Somebody",
    license="Apache-2.0",
    labels=tuple(f"thing {i}, é" for i in range(CLASSES)),
    preprocessing={"image_size": SIZE, "mean": (0.485, 0.456, 0.406), "antialias": False},
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Files as the converter writes them, by what is special."""
    model, folder = random_classifier(), tmp_path_factory.mktemp("plain")
    functions = answers(model)

    def attention(images):
        times = tf.cast(images[0, 0, 0, 0] / 100.0, tf.int32) + 1  # a loop that cannot be unrolled: WHILE
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
        "outside": converted(model, classify, folder / "outside", _experimental_use_buffer_offset=True),
    }


def about(name):
    return ABOUT if name != "embed" else replace(ABOUT, labels=None)


def results(content):
    """Of every signature, for two images."""
    interpreter, random = Interpreter(model_content=content), np.random.default_rng(5)
    pixels = random.integers(0, 256, (2, 1, *SIZE, 3))
    found = {}
    for name in interpreter.get_signature_list():
        run = interpreter.get_signature_runner(name)
        dtype = run.get_input_details()["images"]["dtype"]
        found[name] = [run(images=image.astype(dtype)) for image in pixels]
    return found


@pytest.mark.parametrize("name", ["float32", "uint8", "embed", "signatures", "outside"])
def test_litert_computes_the_same_bits(plain, name):
    before, after = results(plain[name]), results(with_metadata(plain[name], about(name)))
    assert set(before) == set(after) == ({"attention", "classify", "embed"} if name == "signatures" else set(before))
    for signature, pairs in before.items():
        assert not all(np.array_equal(*pair) for pair in zip(pairs[0].values(), pairs[1].values()))
        for one, other in zip(pairs, after[signature]):
            assert one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", ["float32", "uint8", "embed", "signatures", "outside"])
def test_everything_is_read_back(plain, tmp_path, name):
    path = tmp_path / "model.tflite"
    path.write_bytes(with_metadata(plain[name], about(name)))
    found = read_description(path)
    assert found.description == about(name)
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


def test_another_signature_may_be_the_first(plain, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(with_metadata(plain["signatures"], about("embed"), first="embed"))
    found = read_description(path)
    assert next(iter(found.signatures)) == "embed" and found.signatures["embed"].subgraph == 0


def test_printed_form(plain, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(with_metadata(plain["uint8"], ABOUT))
    lines = str(read_description(path)).splitlines()
    assert lines[0] == f"model.tflite: {path.stat().st_size / 1e6:.2f} MB"
    text = "\n".join(lines)
    for part in ("Tells ten things apart.", "1.2", "Somebody", "Apache-2.0", "10: thing 0, é; thing 1, é", "; ..."):
        assert part in text
    assert "signature      classify" in text and "images (1, 32, 40, 3) uint8, 1 * (stored - 0)" in text
    assert "(pixel - [0]) / [1]" in text and "preprocessing  mean: [0.485, 0.456, 0.406]" in text


def test_what_mediapipe_would_refuse_is_said(plain, tmp_path):
    def objection(name, **changes):
        path = tmp_path / "model.tflite"
        path.write_bytes(with_metadata(plain[name], replace(ABOUT, **changes)))
        return read_description(path).mediapipe_objection

    assert objection("float32") is None and objection("uint8") is None
    assert "this file has 5" in objection("signatures")  # three signatures, and the two of WHILE
    channels = {"mean": (123.7, 116.3, 103.5), "std": (58.4, 57.1, 57.4)}
    assert "all channels alike" in objection("float32", **channels)
    assert objection("uint8", **channels) is None


def test_stats_are_those_of_the_tensors(plain):
    content = with_metadata(plain["float32"], replace(ABOUT, mean=127.5, std=127.5))
    model = unpack_model(content)
    (entry,) = [entry for entry in model.metadata if entry.name == b"TFLITE_METADATA"]
    (subgraph,) = decode_metadata(model.buffers[entry.buffer].data.tobytes())["subgraph_metadata"]
    assert subgraph["input_tensor_metadata"][0]["stats"] == {"min": [-1.0], "max": [1.0]}
    assert subgraph["output_tensor_metadata"][0]["stats"] == {"min": [0.0], "max": [1.0]}


def test_notes_of_the_converter_stay_and_old_metadata_goes(plain):
    once = with_metadata(plain["float32"], replace(ABOUT, name="before", labels=tuple("abcdefghij")))
    twice = with_metadata(once, ABOUT)
    assert twice == with_metadata(plain["float32"], ABOUT) == with_metadata(twice, ABOUT)
    before, after = unpack_model(plain["float32"]), unpack_model(twice)
    notes = {entry.name: before.buffers[entry.buffer].data.tobytes() for entry in before.metadata}
    assert {b"min_runtime_version", b"CONVERSION_METADATA"} <= set(notes)
    kept = {entry.name: after.buffers[entry.buffer].data.tobytes() for entry in after.metadata}
    assert kept.items() >= notes.items() and set(kept) - set(notes) == {b"TFLITE_METADATA"}


def test_weights_lie_on_16_bytes(plain):
    for name in ("float32", "outside"):
        content = with_metadata(plain[name], ABOUT)
        start = np.frombuffer(content, "uint8").ctypes.data
        buffers = unpack_model(content).buffers
        inside = [buffer.data.ctypes.data - start for buffer in buffers if buffer.data is not None and len(buffer.data)]
        outside = [buffer.offset for buffer in buffers if buffer.offset]
        assert len(inside) > 20 if name == "float32" else len(outside) > 20
        assert not [place for place in inside + outside if place % 16]


def test_archive_is_any_zip(plain, tmp_path):
    path = tmp_path / "model.tflite"
    for name in ("float32", "outside"):
        path.write_bytes(with_metadata(plain[name], ABOUT))
        with zipfile.ZipFile(path) as archive:
            assert archive.namelist() == ["preprocessing.json", "labels.txt"] and archive.testzip() is None
            assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
            for entry in archive.infolist():  # places are counted from the start of the file
                assert path.read_bytes()[entry.header_offset :][:4] == b"PK\3\4"
            assert archive.read("labels.txt").decode() == "".join(f"{label}\n" for label in ABOUT.labels)


@pytest.mark.parametrize(
    "labels,message",
    [
        (["a", " ", "c"], "one line of text, but that of class 1 is ' '"),
        (["a", "b\nc"], r"class 1 is 'b\\nc'"),
        (["a", "b\r"], "that of class 1"),
        (["a", 7], "class 1 is 7"),
        ("abc", "a list of names"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        Description("ViT", labels=labels)


def test_a_name_may_occur_twice_as_imagenets_cranes_do():
    assert Description("ViT", labels=["crane", "dog", "crane"]).labels == ("crane", "dog", "crane")


@pytest.mark.parametrize("changes", [{"std": 0}, {"mean": (1, 2)}, {"mean": (1, 2, 3)}, {"preprocessing": {1: object}}])
def test_bad_scaling_and_preprocessing(changes):
    with pytest.raises(ValueError, match="Received|plain values"):
        Description("ViT", **changes)


def test_each_output_has_one_label(plain):
    with pytest.raises(ValueError, match=r"3 labels for 10 outputs \(probabilities"):
        with_metadata(plain["float32"], replace(ABOUT, labels=("a", "b", "c")))
    with pytest.raises(ValueError, match=r"10 labels for 32 outputs \(embedding"):
        with_metadata(plain["embed"], ABOUT)


def test_models_of_other_things_are_refused(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((1, 7), tf.float32)])
    def double(x):
        return 2 * x

    content = tf.lite.TFLiteConverter.from_concrete_functions([double.get_concrete_function()], tf.Module()).convert()
    with pytest.raises(ValueError, match=r"one input \(1, H, W, 3\), float32 or uint8, .*Received: x \(1, 7\) float32"):
        with_metadata(content, Description("double"))


def test_more_than_two_gigabytes(plain, monkeypatch):
    monkeypatch.setattr(flatbuffers.Builder, "MAX_BUFFER_SIZE", 50_000)
    with pytest.raises(ValueError, match="at most 2 GB of weights in its flatbuffer; these have 0.00 GB"):
        with_metadata(plain["float32"], ABOUT)


def test_files_that_cannot_be_described(plain, tmp_path):
    path = tmp_path / "model.tflite"
    with pytest.raises(FileNotFoundError):
        read_description(path)
    with pytest.raises(ValueError, match="is a folder, not a .tflite file. A SavedModel must be exported first"):
        read_description(tmp_path)
    for content, reason in (
        (b"", "has zero bytes"),
        (b"PK", "is no TFLite model: bytes 4 to 8"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is no TFLite model: bytes 4 to 8 are b'ion '"),
        (plain["float32"], "has no metadata"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"model.tflite cannot be described: it {reason}"):
            read_description(path)
        if not reason.endswith("metadata"):
            with pytest.raises(ValueError, match=reason):
                with_metadata(content, ABOUT)


@pytest.mark.parametrize("name", ["float32", "outside"])
def test_a_file_cut_short_is_refused_wherever_it_was_cut(plain, tmp_path, name):
    path, content = tmp_path / "model.tflite", with_metadata(plain[name], ABOUT)
    for length in [8, 12, 100, len(content) - 1, *range(1000, len(content), 25_000)]:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="cannot be described: it .*(cut short|no TFLite|archive)"):
            read_description(path)
