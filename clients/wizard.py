"""The pages that create a link, used as a browser without JavaScript uses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from typing import Self

import httpx

from clients.environment import ClientEnvironment, StepFailedError

__all__ = ["LinkForm", "Wizard"]
TIMEOUT_S = 60.0  # the last step connects to both clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkForm:
    """The values that a user enters in the steps; all other fields keep the values that the pages show."""

    name: str
    preset: str
    source: Mapping[str, str]
    configuration: Mapping[str, str] = field(default_factory=dict)


class Wizard:
    """A signed-in session of the administrator; a context manager that closes its connections."""

    def __init__(self, environment: ClientEnvironment) -> None:
        self._environment = environment
        self._client = httpx.Client(base_url=environment.console.base_url, follow_redirects=True, timeout=TIMEOUT_S)
        self._submit(
            self._client.get("/sign-in/"), {"username": environment.user, "password": environment.password}, form="username"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._client.close()

    def enter(self, form: LinkForm) -> httpx.Response:
        """Submit the steps up to the last; return its page with the name and the commands."""
        first = self._submit(self._client.get("/links/new/"), {"preset": form.preset}, form="preset")
        second = self._submit(first, {"intent": "next", **form.source}, form="other_kind")
        own = {"own": self._environment.destination.cluster_id}
        third = self._submit(second, {"intent": "next", **own}, form="own")
        last = self._submit(third, {"intent": "next", **form.configuration}, form="auto_create")
        return self._submit(last, {"intent": "commands", "name": form.name}, form="name")

    def create(self, last: httpx.Response, form: LinkForm) -> None:
        """Create the link on the last step."""
        created = self._submit(last, {"intent": "create", "name": form.name}, form="name")
        if not created.url.path.endswith(f"/{form.name}/"):
            raise StepFailedError(f"The form did not create link {form.name}:\n{_text_of(created.text)}")

    def _submit(self, page: httpx.Response, changes: Mapping[str, str], *, form: str) -> httpx.Response:
        """Submit the form of a page that has the field ``form``, with the values that the page shows and these changes."""
        forms = _Forms()
        forms.feed(page.text)
        shown = next((values for values in forms.found if form in values), None)
        if shown is None:
            raise StepFailedError(f"{page.url} has no form with the field {form}:\n{_text_of(page.text)}")
        if unknown := changes.keys() - shown.keys() - {"intent"}:
            raise StepFailedError(f"{page.url} has no fields {', '.join(sorted(unknown))}.")
        response = self._client.post(page.url, data={**shown, **changes})
        if response.status_code != httpx.codes.OK:
            raise StepFailedError(f"{page.url} returned {response.status_code}:\n{_text_of(response.text)}")
        return response


class _Forms(HTMLParser):
    """The forms of a page: name and shown value of each field, "" for a switch that is off."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name = values.get("name") or ""
        if tag == "form":
            self.found.append({})
        if not self.found:
            return
        form = self.found[-1]
        if tag == "input" and name:
            off = values.get("type") in ("checkbox", "radio") and "checked" not in values
            form[name] = (
                form.get(name, "") if off else values.get("value") or ("on" if values.get("type") == "checkbox" else "")
            )
        elif tag == "select":
            self._select = name
            form[name] = ""
        elif tag == "option" and self._select and "selected" in values:
            form[self._select] = values.get("value") or ""
        elif tag == "textarea" and name:
            form[name] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = ""


def printed_command(page: httpx.Response, key: str) -> str:
    """Return the text of a command on the last step, as its Copy button copies it."""
    section = re.search(rf'<details[^>]*id="command-{key}".*?</details>', page.text, re.DOTALL)
    text = re.search(r"<pre[^>]*>(.*?)</pre>", section[0], re.DOTALL) if section else None
    if text is None:
        raise StepFailedError(f"The last step prints no command {key!r}:\n{_text_of(page.text)}")
    return unescape(text[1])


def _text_of(page: str) -> str:
    """Return the visible text of a page's main part."""
    main = page.partition("<main")[2] or page
    return re.sub(r"\s*\n\s*", "\n", unescape(re.sub(r"<[^>]+>", "", main)))[:3000]
