"""Odd image files by seven routes: each has the same pixels or classes by all of them, or is refused by name.

Expected pixels: those that the file was made of, or, of lossy files, Pillow's. The routes: training and evaluation read
a folder, also after `finetune` has converted what TensorFlow does not read, `prepare` stores, a SavedModel's
`serve_bytes`, `classify` by Keras and by a .tflite file.
"""

import contextlib
import io
import struct
import zlib
from functools import partial
from itertools import pairwise
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from randomize import randomize
from scenes import encoded, opened, scene

import keras_vit
from keras_vit.export import write_saved_model, write_tflite
from keras_vit.export.exported.opening import open_exported
from keras_vit.images.decoding import decode
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.data.arrays import decoded_positions
from keras_vit.recipes.data.windows import decode_window
from keras_vit.recipes.prepare.outcomes import STORED, examine
from keras_vit.recipes.recipe import Data
from keras_vit_cli.conversion import convert_images

WIDTH, HEIGHT = 33, 21  # odd: lines of files are padded, and subsampled colors have a rest
BASE = scene(5, (WIDTH, HEIGHT))
RGB = np.asarray(BASE)
GRAY = RGB[..., 1]
INDICES = (np.add.outer(np.arange(HEIGHT), np.arange(WIDTH)) // 4 % 4).astype("uint8")
PALETTE = np.array([(250, 0, 0), (0, 240, 0), (0, 0, 230), (90, 80, 70)], "uint8")
ALPHA = (np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) % 3 * 127).astype("uint8")
EXIF = 0x0112


def gray(values):
    return np.repeat(values[..., None], 3, axis=-1)


def turned(orientation):
    exif = Image.Exif()
    exif[EXIF] = orientation
    return exif


def palette_image():
    image = Image.fromarray(INDICES, "P")
    image.putpalette(PALETTE.tobytes())
    return image


