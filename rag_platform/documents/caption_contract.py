"""What a caption must hold: the JSON contract of seed 000 §3.6.6.4-5, its check, and the plain text made of it."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from rag_platform.ir import Json

ImageType = Literal["table", "chart", "flowchart", "diagram", "screenshot", "photo", "mixed", "unknown"]
PROFILES: dict[str, str] = {  # image type to prompt
    "table": "caption/table_v1", "chart": "caption/chart_v1", "flowchart": "caption/flow_v1", "diagram": "caption/flow_v1",
    "screenshot": "caption/screenshot_v1", "photo": "caption/photo_v1", "mixed": "caption/generic_v1", "unknown": "caption/generic_v1",
}  # fmt: skip
MAX_KEY_POINTS = 12
Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Loose = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


class Number(_Part):
    """A number with where it was read: legend, axis, label."""

    name: Said
    value: Said
    unit: Loose | None = ""
    context: Said


class Pair(_Part):
    """A label and what stands beside it."""

    key: Said
    value: Loose


class Table(_Part):
    """Cells as printed; one that cannot be read is empty."""

    headers: list[Loose]
    rows: list[list[Loose]]


class Series(_Part):
    """One line or set of bars."""

    name: Loose | None = ""
    trend: Loose | None = ""
    peaks: list[Loose] = []


class Chart(_Part):
    """Axes and series."""

    title: Loose | None = ""
    x_axis: Loose | None = ""
    y_axis: Loose | None = ""
    series: list[Series]


class Step(_Part):
    """A step of a flow; `from` and `to` name others."""

    id: Said
    text: Said
    from_: list[Loose] | Loose | None = Field(default=None, alias="from")
    to: list[Loose] | Loose | None = None


class Node(_Part):
    """A box."""

    id: Said
    text: Loose


class Edge(_Part):
    """An arrow between boxes."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True, populate_by_name=True)

    from_: Said = Field(alias="from")
    to: Said
    label: Loose | None = ""


class Ui(_Part):
    """What a screenshot offers and complains about."""

    app: Loose | None = ""
    page: Loose | None = ""
    actions: list[Loose]
    errors: list[Loose]


class Caption(_Part):
    """The contract of every profile and the fields that some add."""

    profile_id: str = ""
    image_type: ImageType
    summary: Said
    key_points: list[Said]
    entities: list[Said]
    numbers: list[Number]
    uncertainties: list[Said]
    table: Table | None = None
    kv_pairs: list[Pair] | None = None
    chart: Chart | None = None
    steps: list[Step] | None = None
    nodes: list[Node] | None = None
    edges: list[Edge] | None = None
    ui: Ui | None = None
    scene_tags: list[Loose] | None = None

    @model_validator(mode="after")
    def _has_what_its_profile_adds(self) -> Caption:
        """A table without cells or a chart without series says less than it claims to know."""
        added = {
            "table_v1": ("table", self.table or self.kv_pairs),
            "chart_v1": ("chart", self.chart),
            "flow_v1": ("flowchart diagram", self.steps or self.nodes),
            "screenshot_v1": ("screenshot", self.ui),
        }.get(self.profile_id.rpartition(".")[2].partition("-")[0])
        if added and self.image_type in added[0].split() and added[1] is None:
            raise ValueError(f"{self.profile_id} asks for more fields of an image of type {self.image_type}")
        return self


def schema() -> Json:
    """The JSON schema that models are given."""
    return Caption.model_json_schema(by_alias=True)


def checked(text: str, profile_id: str) -> Json:
    """The caption in a model's answer, under the profile that asked for it. Raises ValueError saying what is wrong with it."""
    bare = re.sub(r"\A\s*```[a-z]*\s*|\s*```\s*\Z", "", text)
    try:
        data = json.loads(bare)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"no JSON object but {type(data).__name__}")
    try:
        caption = Caption.model_validate({**data, "profile_id": profile_id})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "caption"
        raise ValueError(f"{where}: {first['msg']}") from None
    found = caption.model_dump(by_alias=True, exclude_none=True)
    return {**found, "key_points": found["key_points"][:MAX_KEY_POINTS]}


def unknown(profile_id: str, alt_text: str, why: str) -> Json:
    """The caption of an image of which nothing is known but its alternative text."""
    return {"profile_id": profile_id, "image_type": "unknown", "summary": alt_text, "key_points": [], "entities": [], "numbers": [],
            "uncertainties": [why]}  # fmt: skip


def plain_text(caption: Json, inject: str) -> str:
    """One line for views: the summary, and with `full` everything else that was seen; what is uncertain stays out."""
    parts = [caption["summary"]]
    if inject == "full":
        parts += [*caption["key_points"], *(item for item in caption["entities"] if item not in " ".join(parts + caption["key_points"]))]
        parts += [" ".join(str(number.get(key) or "") for key in ("name", "value", "unit")).strip() for number in caption["numbers"]]
        parts += list(_strings({key: caption.get(key) for key in _ADDED}))
    return "; ".join(dict.fromkeys(" ".join(str(part).split()).rstrip(";。.；") for part in parts if str(part).strip()))


_ADDED = ("table", "kv_pairs", "chart", "steps", "nodes", "edges", "ui", "scene_tags")


def _strings(value: Any, key: str = "") -> list[str]:
    """The texts inside the added fields; the ids that link steps, boxes and arrows are no words."""
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in _strings(item, name)]
    if isinstance(value, list):
        if key == "rows" and all(isinstance(row, list) for row in value):
            return [" ".join(str(cell) for cell in row if str(cell).strip()) for row in value]
        return [text for item in value for text in _strings(item, key)]
    return [str(value)] if value and key not in ("id", "from", "to") else []
