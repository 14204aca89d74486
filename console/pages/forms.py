"""Form plumbing: Bootstrap classes, refusals of actions placed beside the field they name, the connection fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.crypto import salted_hmac

from console.errors import ConflictError, ConsoleError
from console.presenters.errors import help_for
from linkengine.domain.addresses import MECHANISMS, OAUTH, PROTOCOLS, TOKEN_URL, ClusterAddress, parse_token_url, properties_of
from linkengine.domain.errors import LinkEngineError

# Config names that actions name in a refusal -> the field of a page that holds them.
FIELD_OF = {
    "link_name": "name",
    "cluster.link.prefix": "topic_prefix",
    "bootstrap.servers": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.jaas.config": "username",
    TOKEN_URL: "token_url",
    "ssl.truststore.certificates": "ca_pem",
    "source_topic_name": "source_topic",
}
# Which field a cause points at, where the refusal names none.
_FIELD_OF_CODE = {
    "AUTHENTICATION_ERROR": "password",
    "UNRESOLVABLE_BOOTSTRAP_ERROR": "bootstrap_servers",
    "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR": "bootstrap_servers",
    "TIMEOUT_ERROR": "bootstrap_servers",
    "CLUSTER_ID_MISMATCH": "source_cluster_id",
}


class ConsoleForm(forms.Form):
    """A form whose inputs look like Bootstrap's and whose refusals carry code, meaning and fix."""

    conditional: frozenset[str] = frozenset()  # required or not, depending on other fields: not marked as optional

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Give every widget its class."""
        super().__init__(*args, **(kwargs | {"auto_id": "%s"}))
        for name, field in self.fields.items():
            field.conditional = name in self.conditional  # type: ignore[attr-defined]
            select = isinstance(field.widget, forms.Select)
            field.widget.attrs.setdefault("class", "form-select" if select else "form-control")

    def refuse(self, error: ConsoleError) -> bool:
        """Put a refusal beside its field; answer False where no field of this form is meant."""
        name = FIELD_OF.get(error.field or "", error.field or "") or _FIELD_OF_CODE.get(error.code, "")
        if name not in self.fields:
            return False
        known = help_for(error.code)
        words = {"shown_code": error.code, "meaning": known.meaning, "fix": known.fix if known.meaning else ""}
        self.add_error(name, ValidationError(error.message.replace("%", "%%"), code=error.code, params=words))
        return True


class ConnectionForm(ConsoleForm):
    """How to reach a Kafka cluster. The password is write-only: it is never rendered back."""

    conditional = frozenset({"bootstrap_servers", "security_protocol", "sasl_mechanism", "username", "password", "source"})

    bootstrap_servers = forms.CharField(
        label="Bootstrap servers",
        max_length=1000,
        help_text="host:port, several separated by commas; IPv6 as [address]:port",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    security_protocol = forms.ChoiceField(
        label="Security protocol", choices=[(name, name) for name in PROTOCOLS], initial="SASL_SSL"
    )
    sasl_mechanism = forms.ChoiceField(
        label="SASL mechanism",
        choices=[(name, name) for name in MECHANISMS],
        initial="SCRAM-SHA-512",
        required=False,
        help_text="Only with a SASL protocol.",
    )
    username = forms.CharField(
        label="User or API key", required=False, widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"})
    )
    password = forms.CharField(
        label="Password or secret",
        required=False,
        strip=False,
        help_text="Stored encrypted, never shown again.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    token_url = forms.CharField(
        label="Token endpoint",
        required=False,
        max_length=1000,
        help_text="Only with OAUTHBEARER; user and password are the client's ID and secret there.",
        widget=forms.URLInput(attrs={"autocomplete": "off"}),
    )
    token_scope = forms.CharField(label="Token scope", required=False, max_length=1000, help_text="Only with OAUTHBEARER.")
    ca_pem = forms.CharField(
        label="CA certificates",
        required=False,
        help_text="PEM text; only where TLS is signed by an authority of your own.",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "form-control mono"}),
    )

    def clean(self) -> dict[str, Any] | None:
        """Ask for user and password where the protocol needs them."""
        values = super().clean() or {}
        if str(values.get("security_protocol", "")).startswith("SASL") and self.asks_connection():
            for name, word in (("username", "a user name"), ("password", "a password")):
                if not values.get(name) and not self.may_be_kept(name):
                    self.add_error(name, f"{values['security_protocol']} needs {word}.")
            if values.get("sasl_mechanism") == OAUTH:
                self._check_token_url(str(values.get("token_url", "")))
        return values

    def _check_token_url(self, url: str) -> None:
        try:
            parse_token_url(url)
        except LinkEngineError:
            self.add_error("token_url", f"{OAUTH} needs the URL of a token endpoint, such as https://idp.example.org/token.")

    def asks_connection(self) -> bool:
        """Tell whether the connection fields count; a form that offers another way overrides this."""
        return True

    def may_be_kept(self, name: str) -> bool:
        """Tell whether an empty field keeps what is stored."""
        return False

    def properties(self) -> dict[str, str]:
        """Answer the connection as Kafka client properties; contains the secret."""
        return properties_of(address_of(self.cleaned_data))


def fingerprint(*parts: object) -> str:
    """Answer what tells whether stored values are those that a form showed; secrets among them cannot be told from it."""
    return salted_hmac("console.pages.forms", json.dumps(parts, sort_keys=True)).hexdigest()


def changed_meanwhile(what: str) -> ConflictError:
    """Refuse a form that was opened before somebody else saved: it would put back what it shows."""
    return ConflictError(
        f"{what} have changed since you opened this form: nothing was saved. It shows what is set now; make your change again."
    )


def address_of(values: Mapping[str, Any]) -> ClusterAddress:
    """Read the connection fields."""
    sasl = values["security_protocol"].startswith("SASL")
    return ClusterAddress(
        bootstrap_servers=values["bootstrap_servers"],
        security_protocol=values["security_protocol"],
        sasl_mechanism=values["sasl_mechanism"] or "PLAIN",
        sasl_username=values["username"] if sasl else "",
        sasl_password=values["password"] if sasl else "",
        oauth_token_url=values["token_url"],
        oauth_scope=values["token_scope"],
        ssl_ca_pem=values["ca_pem"],
    )
