"""Whose token a request carries: one of the server's own, or one of an authorization server."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio.to_thread

from rag_platform.access import SCOPES, Caller
from rag_platform.config.services import OAuthSettings
from rag_platform.web.guards import InvalidToken
from rag_platform.web.tokens import Tokens

# signed with a key pair: with a shared secret the server's public key could be taken for one
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
_LEEWAY_SECONDS = 30
_KEYS_SECONDS = 5.0
_NAMESPACE = "namespace:"


class Verifier:
    """Recognises tokens; `needed` says whether a request without one is refused even while the
    data root has no tokens.
    """

    def __init__(
        self, tokens: Tokens, oauth: OAuthSettings, resource: str, *, needed: bool
    ) -> None:
        self._tokens = tokens
        self._oauth = AuthorizationServer(oauth, resource) if oauth.issuer else None
        self._needed = needed

    async def verify(self, secret: str | None) -> Caller | None:
        """The caller; None where no token is sent and none is needed. Raises InvalidToken."""
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
    """Recognises the access tokens (JWT, RFC 9068) that an authorization server made for this
    server. Its keys are fetched when first needed, and kept.
    """

    def __init__(self, settings: OAuthSettings, resource: str) -> None:
        import jwt

        self._settings = settings
        self._resource = resource
        self._keys = jwt.PyJWKClient(settings.jwks_url, timeout=_KEYS_SECONDS)

    def verify(self, secret: str) -> Caller:
        """Its caller; the scopes read, write and admin say what they may do, those of the form
        `namespace:NAME` where. Raises InvalidToken.
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
        held = [scope for scope in SCOPES if scope in scopes]
        if not held:
            raise InvalidToken(f"the token has none of the scopes {', '.join(SCOPES)}")
        namespaces = frozenset(
            scope.removeprefix(_NAMESPACE) for scope in scopes if scope.startswith(_NAMESPACE)
        )
        return Caller(f"{claims['iss']}#{claims['sub']}", held[-1], namespaces or None)


def _plain(error: Exception) -> str:
    """The reason in one line that fits a header."""
    return str(error).encode("ascii", "replace").decode().replace('"', "'").split("\n")[0][:200]
