"""Access tokens of the HTTP server: creates, lists, revokes and verifies them.

A token has 256 random bits and is shown once. Only its SHA-256 is stored, which is safe for a
secret that cannot be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rag_platform.access import SCOPES, Caller
from rag_platform.errors import InputError, NotFoundError, SchemaVersionError
from rag_platform.storage.locks import hold_lock
from rag_platform.storage.records import to_json
from rag_platform.storage.store import Store, read_json, write_json

SCHEMA_VERSION = 1
_PREFIX = "rag_"  # lets people and secret scanners recognise a token
_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Token:
    """The stored record of a token; times as ISO 8601 in UTC, `expires_at` empty for never."""

    token_id: str
    name: str
    sha256: str
    scope: str
    namespaces: tuple[str, ...]  # empty: all
    created_at: str
    expires_at: str

    def has_expired(self) -> bool:
        return bool(self.expires_at) and datetime.fromisoformat(self.expires_at) <= _now()

    def caller(self) -> Caller:
        """The caller that its holder acts as."""
        return Caller(self.token_id, self.scope, frozenset(self.namespaces) or None)


class Tokens:
    """The tokens of one data root; safe between threads and processes."""

    def __init__(self, store: Store) -> None:
        self._path = store.tokens_path
        self._known: tuple[tuple[int, int, int], list[Token]] = ((0, 0, 0), [])

    def all(self) -> list[Token]:
        """All tokens, including expired ones, oldest first; cached until the file is replaced."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return []
        stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        if self._known[0] != stamp:
            self._known = (stamp, self._read())
        return self._known[1]

    def create(
        self,
        name: str,
        scope: str = "read",
        namespaces: Sequence[str] = (),
        days: float | None = None,
    ) -> tuple[Token, str]:
        """(the record of a new token, the token itself, which is not stored)."""
        if scope not in SCOPES:
            raise InputError(f"unknown scope {scope!r}; known: {', '.join(SCOPES)}", code="usage")
        now = _now()
        expires_at = "" if days is None else (now + timedelta(days=days)).isoformat()
        with self._changing() as tokens:
            if not name.strip() or any(name in (token.name, token.token_id) for token in tokens):
                raise InputError(
                    f"a token needs a name of its own, not {name!r}; `rag token list` shows those"
                    " there are",
                    code="usage",
                )
            secret = _PREFIX + secrets.token_urlsafe(32)
            token = Token(
                f"tok_{secrets.token_hex(4)}",
                name,
                _hash(secret),
                scope,
                tuple(dict.fromkeys(namespaces)),
                now.isoformat(),
                expires_at,
            )
            tokens.append(token)
        return token, secret

    def revoke(self, name: str) -> Token:
        """Remove the token of that name or id and return its record. Raises NotFoundError."""
        with self._changing() as tokens:
            for token in tokens:
                if name in (token.name, token.token_id):
                    tokens.remove(token)
                    return token
            known = ", ".join(token.name for token in tokens) or "none"
            raise NotFoundError(f"no token {name!r}; known: {known}", code="unknown_token")

    def find(self, secret: str) -> Token | None:
        """The record of a token; None if it is unknown or has expired."""
        digest = _hash(secret)
        return next((t for t in self.all() if t.sha256 == digest and not t.has_expired()), None)

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """The tokens as a list that the block may change, and that is then written."""
        what = "the tokens are being changed"
        with hold_lock(self._path.with_name(".tokens"), "tokens", what, wait=10.0):
            tokens = list(self.all())
            yield tokens
            write_json(
                self._path,
                {"schema_version": SCHEMA_VERSION, "tokens": to_json(tokens)},
                mode=_MODE,
            )

    def _read(self) -> list[Token]:
        stored: dict[str, Any] = read_json(
            self._path, "remove it, then make new tokens with `rag token create NAME`"
        )
        if stored["schema_version"] != SCHEMA_VERSION:
            raise SchemaVersionError(
                f"{self._path} has schema version {stored['schema_version']}, this program knows"
                f" {SCHEMA_VERSION}; use the program that wrote it"
            )
        return [
            Token(**{**token, "namespaces": tuple(token["namespaces"])})
            for token in stored["tokens"]
        ]


def _now() -> datetime:
    return datetime.now(UTC)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
