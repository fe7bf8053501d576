"""Images as users have them, to RGB pixels: paths, Pillow images, gray and RGBA arrays. B batch, H W pixels."""

import functools
import os
from contextlib import suppress

import numpy as np

from keras_vit.images.pixel_range import window

EXPECTED = (
    "Expected images as arrays (H, W, 3) or (B, H, W, 3), gray (H, W) or (..., 1), RGBA (..., 4), as paths or Pillow "
    "images, one or a list of them."
)
# What Pillow may open: the others include PostScript, for which it starts another program. HEIF: with pillow_heif.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO", "HEIF")
# Limits of an image file: Pillow's, and longer side / shorter side, which a resize of the shorter side keeps.
MAX_PIXELS, MAX_ASPECT = 178_956_970, 200
LUMA = (19595, 38470, 7471)  # Pillow's weights of red, green and blue, of 65536
NO_HEIC = "it is HEIC, which Pillow reads after pip install pillow-heif; or save it as JPEG"
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
ORIENTATION, TURNED = 0x0112, range(2, 9)  # EXIF tag: how to turn the stored image upright


def as_rgb(image, pixel_range: tuple[int, int] | None = None):
    """One image, or a batch of one size, as RGB pixels.

    Args:
        image: The path of an image file; a Pillow image; or an array or tensor (H, W), (H, W, C) or (B, H, W, C), with
            C = 1 for gray, 3 for RGB, 4 for RGBA.
        pixel_range: Of images of 16 bits, see `keras_vit.Preprocessing`.

    Returns:
        (H, W, 3) or (B, H, W, 3), of the array's dtype; uint8 from a file or a Pillow image. Files and Pillow images
        are turned as their EXIF orientation says, 16 bits are reduced to 8. Transparency is dropped; transparent pixels
        of GIF files are black, as in TensorFlow.
    """
    if isinstance(image, (str, os.PathLike)):
        return _from_file(image, pixel_range)
    if hasattr(image, "getexif"):
        return _from_pillow(image, pixel_range)
    image = _windowed(_from_mask(image), pixel_range)
    shape = tuple(getattr(image, "shape", ()))
    if len(shape) == 2 and 0 not in shape:
        return _repeated(image[..., None])
    if len(shape) not in (3, 4) or shape[-1] not in (1, 3, 4) or 0 in shape:
        raise ValueError(f"{EXPECTED} Received: {type(image).__name__} of shape {shape}")
    return {1: _repeated, 3: lambda pixels: pixels, 4: lambda pixels: pixels[..., :3]}[shape[-1]](image)


def as_channels(image, channels: int, pixel_range: tuple[int, int] | None = None):
    """`as_rgb` for models of other channels: (H, W, C) or (B, H, W, C), gray if C = 1, else arrays of C channels."""
    if channels == 3:
        return as_rgb(image, pixel_range)
    image = _windowed(_from_mask(image), pixel_range)
    shape = tuple(getattr(image, "shape", ()))
    if len(shape) in (3, 4) and shape[-1] == channels and 0 not in shape:
        return image
    if channels != 1:
        received = f"the shape {shape}" if shape else type(image).__name__
        raise ValueError(
            f"The model takes {channels} channels: arrays (H, W, {channels}) or (B, H, W, {channels}) in Python, no "
            f"image files. Received: {received}"
        )
    return image[..., None] if len(shape) == 2 and 0 not in shape else gray(as_rgb(image, pixel_range))


def _windowed(image, pixel_range):
    """Arrays and tensors of 16-bit integers as uint8, see `as_rgb`; others as they are."""
    dtype = getattr(image, "dtype", "")
    if pixel_range is None or getattr(dtype, "name", str(dtype)) not in ("uint16", "int16"):
        return image
    if isinstance(image, np.ndarray):
        return window(image.astype("int32"), pixel_range, np.clip).astype("uint8")
    from keras import ops

    return ops.cast(window(ops.cast(image, "int32"), pixel_range, ops.clip), "uint8")


def _from_mask(image):
    """A mask of True and False as black and white, as Pillow's mode "1"; others as they are."""
    is_mask = "bool" in str(getattr(image, "dtype", ""))
    return np.asarray(image, "uint8") * np.uint8(255) if is_mask else image


