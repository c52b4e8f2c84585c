"""SummaryWriter: what a training run tells TensorBoard."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from gradlab.autograd.mode import enable_grad
from gradlab.tensor import Tensor
from gradlab.utils.tensorboard import messages, pictures
from gradlab.utils.tensorboard.pictures import array_of
from gradlab.utils.tensorboard.records import FileWriter
from gradlab.viz.from_autograd import diagram


def _number(name: str, content: Any) -> float:
    array = array_of(name, content)
    if array.size != 1:
        raise ValueError(f"{name}: expected one number, got shape {array.shape}; take its mean(), or use add_histogram")
    return float(array.reshape(()))


class SummaryWriter:
    """Writes event files for TensorBoard (`tensorboard --logdir runs`); no other package is needed for it.

    log_dir: the folder; default: `runs/<date>_<host><comment>`. comment: the end of that name. purge_step: accepted; TensorBoard itself
    drops what an earlier run wrote from this step on when it sees the newer one. max_queue, flush_secs: how soon all is on the disk.
    filename_suffix: the end of the file's name.

    All methods take `global_step`, the point on the horizontal axis, and `walltime`, seconds since 1970 (default: now). Tensors may lie on
    any device and may require gradients.

    >>> import tempfile
    >>> from gradlab.utils.tensorboard import SummaryWriter
    >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
    ...     writer.add_scalar("loss", gl.tensor(0.5), global_step=1)
    """

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
        flush_secs: float = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if not log_dir:
            log_dir = os.path.join("runs", f"{datetime.now():%b%d_%H-%M-%S}_{socket.gethostname()}{comment}")
        self.log_dir, self.purge_step, self.max_queue = os.fspath(log_dir), purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self.file_writer = self._writer(self.log_dir)
        self._others: dict[str, FileWriter] = {}
        self._embeddings: list[str] = []

    def _writer(self, folder: str) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def _add(self, value: bytes, step: Any, walltime: float | None) -> None:
        self.file_writer.add(messages.summary(value), step, walltime)

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None, new_style: bool = False,
        double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A number: a tensor or an array of one element, or a Python number. ValueError for several. new_style: as a 0-d tensor."""
        number = _number("add_scalar", scalar_value)
        content, plugin = (messages.tensor_of(number), "scalars") if new_style or double_precision else (messages.scalar(number), "")
        self._add(messages.value(tag, content, plugin), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Several numbers in one chart: each is written to a folder of its own, `<log_dir>/<main_tag>_<tag>`."""
        for tag, number in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self._others:
                self._others[folder] = self._writer(folder)
            value = messages.value(main_tag, messages.scalar(_number("add_scalars", number)))
            self._others[folder].add(messages.summary(value), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = "tensorflow", walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How the elements are distributed. bins: a number of bins, their limits, a rule of `numpy.histogram_bin_edges`, or "tensorflow":
        limits that grow by a tenth. max_bins: the most that are written, by joining neighbours. ValueError for no elements."""
        array = array_of("add_histogram", values).astype(np.float64).reshape(-1)
        if not array.size:
            raise ValueError("add_histogram: there are no values")
        array = array[np.isfinite(array)] if not np.isfinite(array).all() else array
        if isinstance(bins, str) and bins == "tensorflow":
            bins = _limits()
        counts, edges = np.histogram(array, bins=bins)
        if max_bins is not None and len(counts) > max_bins:
            step = -(-len(counts) // max_bins)
            counts, edges = np.add.reduceat(counts, np.arange(0, len(counts), step)), np.append(edges[:-1:step], edges[-1])
        self.add_histogram_raw(
            tag, float(array.min(initial=np.inf)), float(array.max(initial=-np.inf)), array.size, float(array.sum()), float(array @ array),
            edges[1:], counts, global_step, walltime,
        )  # fmt: skip

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: float, sum: float, sum_squares: float, bucket_limits: Any, bucket_counts: Any,
        global_step: int | None = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A distribution whose numbers are known. ValueError unless there are as many limits, the upper ones, as counts."""
        limits, counts = np.asarray(bucket_limits, np.float64), np.asarray(bucket_counts, np.float64)
        if len(limits) != len(counts):
            raise ValueError(f"add_histogram_raw: {len(limits)} limits for {len(counts)} counts")
        filled = np.flatnonzero(counts)
        first, last = (filled[0], filled[-1] + 1) if filled.size else (0, len(counts))
        if first:  # the limit before the first bin is where it begins
            first -= 1
        content = messages.histogram((min, max, num, sum, sum_squares), limits[first:last].tolist(), counts[first:last].tolist())
        self._add(messages.value(tag, content), global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None, dataformats: str = "CHW"
    ) -> None:
        """A picture: uint8, or floats between 0 and 1. dataformats: what its dimensions are, as "CHW", "HWC", "HW"."""
        image = pictures.pixels("add_image", img_tensor, dataformats)
        self._add(messages.value(tag, pictures.picture(image)), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None, dataformats: str = "NCHW"
    ) -> None:
        """Several pictures of one size, laid out as a square."""
        image = pictures.pixels("add_images", img_tensor, dataformats)
        self._add(messages.value(tag, pictures.picture(image)), global_step, walltime)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: int | None = None, walltime: float | None = None, rescale: float = 1,
        dataformats: str = "CHW", labels: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """A picture with frames around boxes (n, 4) of (x0, y0, x1, y1). labels: a name for each, written by Pillow. rescale: only 1."""
        if rescale != 1:
            raise NotImplementedError("add_image_with_boxes: pictures are written as they are; scale picture and boxes before")
        image = pictures.with_boxes("add_image_with_boxes", img_tensor, box_tensor, dataformats, labels)
        self._add(messages.value(tag, pictures.picture(image)), global_step, walltime)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Moving pictures (n, time, channels, height, width), uint8 or floats between 0 and 1, as a GIF of 252 colours or 256 greys."""
        self._add(messages.value(tag, pictures.film("add_video", vid_tensor, fps)), global_step, walltime)

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None) -> None:
        """A figure of matplotlib's, or a list of them. close: it is not needed any more."""
        self._add(messages.value(tag, pictures.picture(pictures.drawn(figure, close))), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None) -> None:
        """A text, which may be Markdown."""
        self._add(messages.value(f"{tag}/text_summary", messages.text(text_string), "text"), global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100, walltime: float | None = None
    ) -> None:
        """A sound: samples between -1 and 1, of shape (frames,) or (channels, frames)."""
        self._add(messages.value(tag, pictures.sound("add_audio", snd_tensor, sample_rate)), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """A tensor's numbers, as float32."""
        self._add(messages.value(tag, messages.tensor_of(array_of("add_tensor", tensor))), global_step, walltime)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: int | None = None, num_thresholds: int = 127, weights: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Precision and recall at thresholds from 0 to 1. labels: 0 or 1; predictions: between 0 and 1; weights: of each, or 1."""
        truth, scores = (array_of("add_pr_curve", x).astype(np.float64).reshape(-1) for x in (labels, predictions))
        if truth.shape != scores.shape or not truth.size:
            raise ValueError(f"add_pr_curve: labels and predictions are as many, at least one: {truth.size} and {scores.size}")
        bins = min(num_thresholds, 127)
        at = np.floor(scores * (bins - 1)).astype(np.int64)
        if at.min() < 0 or at.max() >= bins:
            raise ValueError("add_pr_curve: predictions are between 0 and 1; use sigmoid")
        weight = np.broadcast_to(1.0 if weights is None else array_of("add_pr_curve", weights).reshape(-1), truth.shape)
        hits, misses = (np.bincount(at, part * weight, bins)[::-1].cumsum()[::-1] for part in (truth, 1 - truth))
        precision, recall = hits / np.maximum(1e-7, hits + misses), hits / np.maximum(1e-7, hits[0])
        rows = (hits, misses, misses[0] - misses, hits[0] - hits, precision, recall)
        self.add_pr_curve_raw(tag, *rows, global_step, bins, walltime=walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any, true_negative_counts: Any, false_negative_counts: Any,
        precision: Any, recall: Any, global_step: int | None = None, num_thresholds: int = 127, weights: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Precision and recall that are known, a number for each threshold in all six. weights: without effect."""
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        rows = np.stack([array_of("add_pr_curve_raw", x).reshape(-1) for x in (*counts, precision, recall)])
        data = messages.whole(2, min(num_thresholds, 127))
        self._add(messages.value(tag, messages.tensor_of(rows), "pr_curves", data), global_step, walltime)

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None, config_dict: Any = None, global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Points in space (n, points, 3), with a colour for each (n, points, 3), 0 to 255, and triangles of them (n, triangles, 3).

        config_dict: settings of three.js, as {"material": {"cls": "PointsMaterial", "size": 0.1}}.
        """
        given = {1: ("VERTEX", vertices), 2: ("FACE", faces), 3: ("COLOR", colors)}
        arrays = {i: (kind, array_of("add_mesh", x)) for i, (kind, x) in given.items() if x is not None}
        for kind, array in arrays.values():
            if array.ndim != 3 or array.shape[2] != 3:
                raise ValueError(f"add_mesh: {kind.lower()} has the shape (n, several, 3), not {array.shape}")
        settings = "{}" if config_dict is None else json.dumps(config_dict, sort_keys=True)
        values = []
        for i, (kind, array) in arrays.items():
            data = messages.mesh(tag, i, sum(1 << k for k in arrays), settings, array.shape)
            values.append(messages.value(f"{tag}_{kind}", messages.tensor_of(array), "mesh", data))
        self.file_writer.add(messages.summary(*values), global_step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Which scalars are shown in one chart: category -> title -> ["Multiline", tags] or ["Margin", [value, lower, upper]]."""
        for charts in layout.values():
            for title, (kind, tags) in charts.items():
                if kind not in ("Multiline", "Margin") or (kind == "Margin" and len(tags) != 3):
                    raise ValueError(f'add_custom_scalars: {title!r} is ["Multiline", tags] or ["Margin", 3 tags], not {kind!r}')
        content = messages.text(messages.layout(layout), ())  # type: ignore[arg-type]
        self._add(messages.value("custom_scalars__config__", content, "custom_scalars"), None, None)

    def add_custom_scalars_multilinechart(self, tags: Sequence[str], category: str = "default", title: str = "untitled") -> None:
        """Several scalars in one chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags: Sequence[str], category: str = "default", title: str = "untitled") -> None:
        """A scalar between two others."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """What the model does with these inputs, a tensor or a tuple of them: each call of a module is a box that opens.

        The model is run once, as it is, and recorded whether or not its parameters are trained. ValueError where no tensor of floating
        point numbers comes out. `gl.viz.graph` draws the same without TensorBoard.
        """
        if input_to_model is None:
            raise ValueError("add_graph: give the inputs that the model is to be run with")
        inputs = input_to_model if isinstance(input_to_model, (tuple, list)) else (input_to_model,)
        result = _recorded(model, inputs)
        while not hasattr(result, "grad_fn"):
            result = next(iter(result.values() if isinstance(result, Mapping) else result))
        drawing = diagram(result, {id(p): name for name, p in model.named_parameters()})
        names = {}
        for vertex in drawing.vertices:
            boxes = [drawing.boxes[b] for b in drawing.path(vertex.box)[1:]]
            scope = "/".join([type(model).__name__, *(f"{box.kind}[{box.name}]" for box in boxes[1:])])
            names[vertex.id] = f"{scope}/{vertex.title.replace(' ', '_')}_{vertex.id}"
        nodes = [(names[v.id], v.title, [names[s] for s, t in drawing.flows if t == v.id]) for v in drawing.vertices]
        self.file_writer.add(messages.graph(nodes))

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], hparam_domain_discrete: Any = None,
        run_name: str | None = None, global_step: int | None = None,
    ) -> None:  # fmt: skip
        """A run's settings (numbers, bools, strings) and what came of them, in a folder `run_name` (default: the time)."""
        for name, setting in hparam_dict.items():
            if not isinstance(setting, (bool, int, float, str, np.generic)):
                raise TypeError(f"add_hparams: {name!r} is a {type(setting).__name__}; a setting is a number, a bool or a string")
        now = time.time()
        writer = self._writer(os.path.join(self.log_dir, run_name or str(now)))
        heads = ("experiment", "session_start_info", "session_end_info")
        for head, content in zip(heads, messages.settings(hparam_dict, metric_dict, now), strict=True):
            writer.add(messages.summary(messages.value(f"_hparams_/{head}", b"", "hparams", content)))
        for tag, number in metric_dict.items():
            writer.add(messages.summary(messages.value(tag, messages.scalar(_number("add_hparams", number)))), global_step)
        writer.close()

    def add_embedding(
        self, mat: Any, metadata: Sequence[Any] | None = None, label_img: Any = None, global_step: int | None = None, tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Points (N, D) for the projector, with a label for each. NotImplementedError for pictures of the points."""
        if label_img is not None:
            raise NotImplementedError("add_embedding: label_img is not offered; give labels as metadata, and pictures with add_images")
        points = array_of("add_embedding", mat)
        if points.ndim != 2 or (metadata is not None and len(metadata) != len(points)):
            raise ValueError(f"add_embedding: points have the shape (N, D), and N labels: {points.shape}, {metadata and len(metadata)}")
        name = f"{global_step or 0:05d}/{tag}"
        folder = Path(self.log_dir, name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tensors.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in points.tolist()))
        lines = f'embeddings {{\ntensor_name: "{tag}:{global_step or 0:05d}"\ntensor_path: "{name}/tensors.tsv"\n'
        if metadata is not None:
            rows = ["\t".join(map(str, m)) if metadata_header else str(m) for m in metadata]
            head = ["\t".join(metadata_header)] if metadata_header else []
            (folder / "metadata.tsv").write_text("".join(f"{row}\n" for row in [*head, *rows]))
            lines += f'metadata_path: "{name}/metadata.tsv"\n'
        self._embeddings.append(lines + "}\n")
        Path(self.log_dir, "projector_config.pbtxt").write_text("".join(self._embeddings))

    def flush(self) -> None:
        """All that was added is on the disk."""
        for writer in (self.file_writer, *self._others.values()):
            writer.flush()

    def close(self) -> None:
        """End the files; adding more opens new ones."""
        for writer in (self.file_writer, *self._others.values()):
            writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _recorded(model: Any, inputs: Any) -> Any:
    """What the model gives, with its graph, even if none of its parameters is trained."""
    frozen = [p for p in model.parameters() if not p.requires_grad and p.is_floating_point()]
    inputs = [x.detach().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() and x.is_leaf else x for x in inputs]
    for p in frozen:
        p.requires_grad_()
    try:
        with enable_grad():
            return model(*inputs)
    finally:
        for p in frozen:
            p.requires_grad_(False)


def _limits() -> list[float]:
    """Limits of bins on both sides of 0 that grow by a tenth, as TensorFlow's histograms have them."""
    grown = [1e-12]
    while grown[-1] < 1e20:
        grown.append(grown[-1] * 1.1)
    return [-np.finfo(np.float64).max, *(-g for g in reversed(grown)), 0.0, *grown, np.finfo(np.float64).max]
