"""Writes tests/golden/images/: small image files of every kind with the digests of their pixels as Pillow and
transformers decode them (files/, files.json), settings of released models (models/), and what transformers' image
processors and processors make of pictures with them (pictures.json).

Needs torch, torchvision, transformers and Pillow. Usage: python make_image_goldens.py tests/golden/images
"""

import hashlib
import io
import json
import pathlib
import struct
import sys
import zlib

import numpy as np
import torch
import transformers
from PIL import Image, ImageOps
from transformers.image_transforms import convert_to_rgb
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.smolvlm.processing_smolvlm import SmolVLMProcessor

out = pathlib.Path(sys.argv[1])
rng = np.random.RandomState(0)
digest = lambda data: hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------- image files
def waves(height, width, channels, dtype=np.uint8, most=255):
    y, x = np.mgrid[0:height, 0:width]
    noise = lambda: rng.uniform(-0.1, 0.1, (height, width))
    planes = [0.5 + 0.4 * np.sin(x / (3 + c) + y / (5 + 2 * c)) + noise() for c in range(channels)]
    values = (np.stack(planes, -1).clip(0, 1) * most).astype(dtype)
    return values[..., 0] if channels == 1 else values


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(samples, depth):
    samples = np.asarray(samples).reshape(-1)
    if depth == 16:
        return samples.astype(">u2").tobytes()
    bits = "".join(format(int(value), f"0{depth}b") for value in samples)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png(samples, depth, color, extra=b"", interlaced=False):
    """A PNG of [height, width, channels] that Pillow would not write."""
    height, width = samples.shape[:2]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b""
    for x, y, right, down in passes if interlaced else [(0, 0, 1, 1)]:
        part = samples[y::down, x::right]
        rows += b"".join(b"\0" + packed(row, depth) for row in part) if part.size else b""
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
    pixels = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + pixels


