"""Base classes of forms: Bootstrap classes, errors of actions shown at their field, and the connection fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from console.errors import ConflictError, ConsoleError
from console.languages import translated
from console.web.errors import help_for
from linkengine.domain.addresses import MECHANISMS, OAUTH, PROTOCOLS, ClusterAddress
from linkengine.domain.client_properties import TOKEN_URL, parse_token_url, properties_of
from linkengine.domain.errors import LinkEngineError

# Field or config name in the error of an action -> form field.
FIELD_OF = {
    "link_name": "name",
    "cluster.link.prefix": "prefix",
    "bootstrap.servers": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.jaas.config": "username",
    TOKEN_URL: "token_url",
    "ssl.truststore.certificates": "ca_pem",
    "ssl.keystore.certificate.chain": "certificate_pem",
    "ssl.keystore.key": "key_pem",
    "ssl.key.password": "key_password",
    "source_cluster_id": "other_cluster_id",
    "source_topic_name": "source_topic",
}
# Error code -> form field, for errors that name no field.
_FIELD_OF_CODE = {
    "UNRESOLVABLE_BOOTSTRAP_ERROR": "bootstrap_servers",
    "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR": "bootstrap_servers",
    "TIMEOUT_ERROR": "bootstrap_servers",
    "CLUSTER_ID_MISMATCH": "other_cluster_id",
}


def field_of(error: ConsoleError) -> str:
    """Return the form field that an error of an action concerns, "" if unknown.

    A refused login and failed TLS have the same code; only the message of the latter names the trusted certificates.
    """
    if error.code == "AUTHENTICATION_ERROR":
        return "ca_pem" if "ssl.truststore.certificates" in error.message else "password"
    return FIELD_OF.get(error.field or "", error.field or "") or _FIELD_OF_CODE.get(error.code, "")


# Advice on a connection error in a form that has the fields; ``console.web.errors`` has the texts for stored links.
_FIX_IN_FORM = {
    "AUTHENTICATION_ERROR": gettext_noop(
        "Enter user name and password again, and choose the mechanism that the listener offers."
    ),
    "UNRESOLVABLE_BOOTSTRAP_ERROR": gettext_noop("Correct the host name, or use an address that the worker can resolve."),
    "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR": gettext_noop("Check the port, the firewall and that the brokers are running."),
    "TIMEOUT_ERROR": gettext_noop("Check the address, the security protocol and the load of the brokers."),
    "MISCONFIGURATION_ERROR": gettext_noop("Correct the value."),
    "CLUSTER_ID_MISMATCH": gettext_noop("Correct the cluster ID, or the bootstrap servers."),
    "SECRET_NEEDED": gettext_noop("Enter password and private key again."),
}
_FIX_OF_TLS = gettext_noop(
    "Check that the port is a TLS listener, enter the CA certificate that signed the brokers' certificates, and use the host "
    "names in these. If the brokers require client certificates, enter certificate and key."
)


class ConsoleForm(forms.Form):
    """A form with Bootstrap classes. Errors of actions are shown with code, meaning and fix."""

    conditional: frozenset[str] = frozenset()  # required depending on other fields; not marked as optional

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Set the CSS classes of the widgets."""
        super().__init__(*args, **(kwargs | {"auto_id": "%s"}))
        for name, field in self.fields.items():
            field.conditional = name in self.conditional  # type: ignore[attr-defined]
            select = isinstance(field.widget, forms.Select)
            field.widget.attrs.setdefault("class", "form-select" if select else "form-control")

    def refuse(self, error: ConsoleError) -> bool:
        """Show the error of an action at its field. Return False if this form has no such field."""
        name = field_of(error)
        if name not in self.fields:
            return False
        self.refuse_at(name, error, fix=_FIX_OF_TLS if name == "ca_pem" else _FIX_IN_FORM.get(error.code, ""))
        return True

    def refuse_at(self, name: str, error: ConsoleError, *, fix: str = "") -> None:
        """Show the error of an action at a field, with ``fix`` or the usual fix."""
        known = help_for(error.code)
        params = {"shown_code": error.code, "meaning": known.meaning, "fix": gettext(fix) if fix else known.fix}
        self.add_error(name, ValidationError(translated(error.message).replace("%", "%%"), code=error.code, params=params))


class WriteOnlyTextarea(forms.Textarea):
    """A text area for a secret: the value is never rendered, as in a password field."""

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        return super().get_context(name, None, attrs)


_PEM_ATTRIBUTES = {"rows": 3, "spellcheck": "false", "class": "form-control mono"}


WRITE_ONLY = ("password", "certificate_pem", "key_pem", "key_password")


