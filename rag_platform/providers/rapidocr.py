"""Reads the text in images with RapidOCR (PP-OCR models on onnxruntime; extra `ocr`). The models
are in its wheel; nothing is downloaded.
"""

from __future__ import annotations

import io
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rag_platform import telemetry
from rag_platform.errors import ProviderError
from rag_platform.ir import Box
from rag_platform.observability import faults
from rag_platform.registry import require_packages
from rag_platform.traits import Traits

_DETECTION, _RECOGNITION, _DIRECTION = (
    "PP-OCRv6_det_small.onnx",
    "PP-OCRv6_rec_small.onnx",
    "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A text that the engine recognised, with its box in pixels of the image."""

    text: str
    score: float
    box: Box


@dataclass(frozen=True)
class NoOcr:
    """No OCR: an image has no text."""

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits()

    def read(self, image: bytes) -> tuple[str, float | None]:
        """Returns no text and no confidence."""
        return "", None


@dataclass(frozen=True)
class RapidOcr:
    """Reads printed Chinese and English, also in images that are rotated by quarter turns.

    `use_cls` classifies each line as upright or upside down (slower; for pages with both). Lines
    below the confidence `min_score` are dropped; below the mean confidence `turn_below` the image
    is also read rotated. Images are scaled down to `max_side` pixels.
    """

    use_cls: bool = False
    min_score: float = 0.5
    turn_below: float = 0.75
    max_side: int = 1600
    threads: int = 0  # 0: as many as there are cores

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(package="rapidocr")

    _loaded: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_packages("rapidocr", "onnxruntime")

    def read(self, image: bytes) -> tuple[str, float | None]:
        """(text in reading order with one line per printed line; mean confidence 0 to 1, None
        without text). Raises ProviderError `broken_image`, `ocr_failed`.
        """
        from PIL import Image, ImageOps

        try:
            with Image.open(io.BytesIO(image)) as opened:
                picture = (ImageOps.exif_transpose(opened) or opened).convert("RGB")
        except Exception as error:  # Pillow's decoders raise many types on broken files
            faults.report_own(error, "model.ocr")
            raise ProviderError(
                f"the image cannot be decoded: {error}", code="broken_image"
            ) from error
        with self._lock:
            try:
                lines = self._read_upright(picture)
            # the engine may raise anything; the caller continues with the next image
            except Exception as error:
                faults.report(error, "model.ocr")
                raise ProviderError(
                    f"rapidocr failed: {type(error).__name__}: {str(error)[:200]}",
                    code="ocr_failed",
                ) from error
        if not lines:
            return "", None
        return "\n".join(printed_lines(lines)), statistics.fmean(line.score for line in lines)

    def _read_upright(self, picture: Any) -> list[Line]:
        """The lines of the picture in the rotation with the highest sum of confidences."""
        lines, tall_share = self._recognise(picture)
        letters = max(1, sum(len(line.text) for line in lines))
        if not lines or (tall_share <= 0.5 and _sum_scores(lines) / letters >= self.turn_below):
            return lines
        from PIL import Image

        turns = (
            (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_270)
            if tall_share > 0.5
            else (Image.Transpose.ROTATE_180,)
        )
        rotated = (self._recognise(picture.transpose(turn))[0] for turn in turns)
        return max([lines, *rotated], key=_sum_scores)

    def _recognise(self, picture: Any) -> tuple[list[Line], float]:
        """(lines, share of boxes that are taller than wide)."""
        import numpy as np

        result = self._engine()(np.asarray(picture)[:, :, ::-1])
        boxes, texts, scores = (getattr(result, name, None) for name in ("boxes", "txts", "scores"))
        if boxes is None or texts is None or scores is None or not len(boxes):
            return [], 0.0
        corners = np.asarray(boxes, dtype=float)  # [boxes, 4 corners clockwise from top left, xy]
        widths, heights = (
            np.linalg.norm(corners[:, corner] - corners[:, 0], axis=1) for corner in (1, 3)
        )
        straight = _deskew(corners, widths)
        edges = np.concatenate([straight.min(axis=1), straight.max(axis=1)], axis=1)
        found = [
            Line(" ".join(str(text).split()), float(score), (x0, y0, x1, y1))
            for (x0, y0, x1, y1), text, score in zip(edges.tolist(), texts, scores, strict=True)
        ]
        return found, float((heights > 1.5 * widths).mean())

    def _engine(self) -> Any:
        if "engine" not in self._loaded:
            _disable_spinning(telemetry.onnxruntime())
            import rapidocr

            models = Path(rapidocr.__file__).parent / "models"
            for name in (_DETECTION, _RECOGNITION, _DIRECTION):
                if not (models / name).is_file():  # the package would download it
                    raise ProviderError(
                        f"the model {name} is not in {models}; install rapidocr 3.10 again",
                        code="model_missing",
                    )
            self._loaded["engine"] = rapidocr.RapidOCR(
                params={
                    "Global.use_cls": self.use_cls,
                    "Global.text_score": self.min_score,
                    "Global.max_side_len": self.max_side,
                    "Global.log_level": "critical",
                    # in a larger batch, lines are padded to the longest: a fifth more time, a third
                    # more memory
                    "Rec.rec_batch_num": 1,
                    "Det.model_path": str(models / _DETECTION),
                    "Rec.model_path": str(models / _RECOGNITION),
                    "Cls.model_path": str(models / _DIRECTION),
                    "EngineConfig.onnxruntime.intra_op_num_threads": self.threads or -1,
                }
            )
        return self._loaded["engine"]


def _disable_spinning(onnxruntime: Any) -> None:
    """Make idle threads of the engine's sessions sleep, as busy waiting doubles the CPU time of a
    page. RapidOCR has no option for it.
    """

    class Options(onnxruntime.SessionOptions):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.add_session_config_entry("session.intra_op.allow_spinning", "0")

    onnxruntime.SessionOptions = Options


def _deskew(corners: Any, widths: Any) -> Any:
    """The corners rotated so that the median slope of the long lines is 0."""
    import numpy as np

    long = corners[widths >= np.median(widths)]
    angle = float(
        np.median(np.arctan2(long[:, 1, 1] - long[:, 0, 1], long[:, 1, 0] - long[:, 0, 0]))
    )
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return corners @ turn if abs(angle) < 0.3 else corners


def _sum_scores(lines: Sequence[Line]) -> float:
    """The sum of the confidences of all characters."""
    return sum(line.score * len(line.text) for line in lines)


# --- reading order ------------------------------------------------------------------------------


def printed_lines(lines: Sequence[Line]) -> list[str]:
    """The texts in reading order; those side by side in one row are joined by a space.

    Columns are read one after the other: the page is divided recursively at vertical and horizontal
    gaps that are wider than a line is high (recursive XY cut, Nagy and Seth 1984).
    """
    if not lines:
        return []
    height = statistics.median(line.box[3] - line.box[1] for line in lines)
    return [
        " ".join(line.text for line in row)
        for block in _blocks(list(lines), height)
        for row in _rows(block)
    ]


def _blocks(lines: list[Line], height: float) -> list[list[Line]]:
    """Groups of lines in reading order, separated by gaps across the whole page."""
    for axis, min_gap in ((0, 1.0), (1, 1.5)):
        parts = _split_at_gaps(lines, axis, min_gap * height)
        if len(parts) > 1 and (axis == 1 or all(len(part) > 2 for part in parts)):
            return [block for part in parts for block in _blocks(part, height)]
    return [lines]


def _split_at_gaps(lines: list[Line], axis: int, gap: float) -> list[list[Line]]:
    """Groups of lines at least `gap` apart along an axis (0: horizontal, 1: vertical)."""
    parts: list[list[Line]] = []
    end = float("-inf")
    for line in sorted(lines, key=lambda line: line.box[axis]):
        if not parts or line.box[axis] - end >= gap:
            parts.append([])
        parts[-1].append(line)
        end = max(end, line.box[axis + 2])
    return parts


def _rows(lines: list[Line]) -> list[list[Line]]:
    """The rows of a block from top to bottom; the middle of each line in a row is within the height
    of the row's first line.
    """
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.box[1] + line.box[3]) / 2):
        middle = (line.box[1] + line.box[3]) / 2
        if rows and rows[-1][0].box[1] <= middle <= rows[-1][0].box[3]:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.box[0]) for row in rows]
