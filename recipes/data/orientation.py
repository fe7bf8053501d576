"""The EXIF orientation of JPEG files in TensorFlow's graphs: photographs of a turned camera become upright. H W pixels.

Layout of the bytes: JPEG's segments, then the tags of TIFF 6.0, section 2; the tag is that of Exif 2.3, section 4.6.4.
"""

import tensorflow as tf

TAG, UPRIGHT = 0x0112, 1
# Where "Exif" is: cameras write it into the first segment, other programs after JFIF's, which has 18 bytes.
POSITIONS, MARK, JPEG = (6, 24), b"Exif\0\0", b"\xff\xd8\xff"
MOST_BYTES, MOST_TAGS = 4096, 64  # that are read: cameras write some 15 tags in the first few hundred bytes
# Orientations whose upright image is the stored one with rows and columns exchanged, then mirrored, then upside down.
EXCHANGED, MIRRORED, UPSIDE_DOWN = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)


def orientation(encoded):
    """The orientation of an encoded image, a scalar string: int32 from 1 (upright) to 8.

    It is 1 for other files than JPEG, without EXIF data, and where these are damaged.
    """
    head = tf.io.decode_raw(encoded, tf.uint8, fixed_length=max(POSITIONS) + len(MARK))  # zeros after a shorter file
    is_exif = [tf.reduce_all(head[start : start + len(MARK)] == list(MARK)) for start in POSITIONS]
    is_jpeg = tf.reduce_all(head[: len(JPEG)] == list(JPEG))
    tiff = tf.where(is_exif[0], *POSITIONS) + len(MARK)
    return tf.cond(is_jpeg & (is_exif[0] | is_exif[1]), lambda: _read(encoded, tiff), lambda: UPRIGHT)


def turn_upright(image, orientation):
    """Turns an image (H, W, 3) of an `orientation`: (H, W, 3) or (W, H, 3)."""
    image = tf.cond(_is_among(orientation, EXCHANGED), lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
    image = tf.cond(_is_among(orientation, MIRRORED), lambda: image[:, ::-1], lambda: image)
    return tf.cond(_is_among(orientation, UPSIDE_DOWN), lambda: image[::-1], lambda: image)


def _is_among(value, values):
    return tf.reduce_any(value == tf.constant(values))


def _read(encoded, tiff):
    """The tag of the EXIF data whose TIFF header is at byte `tiff`."""
    start = tf.io.decode_raw(tf.strings.substr(encoded, 0, MOST_BYTES), tf.uint8)
    data = tf.pad(tf.cast(start, tf.int32), [[0, MOST_BYTES - tf.size(start)]])
    places = tf.range(4)
    shifts = 8 * tf.where(data[tiff] == ord("I"), places, 3 - places)  # little endian, or big endian

    def number(positions, count):
        indices = tf.clip_by_value(positions[..., None] + places[:count], 0, MOST_BYTES - 1)
        used = shifts[:count] - tf.reduce_min(shifts[:count])
        return tf.reduce_sum(tf.bitwise.left_shift(tf.gather(data, indices), used), axis=-1)

    directory = tiff + number(tiff + 4, 4)
    tags = directory + 2 + 12 * tf.range(tf.minimum(number(directory, 2), MOST_TAGS))
    values = tf.boolean_mask(number(tags + 8, 2), number(tags, 2) == TAG)
    found = tf.concat([values, [UPRIGHT]], 0)[0]
    return tf.where((1 <= found) & (found <= 8), found, UPRIGHT)
