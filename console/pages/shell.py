"""What the frame of every page needs: who is signed in, where one is, the sections of the navigation, the theme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from console.actors import Actor

THEMES = ("light", "dark")
THEME_COOKIE = "theme"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One entry of the navigation."""

    key: str
    label: str
    icon: str
    url: str


SECTIONS = (
    Section(key="environments", label="Environments", icon="collection", url="/environments/"),
    Section(key="links", label="Cluster links", icon="diagram-3", url="/links/"),
    Section(key="topics", label="Topics", icon="hdd-network", url="/topics/"),
    Section(key="access", label="Access", icon="shield-lock", url="/access/"),
    Section(key="audit", label="Audit", icon="journal-text", url="/audit/"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Values of the frame; ``theme`` is empty where the system decides."""

    user_name: str
    section: str
    theme: str
    environment: str  # of what the page shows; "" where it is about several
    sections: Sequence[Section] = SECTIONS
    search: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crumb:
    """One step of the breadcrumb; the last one has no address."""

    label: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One tab below a heading."""

    label: str
    url: str
    current: bool


def shell(request: HttpRequest, *, by: Actor | None, section: str = "", environment: str = "") -> Shell:
    """Answer the frame's values, without a query: the switcher asks for its list when it is opened."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return Shell(
        user_name=by.name if by else "",
        section=section,
        theme=theme if theme in THEMES else "",
        environment=environment,
        search=request.GET.get("q", "") if request.path == "/search/" else "",
    )
