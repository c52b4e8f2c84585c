"""Images, figures and sounds as what a file of events holds."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradlab.tensor import Tensor
from gradlab.utils.png import png
from gradlab.utils.tensorboard import messages
from gradlab.utils.tensorboard.gif import gif

Pixels = NDArray[np.uint8]


def array_of(name: str, content: Any) -> NDArray[Any]:
    """A tensor, an array, a number or a list of one of these as a NumPy array."""
    if isinstance(content, Tensor):
        return np.asarray(content.detach().cpu().numpy())
    if isinstance(content, (list, tuple)) and any(isinstance(c, Tensor) for c in content):
        return np.stack([array_of(name, c) for c in content])
    found = np.asarray(content)
    if found.dtype == object or found.dtype.kind in "SUM":
        raise TypeError(f"{name}: expected a tensor, an array or a number, not {type(content).__name__}")
    return found


def pixels(name: str, content: Any, dataformats: str) -> Pixels:
    """(height, width, channels) in bytes: floats between 0 and 1 are scaled, several images laid out as a square."""
    array, letters = array_of(name, content), dataformats.upper()
    if len(letters) != array.ndim or len(set(letters)) != len(letters) or set(letters) - set("NCHW") or not {"H", "W"} <= set(letters):
        raise ValueError(f"{name}: dataformats={dataformats!r} does not describe shape {array.shape}; it is as 'CHW', 'HW' or 'NCHW'")
    if array.dtype != np.uint8:
        array = (array.astype(np.float32) * 255).clip(0, 255).astype(np.uint8)
    whole = np.einsum(f"{letters.lower()}->{''.join(c for c in 'nhwc' if c in letters.lower())}", array)
    whole = whole if "C" in letters else whole[..., None]
    whole = _laid_out(whole) if "N" in letters else whole
    if whole.shape[2] not in (1, 3, 4):
        raise ValueError(f"{name}: an image has 1, 3 or 4 channels, not {whole.shape[2]}: shape {array.shape} read as {dataformats!r}")
    return whole


def _laid_out(images: Pixels) -> Pixels:
    n, h, w, c = images.shape
    columns = int(np.ceil(np.sqrt(n)))
    rows = -(-n // columns)
    filled = np.concatenate([images, np.zeros((rows * columns - n, h, w, c), np.uint8)])
    return filled.reshape(rows, columns, h, w, c).transpose(0, 2, 1, 3, 4).reshape(rows * h, columns * w, c)


def film(name: str, content: Any, fps: float) -> bytes:
    """A value's content: (n, time, channels, height, width), several beside one another, as a GIF."""
    array = array_of(name, content)
    if array.ndim != 5 or array.shape[2] not in (1, 3) or not array.size:
        raise ValueError(f"{name}: videos have the shape (n, time, 1 or 3 channels, height, width), not {array.shape}")
    frames = np.stack([pixels(name, array[:, t], "NCHW") for t in range(array.shape[1])])
    return messages.image(frames.shape[1], frames.shape[2], frames.shape[3], gif(frames, fps))


def with_boxes(name: str, content: Any, boxes: Any, dataformats: str, labels: Sequence[str] | None) -> Pixels:
    """An image with frames around (x0, y0, x1, y1); labels are written by Pillow."""
    image = pixels(name, content, dataformats)
    image = np.repeat(image, 3, 2) if image.shape[2] == 1 else image.copy()
    corners = array_of(name, boxes).astype(np.int64).reshape(-1, 4)
    if labels is not None and len(labels) != len(corners):
        raise ValueError(f"{name}: {len(labels)} labels for {len(corners)} boxes")
    height, width = image.shape[:2]
    red = np.array([255, 0, 0, 255], np.uint8)[: image.shape[2]]
    for x0, y0, x1, y1 in corners.tolist():
        rows, columns = slice(max(y0, 0), y1 + 1), slice(max(x0, 0), x1 + 1)
        for y in {y0, y1} & set(range(height)):
            image[y, columns] = red
        for x in {x0, x1} & set(range(width)):
            image[rows, x] = red
    if labels is None:
        return image
    drawing = import_module("PIL.Image").fromarray(image)
    for (x0, y0, _, _), label in zip(corners.tolist(), labels, strict=True):
        import_module("PIL.ImageDraw").Draw(drawing).text((x0 + 2, y0 + 2), str(label), fill=tuple(red.tolist()))
    return np.asarray(drawing)


def picture(image: Pixels) -> bytes:
    """A value's content."""
    return messages.image(image.shape[0], image.shape[1], image.shape[2], png(image))


def drawn(figures: Any, close: bool) -> Pixels:
    """Matplotlib's figure, or several below one another, as pixels."""
    several = figures if isinstance(figures, Sequence) else [figures]
    made = []
    for figure in several:
        if not hasattr(getattr(figure, "canvas", None), "buffer_rgba"):
            import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
        figure.canvas.draw()
        made.append(np.asarray(figure.canvas.buffer_rgba()).copy())
        if close:
            import_module("matplotlib.pyplot").close(figure)
    return np.concatenate(made)


def sound(name: str, content: Any, rate: int) -> bytes:
    """A value's content: samples between -1 and 1, (frames,) or (channels, frames), as 16 bits."""
    samples = np.atleast_2d(array_of(name, content).squeeze())
    if samples.ndim != 2:
        raise ValueError(f"{name}: a sound has the shape (frames,) or (channels, frames), not {samples.shape}")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(samples.shape[0])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples.T.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2").tobytes())
    return messages.audio(rate, samples.shape[0], samples.shape[1], buffer.getvalue())
