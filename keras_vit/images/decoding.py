"""Image files to upright RGB pixels of a model's size in TensorFlow's graphs, for training and SavedModels. H W pixels.

JPEG, PNG, GIF (the first frame), BMP and WebP files of any colors become (H, W, 3) uint8 RGB, including gray, palette,
CMYK and 16-bit files; transparency is dropped, and transparent pixels of GIF files are black. JPEG, PNG and WebP
photographs of a turned camera are turned upright, as their EXIF data say.

What TensorFlow does not read, or reads wrongly, raises an error: TIFF files, BMP files of 1, 4 or 16 bits, animated
WebP files (TensorFlow writes beyond its memory), GIF files whose first frame is smaller than the image, and sizes
beyond the limits of `keras_vit.images.rgb`.

EXIF data are found by the word before them in JPEG, PNG and WebP files and by the header of TIFF after it: a loop over
the parts of a file would take much longer than this search. Their tags are those of TIFF 6.0, section 2, and Exif 2.3,
section 4.6.4.
"""

import tensorflow as tf

from keras_vit.images.pixel_range import window
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.images.resizing import clips_each_axis, size_before_crop
from keras_vit.images.rgb import MAX_ASPECT, MAX_PIXELS

TAG, UPRIGHT = 0x0112, 1
JPEG, PNG, WEBP = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"WEBP"
MARK = b"Exif\0\0"  # begins the data in JPEG files; some programs write it in the others, too
TIFF = (b"II*\0", b"MM\0*")
MOST_BYTES, MOST_TAGS = 4096, 64  # that are read: cameras write some 15 tags in the first few hundred bytes
# Orientations whose upright image is the stored one with rows and columns exchanged, then mirrored, then upside down.
EXCHANGED, MIRRORED, UPSIDE_DOWN = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)


def decode(encoded, accurate: bool = False, place: tuple = (), pixel_range: tuple[int, int] | None = None):
    """Decodes an encoded image, a scalar string, to (H, W, 3) uint8; returns decoded images unchanged.

    Args:
        encoded: The content of a file, or (H, W, 3) pixels.
        accurate: Whether JPEG files have the pixels of Pillow, and so of `model.classify`. TensorFlow's default, a
            faster cosine transform, differs by up to 21 gray levels.
        place: Texts and scalars that errors of this module name, such as the image's index in a batch.
        pixel_range: Of gray PNG files of 16 bits, see `keras_vit.Preprocessing`.
    """
    if encoded.dtype != tf.string:
        return encoded

    def decode_other():
        if not accurate:
            return tf.io.decode_image(encoded, channels=3, expand_animations=False)
        return tf.cond(
            _is_jpeg(encoded),
            lambda: tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE"),
            lambda: tf.io.decode_image(encoded, channels=3, expand_animations=False),
        )

    head = tf.cast(tf.io.decode_raw(encoded, tf.uint8, fixed_length=32), tf.int32)  # zeros after a shorter file
    is_webp = tf.reduce_all(head[8:12] == list(WEBP))
    is_animated = is_webp & tf.reduce_all(head[12:16] == list(b"VP8X")) & (head[20] & 2 > 0)
    is_png = tf.reduce_all(head[:8] == list(PNG))
    check = tf.debugging.Assert(~is_animated, ["animated WebP files are not supported by TensorFlow", *place])
    with tf.control_dependencies([check, *_size_checks(tf.where(is_png, _sides(head[16:24]), 1), place)]):
        # TensorFlow decodes only the channels that a WebP file has: 3, or 4 with transparency.
        image = tf.cond(is_webp, lambda: tf.io.decode_image(encoded, expand_animations=False)[..., :3], decode_other)
        if pixel_range:
            # Bytes 24 and 25: bits and kind of the colors, 0 for gray.
            is_deep = is_png & (head[24] == 16) & (head[25] == 0)
            image = tf.cond(is_deep, lambda: _windowed(encoded, pixel_range), lambda: tf.identity(image))
    is_gif = tf.reduce_all(head[:3] == list(b"GIF"))
    is_whole = ~is_gif | tf.reduce_all(tf.shape(image)[:2] >= head[8:5:-2] + 256 * head[9:6:-2])
    checks = [
        tf.debugging.Assert(
            is_whole, ["GIF files whose first frame is smaller than the image are not supported", *place]
        ),
        *_size_checks(tf.shape(image)[:2], place),
    ]
    with tf.control_dependencies(checks):
        # Byte 28: bits per pixel. At 8, TensorFlow returns the indices of the palette's colors as gray values.
        has_palette = tf.reduce_all(head[:2] == list(b"BM")) & (head[28] == 8)
        image = tf.cond(has_palette, lambda: _colors(encoded, head, image[..., 0]), lambda: tf.identity(image))
        return tf.ensure_shape(turn_upright(image, orientation(encoded)), (None, None, 3))


