"""The frame of all pages: signed-in user, navigation, breadcrumbs, tabs and theme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse

from console.actors import Actor
from console.pages.preferences import DENSITY

THEMES = ("light", "dark")
THEME_COOKIE = "theme"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An entry of the navigation."""

    key: str
    label: str
    icon: str
    page: str  # name of its URL pattern

    @property
    def url(self) -> str:
        """Return the URL of its page."""
        return reverse(self.page)


SECTIONS = (
    Section(key="environments", label="Environments", icon="collection", page="pages:environments"),
    Section(key="links", label="Cluster links", icon="diagram-3", page="pages:links"),
    Section(key="topics", label="Topics", icon="hdd-network", page="pages:topics"),
    Section(key="operations", label="Operations", icon="arrow-repeat", page="pages:operations"),
    Section(key="access", label="Access", icon="shield-lock", page="pages:access"),
    Section(key="audit", label="Audit log", icon="journal-text", page="pages:audit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The values of the frame. ``theme`` is "" to follow the system."""

    user_name: str
    section: str
    theme: str
    environment: str  # environment of the page, "" if it shows several
    sections: Sequence[Section] = SECTIONS
    density: str = ""  # "compact" for tables with low rows
    search: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crumb:
    """A breadcrumb. The last one has no URL."""

    label: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A tab below a heading."""

    label: str
    url: str
    current: bool


def shell(request: HttpRequest, *, by: Actor | None, section: str = "", environment: str = "") -> Shell:
    """Return the values of the frame without a query; the environment switcher loads its list when it is opened."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return Shell(
        user_name=by.name if by else "",
        section=section,
        theme=theme if theme in THEMES else "",
        environment=environment,
        density=request.session.get(DENSITY, "") if by else "",
        search=request.GET.get("q", "") if request.path == reverse("pages:search") else "",
    )
