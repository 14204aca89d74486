"""Sign in, sign out, appearance."""

from __future__ import annotations

from django.contrib.auth import login, logout
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.pages.doors import reply
from console.pages.shell import THEME_COOKIE, THEMES
from console.signin import SignInForm

_YEAR_S = 365 * 24 * 3600


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Ask for name and password; then go on to the page that was wanted."""
    wanted = safe_path(request, request.POST.get("next") or request.GET.get("next", ""))
    if request.user.is_authenticated and request.method == "GET":
        return HttpResponseRedirect(wanted)
    form = SignInForm(request, data=request.POST or None)
    if request.method == "POST" and form.is_valid():
        login(request, form.get_user())
        return HttpResponseRedirect(wanted)
    return _sign_in_page(request, form, wanted)


def _sign_in_page(request: HttpRequest, form: SignInForm, wanted: str) -> HttpResponse:
    failed = request.method == "POST"
    context = {"failed": failed, "wait_s": form.wait_s, "next": wanted, "user_name": request.POST.get("username", "")}
    status = 429 if form.wait_s else 422 if failed else 200
    response = reply(request, "session/sign_in.html", context, status=status)
    if form.wait_s:
        response["Retry-After"] = str(form.wait_s)
    return response


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    logout(request)
    return HttpResponseRedirect("/sign-in/")


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Remember light, dark or "as the system" in a cookie; then show the same page again."""
    response = HttpResponseRedirect(safe_path(request, request.POST.get("next", "")))
    theme = request.POST.get("theme", "")
    if theme in THEMES:
        response.set_cookie(THEME_COOKIE, theme, max_age=_YEAR_S, samesite="Lax", secure=request.is_secure())
    else:
        response.delete_cookie(THEME_COOKIE)
    return response


def safe_path(request: HttpRequest, path: str) -> str:
    """Answer ``path`` if it stays on this host, else the start page: nobody is sent away by a crafted address."""
    fine = url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return path if path and fine else "/"