def png(color_type, bits, rows, *chunks):
    """A PNG file of packed rows of bytes."""
    blocks = [(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, color_type, 0, 0, 0)), *chunks]
    blocks += [(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in blocks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def packed(values, bits):
    """Rows of `bits` per value, padded to bytes."""
    unpacked = np.unpackbits(values[..., None], axis=-1)[..., 8 - bits :]
    return np.packbits(unpacked.reshape(HEIGHT, -1), axis=-1)


def bmp(bits, rows, palette=b"", compression=0, height=HEIGHT, masks=b""):
    """A BMP file; rows from the lowest, each padded to 4 bytes."""
    data = b"".join(bytes(row) + bytes(-len(row) % 4) for row in rows) if compression != 1 else rows
    header = struct.pack("<IiiHHIIiiII", 40, WIDTH, height, 1, bits, compression, len(data), 0, 0, len(palette) // 4, 0)
    start = 14 + len(header) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + header + masks + palette + data


def run_lengths():
    """The indices as a BMP file of run lengths."""
    rows = []
    for row in INDICES[::-1]:
        starts = [0, *(np.flatnonzero(np.diff(row)) + 1), WIDTH]
        rows.append(b"".join(bytes([b - a, row[a]]) for a, b in pairwise(starts)) + b"\0\0")
    return bmp(8, b"".join(rows) + b"\0\1", bgr_palette(), compression=1)


def bgr_palette():
    return np.pad(PALETTE[:, ::-1], ((0, 0), (0, 1))).tobytes()


def core_bmp():
    """A BMP file with the short header of OS/2."""
    data = b"".join(bytes(row.tobytes()) + bytes(-3 * WIDTH % 4) for row in RGB[::-1, :, ::-1])
    return (
        b"BM" + struct.pack("<IHHI", 26 + len(data), 0, 0, 26) + struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, 24) + data
    )


def without_adobe(content):
    """A JPEG file without the marker that says how its colors are stored."""
    start = content.index(b"\xff\xee")
    return content[:start] + content[start + 2 + int.from_bytes(content[start + 2 : start + 4], "big") :]


def with_transform(content, transform):
    """A JPEG file whose Adobe marker says that its colors are stored in another way."""
    at = content.index(b"Adobe") + 11
    return content[:at] + bytes([transform]) + content[at + 1 :]


def files():
    """Name -> (content, its pixels; None for those of Pillow)."""
    jpeg, lossless = partial(encoded, kind="JPEG", quality=95), {"lossless": True, "exact": True}
    rgba = Image.fromarray(np.dstack([RGB, ALPHA]))
    wide = GRAY.astype("uint16") * 256 + np.uint16(255) * (ALPHA > 0)
    wide_rgb = (RGB.astype(">u2") << 8 | 200).astype(">u2")
    rows_565 = (RGB[..., 0] >> 3).astype("<u2") << 11 | (RGB[..., 1] >> 2).astype("<u2") << 5 | RGB[..., 2] >> 3
    bgra = np.dstack([RGB[..., ::-1], ALPHA])[::-1].reshape(HEIGHT, -1)
    bgr = [row.tobytes() for row in RGB[::-1, :, ::-1]]
    cmyk, palette = BASE.convert("CMYK"), palette_image()
    small_frame = encoded(palette, "GIF", optimize=False)
    small_frame = small_frame[:6] + struct.pack("<HH", WIDTH + 2, HEIGHT + 1) + small_frame[10:]
    later = [scene(1, BASE.size), scene(2, BASE.size)]
    black = PALETTE[INDICES] * (INDICES != 2)[..., None]
    truth = {
        **{f"{kind} turned {i}": (encoded(BASE, kind, exif=turned(i), **options), None)
           for kind, options in (("JPEG", {"quality": 95, "subsampling": 0}), ("PNG", {}), ("WEBP", lossless))
           for i in range(1, 9)},
        "JPEG gray": (jpeg(BASE.convert("L")), None),
        "JPEG progressive": (jpeg(BASE, progressive=True), None),
        "JPEG 4:2:0": (jpeg(BASE, subsampling=2), None),
        "JPEG 4:2:2": (jpeg(BASE, subsampling=1), None),
        "JPEG stored as RGB": (jpeg(BASE, keep_rgb=True), None),
        "JPEG restart markers": (jpeg(BASE, restart_marker_rows=1), None),
        "JPEG CMYK": (jpeg(cmyk), None),
        "JPEG CMYK without Adobe's marker": (without_adobe(jpeg(cmyk)), None),
        "JPEG YCCK": (with_transform(jpeg(cmyk), 2), None),
        "JPEG of several images": (encoded(BASE, "MPO", quality=95, save_all=True, append_images=later), None),
        "JPEG and other bytes": (jpeg(BASE) + b"and more", None),
        "JPEG cut off": (jpeg(BASE)[:-300], None),
        "PNG 1 bit": (png(0, 1, packed(GRAY >> 7, 1)), gray(GRAY // 128 * 255)),
        "PNG 2 bits": (png(0, 2, packed(GRAY >> 6, 2)), gray((GRAY >> 6) * 85)),
        "PNG 4 bits": (png(0, 4, packed(GRAY >> 4, 4)), gray((GRAY >> 4) * 17)),
        "PNG gray": (encoded(BASE.convert("L"), "PNG"), gray(np.asarray(BASE.convert("L")))),
        "PNG gray, transparent": (encoded(Image.fromarray(np.dstack([GRAY, ALPHA])), "PNG"), gray(GRAY)),
        "PNG gray, transparent value": (encoded(Image.fromarray(GRAY), "PNG", transparency=9), gray(GRAY)),
        "PNG gray, 16 bits": (png(0, 16, wide.astype(">u2").view("uint8")), gray(GRAY)),
        "PNG gray, 16 bits, transparent": (
            png(4, 16, np.dstack([wide, wide]).astype(">u2").view("uint8").reshape(HEIGHT, -1)), gray(GRAY)),
        "PNG 16 bits": (png(2, 16, wide_rgb.view("uint8").reshape(HEIGHT, -1)), RGB),
        "PNG RGBA": (encoded(rgba, "PNG"), RGB),
        "PNG RGB, transparent color": (encoded(BASE, "PNG", transparency=tuple(map(int, RGB[2, 2]))), RGB),
        "PNG palette": (encoded(palette, "PNG"), PALETTE[INDICES]),
        "PNG palette, 8 bits": (png(3, 8, INDICES, (b"PLTE", PALETTE.tobytes())), PALETTE[INDICES]),
        "PNG palette, transparent": (encoded(palette, "PNG", transparency=b"\0\x80\xff\x40"), PALETTE[INDICES]),
        "PNG with gamma": (png(2, 8, RGB.reshape(HEIGHT, -1), (b"gAMA", struct.pack(">I", 30000))), RGB),
        "PNG animated": (encoded(BASE, "PNG", save_all=True, append_images=later), RGB),
        "PNG cut off": (encoded(BASE, "PNG")[:-200], None),
        "GIF": (encoded(palette, "GIF"), PALETTE[INDICES]),
        "GIF animated": (encoded(palette, "GIF", save_all=True, append_images=[palette.rotate(180)]), PALETTE[INDICES]),
        "GIF transparent": (encoded(palette, "GIF", transparency=2, optimize=False), black),
        "GIF gray": (encoded(BASE.convert("L"), "GIF"), gray(np.asarray(BASE.convert("L")))),
        "GIF interlaced": (encoded(palette, "GIF", interlace=1), PALETTE[INDICES]),
        "GIF small first frame": (small_frame, None),
        "BMP": (encoded(BASE, "BMP"), RGB),
        "BMP top-down": (bmp(24, bgr[::-1], height=-HEIGHT), RGB),
        "BMP of OS/2": (core_bmp(), RGB),
        "BMP 32 bits": (bmp(32, [row.tobytes() for row in bgra]), RGB),
        "BMP 16 bits": (bmp(16, [row.tobytes() for row in rows_565[::-1]], compression=3,
                            masks=struct.pack("<III", 0xF800, 0x07E0, 0x1F)), None),
        "BMP gray": (encoded(BASE.convert("L"), "BMP"), gray(np.asarray(BASE.convert("L")))),
        "BMP palette": (bmp(8, INDICES[::-1], bgr_palette()), PALETTE[INDICES]),
        "BMP palette, 4 bits": (bmp(4, packed(INDICES, 4)[::-1], bgr_palette()), PALETTE[INDICES]),
        "BMP 1 bit": (encoded(BASE.convert("1"), "BMP"), gray(np.asarray(BASE.convert("1")) * np.uint8(255))),
        "BMP run lengths": (run_lengths(), PALETTE[INDICES]),
        "WebP": (encoded(BASE, "WEBP", quality=90), None),
        "WebP lossless": (encoded(BASE, "WEBP", **lossless), RGB),
        "WebP transparent": (encoded(rgba, "WEBP", **lossless), RGB),
        "WebP lossy, transparent": (encoded(rgba, "WEBP", quality=90), None),
        "WebP animated": (encoded(BASE, "WEBP", save_all=True, append_images=later, lossless=True), RGB),
        "TIFF": (encoded(BASE, "TIFF"), RGB),
        "TIFF LZW, turned": (encoded(BASE, "TIFF", compression="tiff_lzw", tiffinfo={EXIF: 6}), np.rot90(RGB, -1)),
        "TIFF 16 bits": (encoded(Image.fromarray(wide), "TIFF"), gray(GRAY)),
        "TIFF floats": (encoded(Image.fromarray(GRAY.astype("float32")), "TIFF"), None),
        "PPM": (encoded(BASE, "PPM"), RGB),
        "JPEG 2000": (encoded(BASE, "JPEG2000"), RGB),
        "ICO": (encoded(BASE.resize((32, 32)), "ICO", sizes=[(32, 32)]), np.asarray(BASE.resize((32, 32)))),
        "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n", None),
        "text": (b"This is no image.", None),
        "nothing": (b"", None),
    }  # fmt: skip
    return truth


FILES = files()
DAMAGED = {"JPEG cut off", "PNG cut off", "TIFF floats", "PostScript", "text", "nothing"}
# What TensorFlow does not read.
PILLOW = {"GIF small first frame", "WebP animated", "PPM", "JPEG 2000", "ICO"}
PILLOW |= {name for name in FILES if name.startswith("TIFF")}
PILLOW |= {f"BMP {kind}" for kind in ("of OS/2", "16 bits", "palette, 4 bits", "1 bit", "run lengths")}
ROUTES = {
    **dict.fromkeys(("training", "evaluation", "serve_bytes"), DAMAGED | PILLOW),
    **dict.fromkeys(("prepare", "finetune", "classify", "classify .tflite"), DAMAGED),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files in a folder, called 00.png, ..., and in the folder of a class."""
    folder = tmp_path_factory.mktemp("odd")
    for place in (folder / "files", folder / "images" / "test" / "all"):
        place.mkdir(parents=True)
        for number, (content, _) in enumerate(FILES.values()):
            (place / f"{number:02}.png").write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def model():
    """A model that tells small differences of pixels apart."""
    keras.utils.set_random_seed(0)
    fields = {"image_size": 16, "resize": "shortest"}
    sizes = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
    model = keras_vit.VisionTransformer(**sizes, num_classes=5, preprocessing=fields)
    return randomize(model, 0.3, seed=3)


@pytest.fixture(scope="module")
def readers(folder, model):
    """Route -> function from a file's number to (H, W, 3) pixels, or to (5,) probabilities."""
    contents = [content for content, _ in FILES.values()]
    window = tf.function(
        lambda content: decode_window(content, lambda shape: (0, 0, shape[0], shape[1])),
        input_signature=[tf.TensorSpec((), tf.string)],
    )
    served = tf.saved_model.load(write_saved_model(model, folder / "saved"))
    exported = open_exported(write_tflite(model, folder, ["float32"])["float32"])
    rows = {name: number for number, name in enumerate(map("class {}".format, range(5)))}
    evaluated = read_folder(folder / "images")
    # Under another name: files that are skipped are named once for each dataset.
    converted = read_folder(f"{folder}/images/", convert_images(folder / "images", folder / "run")[0])

    def prepared(number):
        outcome, name, result = examine(f"{number:02}.png", str(folder / "files"))
        if outcome != STORED:
            raise ValueError(f"{name}: {result[0]}")
        return decode(tf.constant(result["image"])).numpy()

    def answer(classifier, number):
        [best] = classifier.classify([folder / "files" / f"{number:02}.png"], 5)
        return np.array([probability for _, probability in sorted(best, key=lambda pair: rows[pair[0]])])

    return {
        "training": lambda number: window(contents[number]).numpy(),
        "evaluation": lambda number: evaluated[number],
        "prepare": prepared,
        "finetune": lambda number: converted[number],
        "serve_bytes": lambda number: served.signatures["serve_bytes"](tf.constant(contents[number : number + 1]))[
            "probabilities"
        ][0].numpy(),
        "classify": partial(answer, model),
        "classify .tflite": partial(answer, exported),
    }


def read_folder(images, converted=None):
    """Number -> pixels, of the files that evaluation reads; it must name the others."""
    dataset, errors = open_dataset(Data(f"folder:{images}", converted=converted)), io.StringIO()
    with contextlib.redirect_stderr(errors):
        batches = [*decoded_positions(dataset, "test", 100, 1.0)]
    numbers = [int(Path(name.decode()).stem) for name, *_ in dataset.read("test").as_numpy_iterator()]
    found = {numbers[position]: pixels for batch in batches for pixels, position in zip(*batch)}
    skipped = {number for number in range(len(FILES)) if number not in found}
    assert {number for number in range(len(FILES)) if f"{number:02}.png" in errors.getvalue()} == skipped
    return found


def outcome(readers, route, number, model) -> str:
    """ "equal", "refused", or how a route differs."""
    [(name, (content, expected))] = [[*FILES.items()][number]]
    try:
        found = readers[route](number)
    except (ValueError, tf.errors.InvalidArgumentError, KeyError) as error:
        named = route in ("training", "evaluation", "finetune", "serve_bytes") or f"{number:02}.png" in str(error)
        return "refused" if named else f"refused without its name: {error}"
    if expected is None:
        expected = np.asarray(ImageOps.exif_transpose(opened(content)).convert("RGB"))
        if name == "JPEG CMYK without Adobe's marker":  # which Pillow takes for granted
            expected = np.asarray(Image.eval(opened(content), lambda value: 255 - value).convert("RGB"))
    if found.ndim == 1:
        logits = model.predict_on_batch(model.preprocess(expected))
        expected = keras.ops.softmax(logits)[0].numpy()
        return "equal" if np.abs(found - expected).max() < 1e-4 else f"probabilities {found}, not {expected}"
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    # TensorFlow's default transform of JPEG files and another rounding of YCCK; `prepare` encodes turned ones again.
    difference, most = np.abs(found.astype(int) - expected), 0
    if name.startswith("JPEG"):
        most = 32 if route == "prepare" else 16
    is_equal = difference.max() <= most and difference.mean() <= most / 8
    return "equal" if is_equal else f"pixels differ by up to {difference.max()}"


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_all_routes_read_the_same_pixels(route, readers, model):
    assert len(FILES) > 55
    found = {name: outcome(readers, route, number, model) for number, name in enumerate(FILES)}
    assert found == {name: "refused" if name in ROUTES[route] else "equal" for name in FILES}
