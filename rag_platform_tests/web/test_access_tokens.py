"""Access tokens of an authorization server: its keys are served by a real web server, the tokens
signed as it would sign them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from starlette.testclient import TestClient

from rag_platform.access import Caller
from rag_platform.config.services import OAuthSettings
from rag_platform.config.settings import Settings, with_http
from rag_platform.server.app import build_server
from rag_platform.server.http_app import build_app
from rag_platform.storage.store import Store
from rag_platform.web.tokens import InvalidToken, Tokens, Verifier
from rag_platform_tests.conftest import Site

ISSUER, RESOURCE = "https://issuer.example", "https://rag.example.com/mcp"
KEY = ec.generate_private_key(ec.SECP256R1())


def signed(key: ec.EllipticCurvePrivateKey = KEY, **changes: Any) -> str:
    """A token of the issuer for this server; a change to None leaves a claim out."""
    claims = {
        "iss": ISSUER,
        "aud": RESOURCE,
        "sub": "ada",
        "exp": int(time.time()) + 600,
        "scope": "openid rag:write rag:namespace:hr",
        **changes,
    }
    given = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(given, key, algorithm="ES256", headers={"kid": "one"})


@pytest.fixture
def verify(site: Site, store: Store) -> Callable[[str], Caller | None]:
    """Verifies one token as a request's."""
    public = json.loads(ECAlgorithm.to_jwk(KEY.public_key()))
    keys = {"keys": [{**public, "kid": "one", "use": "sig"}]}
    url = site.serve("/keys", json.dumps(keys).encode(), Content_Type="application/json")
    oauth = OAuthSettings(issuer=ISSUER, jwks_url=url, scope_prefix="rag:")
    verifier = Verifier(Tokens(store), oauth, RESOURCE, needed=True)
    return lambda secret: anyio.run(verifier.verify, secret)


def test_scopes_say_what_and_where(verify: Callable[[str], Caller | None]) -> None:
    caller = verify(signed())
    assert caller == Caller(f"{ISSUER}#ada", "write", frozenset({"hr"}))
    assert caller.may("read") and not caller.may("admin")
    everywhere = verify(signed(scope=None, scp=["rag:admin", "rag:read"]))
    assert everywhere == Caller(f"{ISSUER}#ada", "admin", None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": "https://other.example/mcp"}, "Audience"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"sub": None}, "sub"),
        ({"scope": "read write"}, "none of the scopes"),
        ({"scope": 7}, "neither words"),
        ({"scope": {"rag:admin": 1}}, "neither words"),
        ({"key": ec.generate_private_key(ec.SECP256R1())}, "Signature"),
    ],
)
def test_what_is_not_made_for_this_server_is_refused(
    verify: Callable[[str], Caller | None], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidToken, match=reason):
        verify(signed(**changes))


def test_an_unsigned_token_is_refused(verify: Callable[[str], Caller | None]) -> None:
    claims = jwt.decode(signed(), options={"verify_signature": False})
    for secret in (
        jwt.encode(claims, None, algorithm="none", headers={"kid": "one"}),
        jwt.encode(claims, "k" * 32, algorithm="HS256", headers={"kid": "one"}),
        "a.b.c",
    ):
        with pytest.raises(InvalidToken, match="not accepted"):
            verify(secret)


def test_clients_are_told_where_tokens_come_from(settings: Settings) -> None:
    oauth = OAuthSettings(issuer=ISSUER, jwks_url=f"{ISSUER}/keys", scope_prefix="rag:")
    remote = with_http(settings, {"public_url": RESOURCE.removesuffix("/mcp"), "oauth": oauth})
    app = build_app(build_server(remote), remote)
    # without `with`: the application's lifespan, which runs once, is not needed here
    client = TestClient(app, base_url="https://rag.example.com")
    refused = client.post("/mcp", json={})
    where = "https://rag.example.com/.well-known/oauth-protected-resource/mcp"
    assert refused.status_code == 401
    assert f'resource_metadata="{where}"' in refused.headers["www-authenticate"]
    told = client.get(where).json()
    assert told["resource"] == RESOURCE and told["authorization_servers"] == [ISSUER]
    assert told["scopes_supported"] == ["rag:read", "rag:write", "rag:admin"]
