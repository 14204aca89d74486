"""The form field that names a user, for the page and the administration form that grant roles or make keys.

The name is typed: a list would show every user of the installation to a person who manages the access to one topic.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User


class UserNameField(forms.CharField):
    """The exact name of an active user; its value is the user."""

    def __init__(self, *, label: str = "User", suggestions: str = "") -> None:
        """``suggestions`` is the id of a datalist in the page, if there is one."""
        attributes = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        attributes |= {"list": suggestions} if suggestions else {}
        super().__init__(
            label=label, max_length=150, help_text="The exact user name.", widget=forms.TextInput(attrs=attributes)
        )

    def clean(self, value: Any) -> Any:
        """Return the user of the name."""
        name = super().clean(value)
        user = User.objects.filter(username=name, is_active=True).first()
        if user is None:
            raise forms.ValidationError("No active user has this name. Check the spelling; names are case-sensitive.")
        return user
