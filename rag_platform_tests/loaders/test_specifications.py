"""Specifications in YAML and JSON become headings with code below them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import normalise
from rag_platform.sectioners.sections import headings_of

OPENAPI = """\
openapi: 3.1.0
info:
  title: Orders
  version: "1"
paths:
  /orders/{id}:
    parameters:
      - $ref: '#/components/parameters/id'
    # the only one
    get:
      operationId: getOrder
      summary: Get an order
      parameters:
        - name: expand
          in: query
      responses:
        '404':
          description: No such order
      deprecated: true
components:
  schemas:
    Order:
      type: object
      properties:
        expires_at:
          type: string
          format: date-time
      required: [expires_at]
"""
PARTS = ["paths", "paths./orders/{id}", "paths./orders/{id}.parameters", "paths./orders/{id}.get"]
PARTS += ["components", "components.schemas", "components.schemas.Order"]
MARKDOWN = """\
```yaml
openapi: 3.1.0
```

# Orders

```yaml
title: Orders
version: "1"
```

## /orders/{id} parameters

```yaml
- $ref: '#/components/parameters/id'
```

## GET /orders/{id}: getOrder

```yaml
operationId: getOrder
summary: Get an order
```

### parameters

```yaml
- name: expand
  in: query
```

### responses

#### status 404

```yaml
description: No such order
```

### deprecated

```yaml
true
```

## Order

```yaml
type: object
```

### expires_at

```yaml
type: string
format: date-time
```

### required

```yaml
[expires_at]
```
"""
SCHEMA = (
    '{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"Shop","type":"object",'
    '"properties":{"port":{"type":"integer","default":80}}}'
)


def _read(folder: Path, name: str, text: str) -> tuple[str, list[tuple[int, str]], str]:
    """The profile, headings and Markdown of a file."""
    path = folder / name
    path.write_bytes(text.encode())
    facts = TextLoader().load(path, name)
    assert facts.text == text
    normalised = normalise(facts, (), CleaningConfig())
    headings = [(level, title) for _, level, title in headings_of(facts, normalised)]
    return facts.summary.parse_profile, headings, normalised.text


def test_operations_schemas_and_fields_are_headings(tmp_path: Path) -> None:
    """What follows a heading in its mapping gets one, too; groups and comments have none."""
    _, headings, markdown = _read(tmp_path, "orders.yaml", OPENAPI)
    assert markdown == MARKDOWN
    assert (4, "status 404") in headings and (2, "GET /orders/{id}: getOrder") in headings


def test_json_on_one_line(tmp_path: Path) -> None:
    """Brackets between the parts are not shown."""
    _, headings, markdown = _read(tmp_path, "shop.schema.json", SCHEMA)
    assert headings == [(1, "Shop"), (2, "type"), (2, "port")]
    assert markdown.endswith('## port\n\n```json\n"type":"integer","default":80\n```\n')


def test_escaped_characters_of_json_and_long_names(tmp_path: Path) -> None:
    """Escapes of half characters are read, too; a heading has at most 200 characters."""
    title = '"\\ud83d\\ude00 \u2028 \U0001f600"'
    text = SCHEMA.replace('"Shop"', title).replace('"port"', f'"{"p" * 900}"')
    _, headings, markdown = _read(tmp_path, "shop.json", text)
    assert headings[1:] == [(2, "type"), (2, "p" * 200)]
    assert markdown.endswith('pp\n\n```json\n"type":"integer","default":80\n```\n')


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ('{"name": "shop", "dependencies": {"openapi": "3.0.1"}}', []),
        ('{"$schema": "https://example.org/config.json", "properties": {"a": {"type": "b"}}}', []),
        ("on: push\njobs:\n  openapi: 3.0\n", []),
        (OPENAPI.replace("info:", "info: {"), PARTS),
        ("openapi: 3.0.0\npaths: " + "[" * 100_000, []),
        ("openapi: 3.0.0\n", []),
        (f"{OPENAPI}---\nkind: Service\n", [*PARTS, "kind"]),
    ],
)
def test_others_are_source_code(tmp_path: Path, text: str, titles: list[str]) -> None:
    """Other data, broken or several and empty specifications are source code, at once."""
    started = time.process_time()
    profile, headings, markdown = _read(tmp_path, "some.yaml", text)
    assert (profile, [title for _, title in headings]) == ("source_code:yaml", titles)
    shown = re.sub(r"(?m)^(?:#+ `.*`|```.*)$", "", markdown)
    assert shown.split() == re.sub(r"(?m)^ *# ", "", text).split()
    assert time.process_time() - started < 5


def test_aliases_are_not_expanded(tmp_path: Path) -> None:
    """A file whose aliases stand for a billion values is read like any other."""
    bomb = "\n".join(f"x{n}: &a{n} [{f'*a{n - 1}, ' * 10}]" for n in range(1, 10))
    text = f"x0: &a0 [lol]\n{bomb}\n{OPENAPI}"
    profile, headings, _ = _read(tmp_path, "bomb.yaml", text)
    assert profile == "specification" and (2, "Order") in headings
