"""Verifies the token of a request: the server's own, or one of an OAuth authorization server."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio.to_thread

from rag_platform.access import SCOPES, Caller
from rag_platform.config.services import OAuthSettings
from rag_platform.web.guards import InvalidToken
from rag_platform.web.tokens import Tokens

# asymmetric only: with HMAC algorithms the public key could be misused as the secret
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
_LEEWAY_SECONDS = 30
_KEYS_SECONDS = 5.0
_NAMESPACE = "namespace:"


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
        words = given.split() if isinstance(given, str) else [str(word) for word in given]
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