def gray(pixels):
    """RGB (..., 3) to gray (..., 1) of the same dtype, by ITU-R 601-2; integers as by Pillow's `convert("L")`."""
    if isinstance(pixels, np.ndarray):
        cast = np.ndarray.astype  # clients of exported files have no Keras
    else:
        from keras.ops import cast
    dtype, is_integer = pixels.dtype, "int" in str(pixels.dtype)
    red, green, blue = (cast(pixels[..., i : i + 1], "int32" if is_integer else dtype) * LUMA[i] for i in range(3))
    total = red + green + blue
    return cast((total + 32768) // 65536, dtype) if is_integer else total / 65536


def _repeated(gray):
    """(..., 1) -> (..., 3)."""
    if isinstance(gray, np.ndarray):
        return np.repeat(gray, 3, axis=-1)
    from keras import ops

    return ops.repeat(gray, 3, axis=-1)


def open_image(file):
    """Opens an image file, a path or a binary file object, with Pillow; its pixels are read when they are used.

    Raises:
        OSError: The file is missing or is not an image of `FORMATS`.
        ValueError: It has more pixels than `MAX_PIXELS`, or one side is longer than `MAX_ASPECT` times the other; or it
            is HEIC and pillow-heif is not installed.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Reading image files requires Pillow: pip install pillow") from error
    Image.init()
    _register_heif()
    try:
        image = Image.open(file, formats=[name for name in FORMATS if name in Image.OPEN])
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error
    except UnidentifiedImageError as error:
        if "HEIF" not in Image.OPEN and _is_heic(file):
            raise ValueError(NO_HEIC) from error
        raise
    short, long = sorted(image.size)
    if long > MAX_ASPECT * short or short * long > MAX_PIXELS:
        image.close()
        raise ValueError(
            f"it has {image.width} x {image.height} pixels; at most {MAX_PIXELS:,} are read, and sides of at most "
            f"{MAX_ASPECT} to 1"
        )
    return image


@functools.cache
def _register_heif():
    """Lets Pillow read HEIC if pillow-heif is installed, which does not register itself."""
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()


def _is_heic(file) -> bool:
    """Whether a file, a path or a binary file object, has the name or the beginning of a HEIC image."""
    if str(getattr(file, "name", file)).lower().endswith((".heic", ".heif")):
        return True
    if hasattr(file, "read"):
        file.seek(0)
        start = file.read(12)
    else:
        with open(file, "rb") as opened:
            start = opened.read(12)
    return start[4:8] == b"ftyp" and start[8:] in HEIC_BRANDS


def _from_file(path, pixel_range):
    if os.path.isdir(path):
        raise ValueError(
            f"{path} is a folder. Expected image files, such as list(pathlib.Path({str(path)!r}).glob('*.jpg'))."
        )
    try:
        with open_image(path) as image:
            return _from_pillow(image, pixel_range)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no image {os.path.abspath(path)}") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path, error: Exception) -> ValueError:
    """The error for a file that Pillow does not read, for Pillow's reason."""
    fix = "" if str(error) == NO_HEIC else " Fix the file or leave it out."
    return ValueError(f"{path} cannot be read as an image: {error}.{fix}")


def _from_pillow(image, pixel_range):
    if image.format == "GIF" and "transparency" in image.info:
        pixels = np.asarray(image.convert("RGBA"))
        return np.where(pixels[..., 3:] > 0, pixels[..., :3], 0).astype("uint8")
    upright = reduce_to_8_bits(turned_upright(image), pixel_range)
    if image.mode == "CMYK" and image.format in ("JPEG", "MPO") and "adobe" not in image.info:
        upright = upright.point(lambda value: 255 - value)  # Pillow takes inverted colors for granted, as Adobe's are
    if image.mode == "P" and "transparency" in image.info:
        upright = upright.convert("RGBA")  # a direct conversion warns
    return np.asarray(upright.convert("RGB"))


def turned_upright(image):
    """A Pillow image turned by its EXIF orientation; the same object if it is upright or its EXIF data is damaged."""
    from PIL import ImageOps

    with suppress(Exception):  # nearly anything; the image itself may be intact
        if orientation(image) in TURNED:
            return ImageOps.exif_transpose(image)
    return image


def orientation(image) -> int:
    """The EXIF orientation of a Pillow image: 1 (upright) to 8; 1 if the data is missing or damaged.

    From 5 on, height and width of the upright image are those that are stored, exchanged.
    """
    with suppress(Exception):
        if image.format != "TIFF" and (value := image.getexif().get(ORIENTATION)) in TURNED:  # Pillow turns TIFF itself
            return int(value)
    return 1


def reduce_to_8_bits(image, pixel_range: tuple[int, int] | None = None):
    """Converts a 16-bit gray Pillow image to 8 bits, mode "L", as TensorFlow does; returns other images unchanged.

    With a `pixel_range`, as `keras_vit.Preprocessing` says.

    Pillow's own `convert` clips at 255, which turns most 16-bit images white.
    """
    from PIL import Image

    if image.mode == "F":
        raise ValueError("the pixels are floats, of unknown range; save the image with 8 or 16 bits")
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image, "int64")
    values = np.clip(values >> 8, 0, 255) if pixel_range is None else window(values, pixel_range, np.clip)
    return Image.fromarray(values.astype("uint8"))
