"""The form field for a user name, used by the forms that grant roles or create API keys.

It is a text field and not a list: a list would show all users of the installation to anyone that manages access to a topic.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User


class UserNameField(forms.CharField):
    """A field for the exact name of an active user; its cleaned value is the ``User``."""

    def __init__(self, *, label: str = "User", suggestions: str = "", required: bool = True) -> None:
        """``suggestions`` is the id of a ``<datalist>`` of the page with names to suggest, or ""."""
        attributes = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        attributes |= {"list": suggestions} if suggestions else {}
        super().__init__(
            label=label,
            required=required,
            max_length=150,
            help_text="The exact user name.",
            widget=forms.TextInput(attrs=attributes),
        )

    def clean(self, value: Any) -> Any:
        """Return the active user with the name, None for an empty name; raise ValidationError if there is no such user."""
        name = super().clean(value)
        if not name:
            return None
        user = User.objects.filter(username=name, is_active=True).first()
        if user is None:
            raise forms.ValidationError("No active user has this name. Check the spelling; names are case-sensitive.")
        return user