class ConnectionForm(ConsoleForm):
    """The connection to a Kafka cluster. Password, client certificate and key are write-only: they are never rendered.

    ``parts/connection.html`` shows only the fields of the chosen protocol and mechanism; the values of the others are ignored.
    """

    conditional = frozenset({"bootstrap_servers", "security_protocol", "sasl_mechanism", "username", "password", "token_url"})

    bootstrap_servers = forms.CharField(
        label=gettext_lazy("Bootstrap servers"),
        max_length=1000,
        help_text=gettext_lazy("host:port, separated by commas. IPv6: [address]:port."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    security_protocol = forms.ChoiceField(
        label=gettext_lazy("Security protocol"), choices=[(name, name) for name in PROTOCOLS], initial="SASL_SSL"
    )
    sasl_mechanism = forms.ChoiceField(
        label=gettext_lazy("SASL mechanism"),
        choices=[(name, name) for name in MECHANISMS],
        initial="SCRAM-SHA-512",
        required=False,
    )
    username = forms.CharField(
        label=gettext_lazy("User name, API key or client ID"),
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
    )
    password = forms.CharField(
        label=gettext_lazy("Password or secret"),
        required=False,
        strip=False,
        help_text=gettext_lazy("Stored encrypted and never shown again."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    token_url = forms.CharField(
        label=gettext_lazy("Token endpoint"),
        required=False,
        max_length=1000,
        help_text=gettext_lazy("Tokens are requested there with the client ID and secret."),
        widget=forms.URLInput(attrs={"autocomplete": "off"}),
    )
    token_scope = forms.CharField(label=gettext_lazy("Token scope"), required=False, max_length=1000)
    ca_pem = forms.CharField(
        label=gettext_lazy("CA certificates"),
        required=False,
        help_text=gettext_lazy("PEM format. Only needed with a private certificate authority."),
        widget=forms.Textarea(attrs=_PEM_ATTRIBUTES),
    )
    certificate_pem = forms.CharField(
        label=gettext_lazy("Client certificate"),
        required=False,
        help_text=gettext_lazy("PEM format, with its chain. Only needed if the brokers require client certificates."),
        widget=WriteOnlyTextarea(attrs={**_PEM_ATTRIBUTES, "autocomplete": "off"}),
    )
    key_pem = forms.CharField(
        label=gettext_lazy("Private key of the client certificate"),
        required=False,
        help_text=gettext_lazy("PEM format (PKCS #8). Stored encrypted and never shown again."),
        widget=WriteOnlyTextarea(attrs={**_PEM_ATTRIBUTES, "autocomplete": "off"}),
    )
    key_password = forms.CharField(
        label=gettext_lazy("Password of the private key"),
        required=False,
        strip=False,
        help_text=gettext_lazy("Only needed if the key is encrypted. Never shown again."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean(self) -> dict[str, Any] | None:
        """Require what the chosen protocol and mechanism need."""
        values = super().clean() or {}
        protocol = str(values.get("security_protocol", ""))
        if not self.has_connection_fields():
            return values
        if protocol.startswith("SASL"):
            missing = {
                "username": gettext("%(protocol)s requires a user name."),
                "password": gettext("%(protocol)s requires a password."),
            }
            for name, text in missing.items():
                if not values.get(name) and not self.keeps_stored_value(name):
                    self.add_error(name, text % {"protocol": protocol})
            if values.get("sasl_mechanism") == OAUTH:
                self._check_token_url(str(values.get("token_url", "")))
        if protocol.endswith("SSL"):
            self._check_certificate(values)
        return values

    def _check_certificate(self, values: Mapping[str, Any]) -> None:
        has_certificate, has_key = (
            bool(values.get(name)) or self.keeps_stored_value(name) for name in ("certificate_pem", "key_pem")
        )
        if has_certificate and not has_key:
            self.add_error("key_pem", gettext("A client certificate needs its private key."))
        if has_key and not has_certificate:
            self.add_error("certificate_pem", gettext("A private key needs its client certificate."))

    def _check_token_url(self, url: str) -> None:
        try:
            parse_token_url(url)
        except LinkEngineError:
            text = gettext("%(mechanism)s requires the URL of a token endpoint, for example https://idp.example.org/token.")
            self.add_error("token_url", text % {"mechanism": OAUTH})

    def has_connection_fields(self) -> bool:
        """Return True if the connection fields apply. Forms with an alternative override this."""
        return True

    def emptied(self) -> set[str]:
        """Return the names of the write-only fields that were filled in; they are empty when the form is rendered again."""
        return {name for name in WRITE_ONLY if name in self.fields and self.data.get(name)}

    def keeps_stored_value(self, name: str) -> bool:
        """Return True if an empty field keeps the stored value."""
        return False

    def properties(self) -> dict[str, str]:
        """Return the connection as Kafka client properties, including the secret."""
        return properties_of(address_of(self.cleaned_data))


def fingerprint(*parts: object) -> str:
    """Return a keyed hash that identifies the stored values a form showed. It does not reveal secrets among them."""
    return salted_hmac("console.web.forms", json.dumps(parts, sort_keys=True)).hexdigest()


def stale_form_error(what: str) -> ConflictError:
    """Return the error for a form that was opened before another user saved: it would undo that change."""
    text = gettext(
        "%(what)s changed after you opened this form. Nothing was saved. Check the current values and enter your change again."
    )
    return ConflictError(text % {"what": what})


def address_of(values: Mapping[str, Any]) -> ClusterAddress:
    """Return the address of the connection fields; values of fields that do not apply are left out."""
    sasl, tls = values["security_protocol"].startswith("SASL"), values["security_protocol"].endswith("SSL")
    certificate = values.get("certificate_pem", "") if tls else ""
    return ClusterAddress(
        bootstrap_servers=values["bootstrap_servers"],
        security_protocol=values["security_protocol"],
        sasl_mechanism=values["sasl_mechanism"] or "PLAIN",
        sasl_username=values["username"] if sasl else "",
        sasl_password=values["password"] if sasl else "",
        oauth_token_url=values["token_url"],
        oauth_scope=values["token_scope"],
        ssl_ca_pem=values["ca_pem"],
        ssl_certificate_pem=certificate,
        ssl_key_pem=values.get("key_pem", "") if certificate else "",
        ssl_key_password=values.get("key_password", "") if certificate else "",
    )