def image_files():
    rgb, grey = Image.fromarray(waves(37, 61, 3)), Image.fromarray(waves(37, 61, 1))
    rgba, inks = Image.fromarray(waves(21, 17, 4)), Image.fromarray(waves(21, 17, 4), "CMYK")
    small, thin = Image.fromarray(waves(5, 7, 3)), Image.fromarray(waves(3, 200, 3))
    colors = rgb.convert("P", palette=Image.Palette.ADAPTIVE, colors=13)
    for sampling in (0, 1, 2):
        yield f"sampling{sampling}.jpg", encoded(rgb, "JPEG", quality=80, subsampling=sampling)
    yield "progressive.jpg", encoded(rgb, "JPEG", progressive=True, subsampling=2)
    yield "grey.jpg", encoded(grey, "JPEG")
    yield "cmyk.jpg", encoded(inks, "JPEG")
    yield "thin.jpg", encoded(thin, "JPEG")
    yield "point.jpg", encoded(small.crop((0, 0, 1, 1)), "JPEG")
    yield "rgb.png", encoded(rgb.crop((0, 0, 30, 20)), "PNG")
    yield "grey.png", encoded(grey.crop((0, 0, 30, 20)), "PNG")
    yield "alpha.png", encoded(rgba, "PNG")
    yield "grey_alpha.png", encoded(Image.fromarray(waves(9, 7, 2), "LA"), "PNG")
    yield "palette.png", encoded(colors, "PNG")
    yield "palette_one_clear.png", encoded(colors, "PNG", transparency=3)
    yield "palette_alpha.png", encoded(colors, "PNG", transparency=bytes([0, 50, 100, 255, 200]))
    yield "thin.png", encoded(thin.transpose(Image.Transpose.ROTATE_90), "PNG")
    for color, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):
        samples = waves(6, 9, channels, np.uint16, 65535).reshape(6, 9, channels)
        if color == 0:
            samples = samples // 128  # Pillow cuts off what is above 255
        key = chunk(b"tRNS", samples[0, 0].astype(">u2").tobytes()) if color in (0, 2) else b""
        yield f"deep{color}.png", png(samples, 16, color, key)
        yield f"deep{color}_interlaced.png", png(samples, 16, color, interlaced=True)
    for depth in (1, 2, 4):
        samples = rng.randint(0, 1 << depth, (9, 11, 1))
        key = chunk(b"tRNS", samples[0, 0].astype(">u2").tobytes())
        yield f"bits{depth}.png", png(samples, depth, 0, interlaced=depth == 2)
        yield f"bits{depth}_key.png", png(samples, depth, 0, key)
        palette = chunk(b"PLTE", rng.randint(0, 256, ((1 << depth) - 1, 3)).astype(np.uint8).tobytes())
        yield f"bits{depth}_palette.png", png(samples, depth, 3, palette)  # one index is beyond it
    yield "lossy.webp", encoded(rgb, "WEBP", quality=60)
    yield "lossy_alpha.webp", encoded(rgba, "WEBP", quality=60)
    yield "lossless.webp", encoded(small, "WEBP", lossless=True)
    yield "lossless_alpha.webp", encoded(rgba, "WEBP", lossless=True, exact=True)
    for orientation in range(10):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"turn{orientation}.jpg", encoded(small, "JPEG", exif=exif, quality=95)
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    exif = Image.Exif()
    exif[0x0112] = 8
    yield "turn_xmp.jpg", encoded(small, "JPEG", xmp=xmp)
    yield "turn.webp", encoded(small, "WEBP", exif=exif)
    yield "turn_xmp.webp", encoded(small, "WEBP", xmp=xmp)
    yield "turn.png", encoded(small, "PNG", exif=exif)
    plain = encoded(small, "PNG")
    yield "turn_late.png", plain[:-12] + chunk(b"eXIf", exif.tobytes()[6:]) + plain[-12:]
    # What is no image, or not a whole one: errors here and there.
    jpeg, progressive = encoded(rgb, "JPEG"), encoded(rgb, "JPEG", progressive=True)
    yield "bad_cut.jpg", jpeg[:-100]
    yield "bad_cut_progressive.jpg", progressive[:-2]
    yield "bad_cut.png", plain[:len(plain) // 2]
    yield "bad_cut.webp", encoded(rgb, "WEBP")[:200]
    yield "bad_text.png", b"<html>not found</html>"
    yield "bad_empty.png", b""


def picture_of(path):
    image = ImageOps.exif_transpose(Image.open(path))
    return convert_to_rgb(image, return_numpy=True)


# ---------------------------------------------------------------- models
HALF = [0.5, 0.5, 0.5]
MODELS = {
    "qwen2_5_vl": dict(
        preprocessor_config=dict(
            min_pixels=3136, max_pixels=12845056, patch_size=14, temporal_patch_size=2, merge_size=2,
            image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711],
            image_processor_type="Qwen2VLImageProcessor", processor_class="Qwen2_5_VLProcessor"),
        config=dict(vision_config=dict(patch_size=14, spatial_merge_size=2, temporal_patch_size=2))),
    "qwen3_vl": dict(
        preprocessor_config=dict(
            size=dict(longest_edge=16777216, shortest_edge=65536), patch_size=16, temporal_patch_size=2, merge_size=2,
            image_mean=HALF, image_std=HALF, processor_class="Qwen3VLProcessor",
            image_processor_type="Qwen2VLImageProcessorFast"),
        config=dict(vision_config=dict(patch_size=16, spatial_merge_size=2, temporal_patch_size=2))),
    "gemma3": dict(
        preprocessor_config=dict(
            do_convert_rgb=None, do_normalize=True, do_pan_and_scan=None, do_rescale=True, do_resize=True,
            image_mean=HALF, image_std=HALF, image_processor_type="Gemma3ImageProcessor", image_seq_length=256,
            pan_and_scan_max_num_crops=None, pan_and_scan_min_crop_size=None, pan_and_scan_min_ratio_to_activate=None,
            processor_class="Gemma3Processor", resample=2, rescale_factor=0.00392156862745098,
            size=dict(height=896, width=896)),
        processor_config=dict(image_seq_length=256, processor_class="Gemma3Processor"),
        config=dict(mm_tokens_per_image=256, vision_config=dict(patch_size=14, image_size=896)),
        tokenizer_config=dict(
            boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>")),
    "gemma4": dict(
        processor_config=dict(
            image_processor=dict(
                do_convert_rgb=True, do_normalize=False, do_rescale=True, do_resize=True, image_mean=[0.0] * 3,
                image_std=[1.0] * 3, image_processor_type="Gemma4ImageProcessor", image_seq_length=280,
                max_soft_tokens=280, patch_size=16, pooling_kernel_size=3, resample=3,
                rescale_factor=0.00392156862745098),
            image_seq_length=280, processor_class="Gemma4Processor"),
        config=dict(vision_config=dict(patch_size=16, pooling_kernel_size=3)),
        tokenizer_config=dict(model_specific_special_tokens=dict(
            boi_token="<|image>", eoi_token="<image|>", image_token="<|image|>"))),
    "lfm2_vl": dict(
        preprocessor_config=dict(
            crop_size=None, data_format="channels_first", default_to_square=True, device=None, disable_grouping=None,
            do_center_crop=None, do_convert_rgb=None, do_image_splitting=True, do_normalize=True, do_pad=True,
            do_rescale=True, do_resize=True, downsample_factor=2, encoder_patch_size=16, image_mean=HALF,
            image_std=HALF, image_processor_type="Lfm2VlImageProcessorFast", input_data_format=None,
            max_image_tokens=256,
            max_num_patches=1024, max_pixels_tolerance=2.0, max_tiles=10, min_image_tokens=64, min_tiles=2,
            processor_class="Lfm2VlProcessor", resample=2, rescale_factor=0.00392156862745098,
            return_row_col_info=False, return_tensors=None, size=dict(height=512, width=512), tile_size=512,
            use_thumbnail=True),
        config=dict(downsample_factor=2, vision_config=dict(patch_size=16))),
    "smolvlm": dict(
        preprocessor_config=dict(
            do_convert_rgb=True, do_image_splitting=True, do_normalize=True, do_pad=True, do_rescale=True,
            do_resize=True, image_mean=HALF, image_std=HALF, image_processor_type="SmolVLMImageProcessor",
            max_image_size=dict(longest_edge=512), processor_class="SmolVLMProcessor", resample=1,
            rescale_factor=0.00392156862745098, size=dict(longest_edge=2048)),
        processor_config=dict(image_seq_len=64, processor_class="SmolVLMProcessor"),
        config=dict(scale_factor=4, vision_config=dict(patch_size=16, image_size=512))),
}
CLASSES = {
    "qwen2_5_vl": (transformers.Qwen2VLImageProcessor, Qwen3VLProcessor),
    "qwen3_vl": (transformers.Qwen2VLImageProcessor, Qwen3VLProcessor),
    "gemma3": (transformers.Gemma3ImageProcessor, Gemma3Processor),
    "gemma4": (transformers.Gemma4ImageProcessor, Gemma4Processor),
    "lfm2_vl": (transformers.Lfm2VlImageProcessor, Lfm2VlProcessor),
    "smolvlm": (transformers.SmolVLMImageProcessor, SmolVLMProcessor),
}
# Of processors that their tokenizers' files do not name: the defaults of transformers' classes.
DEFAULT_TOKENS = {
    "qwen2_5_vl": dict(image_token="<|image_pad|>"),
    "qwen3_vl": dict(image_token="<|image_pad|>"),
    "lfm2_vl": dict(image_token="<image>", image_start_token="<|image_start|>", image_end_token="<|image_end|>",
                    image_thumbnail_token="<|img_thumbnail|>"),
    "smolvlm": dict(image_token="<image>", fake_image_token="<fake_token_around_image>",
                    global_image_token="<global-img>", image_seq_len=64),
}


def as_patches(images, size):
    """[n, channels, height, width] as a convolution of this stride sees them: [patches, channels * size * size]."""
    n, c, h, w = images.shape
    return images.reshape(n, c, h // size, size, w // size, size).permute(0, 2, 4, 1, 3, 5).reshape(-1, c * size * size)


class Model:
    def __init__(self, name):
        image_class, processor_class = CLASSES[name]
        self.name = name
        self.images = image_class.from_pretrained(out / "models" / name)
        # Only the method that writes an image's text is called; it needs no tokenizer but the tokens' texts.
        self.processor = processor_class.__new__(processor_class)
        self.processor.image_processor = self.images
        config = MODELS[name].get("tokenizer_config", {})
        tokens = config.get("model_specific_special_tokens", config) or DEFAULT_TOKENS[name]
        for key, value in tokens.items():
            setattr(self.processor, key, value)
        if name == "gemma3":  # as Gemma3Processor.__init__ says
            self.processor.full_image_sequence = (
                f"\n\n{tokens['boi_token']}{tokens['image_token'] * 256}{tokens['eoi_token']}\n\n")
        self.image_token = tokens["image_token"]

    def __call__(self, picture):
        more = dict(return_row_col_info=True) if self.name in ("lfm2_vl", "smolvlm") else {}
        made = self.images(Image.fromarray(picture), return_tensors="pt", **more)
        values = made["pixel_values"]
        if self.name == "gemma3":
            values = as_patches(values, 14)
        elif self.name == "gemma4":
            values = values[0, :int(made["num_soft_tokens_per_image"][0]) * 9]  # without the padding
        elif self.name == "lfm2_vl":
            values = torch.cat([tile[:int(shape.prod())] for tile, shape in zip(values, made["spatial_shapes"])])
        elif self.name == "smolvlm":
            assert made["pixel_attention_mask"].min() == 1
            values = as_patches(values[0], 16)
        text = self.processor.replace_image_token(made, 0, use_image_special_tokens=True)
        return dict(
            tokens=text.count(self.image_token), text=digest(text.encode()), patches=list(values.shape),
            pixels=digest(values.contiguous().numpy().astype("<f4").tobytes()))


def pattern(width, height):
    """A picture that tests make, too."""
    y, x, c = np.mgrid[0:height, 0:width, 0:3]
    return ((x * x // 5 + 3 * y * (c + 1) + x * y // 7 + 90 * c) % 256).astype(np.uint8)


PICTURES = ["sampling2.jpg", "thin.jpg", "alpha.png", "point.jpg", (640, 480), (1300, 900), (300, 1100), (1024, 1024)]
SIZES = [(512, 512), (513, 511), (2048, 1024), (2000, 2600), (3000, 200), (30, 1900), (1000, 3), (5, 5000), (47, 2),
         (600, 590), (700, 750), (100, 2000), (2600, 2000)]


def main():
    transformers.logging.set_verbosity_error()
    (out / "files").mkdir(parents=True, exist_ok=True)
    files = {}
    for name, data in image_files():
        path = out / "files" / name
        path.write_bytes(data)
        try:
            picture = picture_of(path)
            files[name] = dict(width=picture.shape[1], height=picture.shape[0], sha256=digest(picture.tobytes()))
        except (OSError, SyntaxError, ValueError):
            files[name] = None
        assert (files[name] is None) == name.startswith("bad_"), name
    (out / "files.json").write_text("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in files.items()) + "\n}\n")
    for name, contents in MODELS.items():
        (out / "models" / name).mkdir(parents=True, exist_ok=True)
        for file, value in contents.items():
            (out / "models" / name / f"{file}.json").write_text(json.dumps(value, indent=1) + "\n")
    lines = []
    for name in MODELS:
        model = Model(name)
        for picture in PICTURES + SIZES:
            source = dict(file=picture) if isinstance(picture, str) else dict(width=picture[0], height=picture[1])
            try:
                made = model(pattern(*picture) if isinstance(picture, tuple) else picture_of(out / "files" / picture))
            except ValueError:
                made = dict(tokens=None)
            if picture in SIZES:
                made.pop("pixels", None)  # the test makes no pixels of these
            lines.append(json.dumps(dict(model=name, **source, **made)))
    (out / "pictures.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


main()
