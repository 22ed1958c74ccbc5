"""The reader's language, theme and token, which the browser keeps as cookies."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from rag_platform.messages import LANGUAGES
from rag_platform.web.dependencies import LibraryOf
from rag_platform.web.guards import LOGIN_PATH, TOKEN_COOKIE
from rag_platform.web.rendering import LANGUAGE_COOKIE, THEME_COOKIE, THEMES, render
from rag_platform.web.tokens import Tokens

pages = APIRouter()
_YEAR = 365 * 24 * 3600
_Text = Annotated[str, Form(max_length=500)]
_Address = Annotated[str, Form()]  # may hold a question, each Chinese character as nine


@pages.post("/preferences")
def prefer(next: _Address = "/", language: _Text = "", theme: _Text = "") -> Response:
    """Set the language or the theme, and show the page again."""
    answer = RedirectResponse(_local(next), 303)
    for cookie, value, known in (
        (LANGUAGE_COOKIE, language, LANGUAGES),
        (THEME_COOKIE, theme, THEMES),
    ):
        if value in known:
            answer.set_cookie(cookie, value, max_age=_YEAR, httponly=True, samesite="lax")
    return answer


@pages.get(LOGIN_PATH)
def ask_for_token(request: Request, next: str = "/") -> Response:
    """The form that asks for a token, and says so if the one that the browser has is refused."""
    return render(request, "login.html", next=_local(next), refused=TOKEN_COOKIE in request.cookies)


@pages.post(LOGIN_PATH)
def log_in(request: Request, library: LibraryOf, token: _Text, next: _Address = "/") -> Response:
    """Store a valid token in a cookie."""
    if Tokens(library.store).find(token.strip()) is None:
        return render(request, "login.html", 401, next=_local(next), refused=True)
    answer = RedirectResponse(_local(next), 303)
    public = library.settings.server.http.public_url
    answer.set_cookie(
        TOKEN_COOKIE,
        token.strip(),
        httponly=True,
        samesite="strict",
        secure=public.startswith("https"),
    )
    return answer


@pages.post("/logout")
def log_out(request: Request) -> Response:
    """Delete the token's cookie."""
    answer = RedirectResponse(LOGIN_PATH, 303)
    answer.delete_cookie(TOKEN_COOKIE, samesite="strict")
    return answer


def _local(address: str) -> str:
    """The URL if it is local to this server, else `/`. Browsers read `//`, `///` and `/\\` as the
    beginning of another host.
    """
    return address if re.match(r"/(?![/\\\s])", address) else "/"
