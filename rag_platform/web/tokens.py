"""Access tokens of the HTTP server: creates, lists, revokes and verifies them, and
those of an OAuth authorization server.

A token of the server has 256 random bits and is shown once. Only its SHA-256 is stored, which is
safe for a secret that cannot be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio.to_thread

from rag_platform.access import SCOPES, Caller
from rag_platform.config.services import OAuthSettings
from rag_platform.errors import InputError, NotFoundError, SchemaVersionError
from rag_platform.storage.locks import hold_lock
from rag_platform.storage.records import from_json, to_json
from rag_platform.storage.store import Store, read_json, write_json

SCHEMA_VERSION = 1
_PREFIX = "rag_"  # lets people and secret scanners recognise a token
_MODE = 0o600
# asymmetric only: with HMAC algorithms the public key could be misused as the secret
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
_LEEWAY_SECONDS = 30
_KEYS_SECONDS = 5.0
_NAMESPACE = "namespace:"


class InvalidToken(Exception):
    """A token is missing, unknown or expired; the message says which."""


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
        self._store, self._path = store, store.tokens_path
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
        self._store.create()
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
        return [from_json(Token, token) for token in stored["tokens"]]


class Verifier:
    """Verifies tokens; with `needed`, a request without one is refused even if the data root has no
    tokens.
    """

    def __init__(
        self, tokens: Tokens, oauth: OAuthSettings, resource: str, *, needed: bool
    ) -> None:
        self._tokens = tokens
        self._oauth = AuthorizationServer(oauth, resource) if oauth.issuer else None
        self._needed = needed

    async def verify(self, secret: str | None) -> Caller | None:
        """The caller; None if no token is sent and none is needed. Raises InvalidToken."""
        if not secret:
            if self._needed or self._tokens.all():
                raise InvalidToken("a token is needed: send Authorization: Bearer TOKEN")
            return None
        if (token := self._tokens.find(secret)) is not None:
            return token.caller()
        if self._oauth is not None and secret.count(".") == 2:
            return await anyio.to_thread.run_sync(partial(self._oauth.verify, secret))
        raise InvalidToken("the token is unknown, has expired or was revoked")


class AuthorizationServer:
    """Verifies access tokens (JWT, RFC 9068) that an authorization server issued for this server.
    Its keys are fetched when first needed, and cached.
    """

    def __init__(self, settings: OAuthSettings, resource: str) -> None:
        import jwt

        self._settings = settings
        self._resource = resource
        self._keys = jwt.PyJWKClient(settings.jwks_url, timeout=_KEYS_SECONDS)

    def verify(self, secret: str) -> Caller:
        """The caller; its rights are from the scopes read, write and admin, its namespaces from
        scopes of the form `namespace:NAME`. Raises InvalidToken.
        """
        import jwt

        try:
            key = self._keys.get_signing_key_from_jwt(secret)
            claims: dict[str, Any] = jwt.decode(
                secret,
                key,
                algorithms=_ALGORITHMS,
                audience=self._resource,
                issuer=self._settings.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise InvalidToken(f"the token is not accepted: {_plain(error)}") from error
        given = claims.get("scope", claims.get("scp", ""))
        words = given.split() if isinstance(given, str) else given
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InvalidToken("the scopes of the token are neither words nor a list of words")
        prefix = self._settings.scope_prefix
        scopes = {word.removeprefix(prefix) for word in words if word.startswith(prefix)}
        granted = [scope for scope in SCOPES if scope in scopes]
        if not granted:
            raise InvalidToken(f"the token has none of the scopes {', '.join(SCOPES)}")
        namespaces = frozenset(
            scope.removeprefix(_NAMESPACE) for scope in scopes if scope.startswith(_NAMESPACE)
        )
        return Caller(f"{claims['iss']}#{claims['sub']}", granted[-1], namespaces or None)


def _plain(error: Exception) -> str:
    """The error as one line of ASCII that fits a header."""
    return str(error).encode("ascii", "replace").decode().replace('"', "'").split("\n")[0][:200]


def _now() -> datetime:
    return datetime.now(UTC)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