def _windowed(encoded, pixel_range):
    """(H, W, 3) uint8 of a gray PNG file of 16 bits."""
    values = tf.cast(tf.io.decode_png(encoded, channels=1, dtype=tf.uint16), tf.int32)
    gray = tf.cast(window(values, pixel_range, tf.clip_by_value), tf.uint8)
    return tf.repeat(gray, 3, axis=-1)


def _colors(encoded, head, indices):
    """RGB of the indices (H, W) of a BMP file's palette, which follows its two headers, in blue, green, red and 0."""
    palette = tf.strings.substr(encoded, 14 + head[14] + 256 * head[15], 4 * 256)
    palette = tf.reshape(tf.io.decode_raw(palette, tf.uint8, fixed_length=4 * 256), (256, 4))
    return tf.gather(palette[:, 2::-1], tf.cast(indices, tf.int32))


def _sides(big_endian):
    """(height, width) of the 8 bytes of width and height in a PNG file, int32."""
    width, height = tf.unstack(tf.reduce_sum(tf.reshape(big_endian, (2, 4)) * [2**24, 2**16, 2**8, 1], axis=1))
    return tf.stack([height, width])


def _size_checks(sides, place: tuple = ()) -> list:
    """Assertions on the (height, width) of an image, see MAX_PIXELS and MAX_ASPECT."""
    short, long = (tf.cast(side, tf.int64) for side in (tf.reduce_min(sides), tf.reduce_max(sides)))
    fits = (long <= MAX_ASPECT * short) & (short * long <= MAX_PIXELS)
    message = f"pixels (height, width); at most {MAX_PIXELS:,} are read, and sides of at most {MAX_ASPECT} to 1"
    return [tf.debugging.Assert(fits, ["the image has", sides, message, *place])]


def jpeg_shape(encoded):
    """The (H, W, C) of a JPEG file that is within the limits of `decode`, int32."""
    shape = tf.io.extract_jpeg_shape(encoded)
    with tf.control_dependencies(_size_checks(shape[:2])):
        return tf.identity(shape)


# Traced once in a process, and not in every dataset.
@tf.function(input_signature=[tf.TensorSpec((), tf.string)], autograph=False)
def orientation(encoded):
    """The orientation of an encoded image, a scalar string: int32 from 1 (upright) to 8.

    It is 1 for other files than JPEG, PNG and WebP, without EXIF data, and where these are damaged.
    """
    head = tf.strings.substr(encoded, 0, 12)
    is_jpeg = _is_jpeg(head)
    is_png = tf.strings.substr(head, 0, 8) == PNG
    is_webp = tf.strings.substr(head, tf.minimum(8, tf.strings.length(head)), 4) == WEBP
    word = tf.where(is_png, b"eXIf", tf.where(is_webp, b"EXIF", MARK))
    parts = tf.strings.split(encoded[None], word, maxsplit=1).values
    has_word = (tf.size(parts) > 1) & (is_jpeg | is_png | is_webp)

    def read():
        # A JPEG file in the file, such as a second image after the first, has EXIF data of its own.
        is_own = ~is_jpeg | (tf.size(tf.strings.split(parts[:1], JPEG).values) == 2)
        size_bytes = tf.where(is_webp, 4, 0)  # a WebP file has the size of the data after the word
        return tf.where(is_own, _read(parts[1], size_bytes), UPRIGHT)

    return tf.cond(has_word, read, lambda: UPRIGHT)


