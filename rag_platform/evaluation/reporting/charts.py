"""Charts of metrics as PNG, drawn with Pillow, for embedding in Markdown."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping

from rag_platform.evaluation.results import EvalRun

_WIDTH, _ROW, _LEFT, _RIGHT, _HEAD = 760, 20, 230, 60, 26
_COLOURS = ("#4063d8", "#389826", "#cb3c33", "#9558b2", "#b8860b", "#117a8b", "#777777", "#d6568c")
_SHOWN = ("hit_rate@1", "hit_rate@10", "mrr@10", "ndcg@10", "refusal.right", "answer.evidence")


def draw_metrics(runs: Mapping[str, EvalRun]) -> bytes:
    """A PNG bar chart: per main metric a bar for each strategy, with its 95 % interval as
    a line.
    """
    from PIL import Image, ImageDraw, ImageFont

    shown = [
        metric
        for end in _SHOWN
        for metric in sorted({name for run in runs.values() for name in run.aggregates})
        if metric.endswith(end)
    ]
    height = len(shown) * (_HEAD + _ROW * len(runs)) + _HEAD
    image = Image.new("RGB", (_WIDTH, height), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(13)
    scale = _WIDTH - _LEFT - _RIGHT
    top = 6
    for metric in shown:
        draw.text((8, top), metric, fill="black", font=font)
        top += _HEAD - 6
        for number, (name, run) in enumerate(runs.items()):
            item = run.aggregates.get(metric)
            draw.text((24, top), name[:26], fill="#333333", font=font)
            if item is not None:
                colour = _COLOURS[number % len(_COLOURS)]
                end = _LEFT + item["value"] * scale
                draw.rectangle((_LEFT, top + 2, max(end, _LEFT + 1), top + 14), fill=colour)
                low, high = (_LEFT + item[side] * scale for side in ("low", "high"))
                draw.line((low, top + 8, high, top + 8), fill="black", width=2)
                label = max(end, high) + 6
                draw.text((label, top), f"{item['value']:.3f}", fill="black", font=font)
            top += _ROW
        top += 6
    stream = io.BytesIO()
    image.quantize(32).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def embed_picture(picture: bytes, title: str, kind: str = "png") -> str:
    """The picture as a Markdown image with a data URI."""
    return f"![{title}](data:image/{kind};base64,{base64.b64encode(picture).decode()})"
