"""Text in images by RapidOCR (PP-OCR models on onnxruntime), whose models ship in its wheel;
nothing is ever fetched. Extra `ocr`.
"""

from __future__ import annotations

import importlib.util
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
from rag_platform.traits import Traits

_DETECTION, _RECOGNITION, _DIRECTION = (
    "PP-OCRv6_det_small.onnx",
    "PP-OCRv6_rec_small.onnx",
    "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text that the engine found; the box is in pixels of the image that it read."""

    text: str
    score: float
    box: Box


@dataclass(frozen=True)
class RapidOcr:
    """Reads printed Chinese and English; a picture that lies on its side or stands on its head is
    turned and read again.

    `use_cls` asks a model of each line whether it stands on its head (slower; for pages with lines
    both ways). `min_score` drops lines, and below `turn_below` mean confidence the other directions
    are tried. `max_side` bounds the pixels that are looked at.
    """

    use_cls: bool = False
    min_score: float = 0.5
    turn_below: float = 0.75
    max_side: int = 1600
    threads: int = 0  # 0: as many as there are cores

    NAME: ClassVar[str] = "rapidocr"
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(package="rapidocr")

    _held: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for package in ("rapidocr", "onnxruntime"):
            if importlib.util.find_spec(package) is None:
                raise ImportError(f"no module named {package!r}")

    def read(self, image: bytes) -> tuple[str, float | None]:
        """(text in reading order, one printed line a line; mean confidence 0 to 1, None without
        text).

        Raises ProviderError `broken_image` for bytes that cannot be decoded, `ocr_failed` when the
        engine fails.
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
                lines = self._turn_upright(picture)
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

    def _turn_upright(self, picture: Any) -> list[Line]:
        """The lines of the picture in the direction in which it reads best."""
        lines, tall = self._lines(picture)
        score = _legible(lines)
        if not lines or (tall <= 0.5 and score >= self.turn_below):
            return lines
        from PIL import Image

        turns = (
            (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_270)
            if tall > 0.5
            else (Image.Transpose.ROTATE_180,)
        )
        best, best_worth = lines, score * sum(len(line.text) for line in lines)
        for turn in turns:
            turned, _ = self._lines(picture.transpose(turn))
            worth = _legible(turned) * sum(len(line.text) for line in turned)
            if worth > best_worth:
                best, best_worth = turned, worth
        return best

    def _lines(self, picture: Any) -> tuple[list[Line], float]:
        """(lines found, share of boxes that are taller than wide)."""
        import numpy as np

        result = self._engine()(np.asarray(picture)[:, :, ::-1])
        boxes, texts, scores = (
            getattr(result, "boxes", None),
            getattr(result, "txts", None),
            getattr(result, "scores", None),
        )
        if boxes is None or texts is None or scores is None or not len(boxes):
            return [], 0.0
        corners = np.asarray(boxes, dtype=float)  # [boxes, 4 corners from the top left on, x and y]
        across, down = (
            np.linalg.norm(corners[:, corner] - corners[:, 0], axis=1) for corner in (1, 3)
        )
        level = _level(corners, across)
        edges = np.concatenate([level.min(axis=1), level.max(axis=1)], axis=1)
        found = [
            Line(" ".join(str(text).split()), float(score), (x0, y0, x1, y1))
            for (x0, y0, x1, y1), text, score in zip(edges.tolist(), texts, scores, strict=True)
        ]
        return found, float((down > 1.5 * across).mean())

    def _engine(self) -> Any:
        if "engine" not in self._held:
            _let_threads_sleep(telemetry.onnxruntime())
            import rapidocr

            models = Path(rapidocr.__file__).parent / "models"
            for name in (_DETECTION, _RECOGNITION, _DIRECTION):
                if not (models / name).is_file():  # the package would fetch it
                    raise ProviderError(
                        f"the model {name} is not in {models}; install rapidocr 3.10 again",
                        code="model_missing",
                    )
            self._held["engine"] = rapidocr.RapidOCR(
                params={
                    "Global.use_cls": self.use_cls,
                    "Global.text_score": self.min_score,
                    "Global.max_side_len": self.max_side,
                    "Global.log_level": "critical",
                    # lines padded to the longest of a batch cost a fifth more time and a third more
                    # memory
                    "Rec.rec_batch_num": 1,
                    "Det.model_path": str(models / _DETECTION),
                    "Rec.model_path": str(models / _RECOGNITION),
                    "Cls.model_path": str(models / _DIRECTION),
                    "EngineConfig.onnxruntime.intra_op_num_threads": self.threads or -1,
                }
            )
        return self._held["engine"]


def _let_threads_sleep(onnxruntime: Any) -> None:
    """Makes the threads of the engine's sessions sleep while they wait for work, for which it has
    no option: busy waiting doubles the CPU time of a page.
    """

    class Options(onnxruntime.SessionOptions):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.add_session_config_entry("session.intra_op.allow_spinning", "0")

    onnxruntime.SessionOptions = Options


def _level(corners: Any, across: Any) -> Any:
    """The corners of a page scanned askew turned level, by the median slope of long lines."""
    import numpy as np

    long = corners[across >= np.median(across)]
    angle = float(
        np.median(np.arctan2(long[:, 1, 1] - long[:, 0, 1], long[:, 1, 0] - long[:, 0, 0]))
    )
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return corners @ turn if abs(angle) < 0.3 else corners


def _legible(lines: Sequence[Line]) -> float:
    """Mean confidence, each line weighted by its letters; 0 without a line."""
    letters = sum(len(line.text) for line in lines)
    return sum(line.score * len(line.text) for line in lines) / letters if letters else 0.0


# --- reading order ------------------------------------------------------------------------------


def printed_lines(lines: Sequence[Line]) -> list[str]:
    """The texts in reading order, pieces that stand side by side on one line joined by a space.

    Columns are read one after the other: the page is cut along its widest white gaps, first across,
    then down (recursive XY cut, Nagy and Seth 1984), as long as a gap is wider than a line is high.
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
    """Groups of lines in reading order, divided by white gaps from edge to edge."""
    for axis, least in ((0, 1.0), (1, 1.5)):
        parts = _cut(lines, axis, least * height)
        if len(parts) > 1 and (axis == 1 or all(len(part) > 2 for part in parts)):
            return [block for part in parts for block in _blocks(part, height)]
    return [lines]


def _cut(lines: list[Line], axis: int, gap: float) -> list[list[Line]]:
    """Lines in groups at least `gap` apart along an axis (0: across, 1: down)."""
    parts: list[list[Line]] = []
    reached = float("-inf")
    for line in sorted(lines, key=lambda line: line.box[axis]):
        if not parts or line.box[axis] - reached >= gap:
            parts.append([])
        parts[-1].append(line)
        reached = max(reached, line.box[axis + 2])
    return parts


def _rows(lines: list[Line]) -> list[list[Line]]:
    """Rows of a block from top to bottom, of pieces that overlap the first by half a height."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.box[1] + line.box[3]) / 2):
        middle = (line.box[1] + line.box[3]) / 2
        if rows and rows[-1][0].box[1] <= middle <= rows[-1][0].box[3]:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.box[0]) for row in rows]