def turn_upright(image, orientation):
    """Turns an image (H, W, 3) of an `orientation`: (H, W, 3) or (W, H, 3)."""
    image = tf.cond(_is_among(orientation, EXCHANGED), lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
    image = tf.cond(_is_among(orientation, MIRRORED), lambda: image[:, ::-1], lambda: image)
    return tf.cond(_is_among(orientation, UPSIDE_DOWN), lambda: image[::-1], lambda: image)


def resize_and_crop(images, preprocessing: Preprocessing):
    """`preprocessing` without its scaling, for images whose size is known only when the graph runs.

    Args:
        images: (H, W, 3) or (B, H, W, 3), uint8 or float32 pixels in [0, 255].
        preprocessing: Its `image_size` is (height, width).

    Returns:
        (height, width, 3) or (B, height, width, 3) float32 in [0, 255].
    """
    size, resize = preprocessing.image_size, preprocessing.resize
    method, antialias = preprocessing.interpolation, preprocessing.antialias
    target = size_before_crop(size, preprocessing.crop_fraction)
    sides = tf.cast(tf.shape(images)[-3:-1], tf.float64)  # float64 rounds as Python's floats do
    sides *= tf.reduce_max(tf.constant(target, tf.float64) / sides)
    if resize == "squash":
        shape = tf.constant(target)
    elif resize == "shortest":
        shape = tf.maximum(target, tf.cast(sides + 1e-6, tf.int32))
    else:
        shape = tf.cast(tf.round(sides), tf.int32)
        method, antialias = "area", False
    images = tf.cast(images, tf.float32)
    if clips_each_axis(preprocessing) and method != "area":
        wide = tf.image.resize(images, (tf.shape(images)[-3], shape[1]), method, antialias=antialias)
        images = tf.clip_by_value(wide, 0, 255)
    images = tf.clip_by_value(tf.image.resize(images, shape, method, antialias=antialias), 0, 255)
    rest = shape - size
    top, left = tf.unstack(rest // 2 if method == "area" else tf.cast(tf.round(rest / 2), tf.int32))
    images = images[..., top : top + size[0], left : left + size[1], :]
    return tf.ensure_shape(images, (*images.shape[:-3], *size, images.shape[-1]))


def is_upright_jpeg(encoded):
    """Whether an encoded image is a JPEG file whose pixels are stored upright, a scalar."""
    return tf.cond(_is_jpeg(encoded), lambda: orientation(encoded) == UPRIGHT, lambda: False)


def _is_jpeg(encoded):
    return tf.strings.substr(encoded, 0, len(JPEG)) == JPEG


def _is_among(value, values):
    return tf.reduce_any(value == tf.constant(values))


def _read(exif, start):
    """The tag of EXIF data from byte `start` on: a TIFF header, which MARK may precede, and what it refers to."""
    exif = tf.strings.substr(exif, tf.minimum(start, tf.strings.length(exif)), len(MARK) + MOST_BYTES)
    has_mark = tf.strings.substr(exif, 0, len(MARK)) == MARK
    exif = tf.strings.substr(exif, tf.where(has_mark, len(MARK), 0), MOST_BYTES)
    is_tiff = tf.reduce_any(tf.strings.substr(exif, 0, 4) == TIFF)
    data = tf.cast(tf.io.decode_raw(exif, tf.uint8, fixed_length=MOST_BYTES), tf.int32)  # zeros after its end
    places = tf.range(4)
    shifts = 8 * tf.where(data[0] == ord("I"), places, 3 - places)  # little endian, or big endian

    def number(positions, count):
        indices = tf.clip_by_value(positions[..., None] + places[:count], 0, MOST_BYTES - 1)
        used = shifts[:count] - tf.reduce_min(shifts[:count])
        return tf.reduce_sum(tf.bitwise.left_shift(tf.gather(data, indices), used), axis=-1)

    directory = number(tf.constant(4), 4)
    tags = directory + 2 + 12 * tf.range(tf.minimum(number(directory, 2), MOST_TAGS))
    values = tf.boolean_mask(number(tags + 8, 2), number(tags, 2) == TAG)
    orientation_value = tf.concat([values, [UPRIGHT]], 0)[0]
    return tf.where(is_tiff & (1 <= orientation_value) & (orientation_value <= 8), orientation_value, UPRIGHT)
