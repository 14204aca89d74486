"""Commands to copy: REST requests with curl, and the creation of a link with curl, linkctl and Terraform.

Each can be run as printed. No secret is in the text.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext

from console.links.actions import LinkConfigChange
from console.links.drafts import DraftValues
from console.models import BulkOperation, ClusterLink
from linkengine.domain.addresses import OAUTH, ClusterAddress, join_servers, parse_servers
from linkengine.domain.client_properties import address_from_properties, properties_of
from linkengine.domain.states import MirrorEvent

# --- REST requests as curl commands -----------------------------------------------------------------------------------
#
# The API key comes from shell variables.


_CREDENTIALS = '-u "$API_KEY:$API_SECRET"'
# Topics that a command names. With names of 249 characters, its body is still below 128 KiB, the most that Linux passes as an
# argument.
MOST_IN_COMMAND = 400
_REST_VERBS: Mapping[str, str] = {
    MirrorEvent.REVERSE_AND_START: "reverse-and-start-mirror",
    MirrorEvent.REVERSE_AND_PAUSE: "reverse-and-pause-mirror",
}
# (method, URL name) of the operations that REST has for one topic at a time
_EACH: Mapping[str, tuple[str, str]] = {
    MirrorEvent.DELETE: ("DELETE", "kafka:topic"),
    MirrorEvent.RECOVER: ("POST", "v1-recover"),
    BulkOperation.VERIFY: ("POST", "v1-verify-runs"),
}


def curl(method: str, url: str, body: Mapping[str, object] | None = None) -> str:
    """Return a request as a curl command."""
    lines = [f"curl {_CREDENTIALS} -X {method} {shlex.quote(url)}"]
    if body is not None:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(body, indent=2))}")
    return " \\\n".join(lines)


def operation_command(request: HttpRequest, link: ClusterLink, operation: str, names: Sequence[str]) -> str:
    """Return the curl commands that request an operation on mirror topics; "" for more than ``MOST_IN_COMMAND`` topics."""
    if not 1 <= len(names) <= MOST_IN_COMMAND:
        return ""
    if operation in _EACH:
        method, url = _EACH[operation]
        place = link.url_args[:1] if operation == MirrorEvent.DELETE else link.url_args
        return "\n".join(curl(method, rest_url(request, url, (*place, name))) for name in names)
    url = f"{rest_url(request, 'kafka:mirrors', link.url_args)}:{_REST_VERBS.get(operation, operation)}"
    return curl("POST", url, {"mirror_topic_names": list(names)})


def alteration_command(request: HttpRequest, link: ClusterLink, changes: Sequence[LinkConfigChange]) -> str:
    """Return the curl command that changes configs of a link."""
    rows = [{"name": change.name, "value": change.value, "operation": change.operation} for change in changes]
    return curl("PUT", rest_url(request, "kafka:link-configs", link.url_args), {"data": rows})


def rest_url(request: HttpRequest, name: str, args: Sequence[str], **query: str) -> str:
    """Return the absolute URL of a REST endpoint, for a command to copy."""
    return request.build_absolute_uri(reverse(name, args=args, query=query))


# --- the creation of a link as curl, linkctl and Terraform ------------------------------------------------------------
#
# Secrets are never in the text. They come from shell variables, files, or Terraform variables, which the first lines name. In
# shell commands the documents are here-documents, so secrets do not appear in the list of processes either. Two levels of
# quoting apply to a password: ``sasl.jaas.config`` needs a backslash before quotes and backslashes, and JSON needs the same
# around that again. The shell function ``quote`` does it, and turns line breaks into ``\n`` for JSON.


# Placeholders in the configs; letters only, so that no quoting changes them.
_PASSWORD, _CERTIFICATE, _KEY, _KEY_PASSWORD = "xPASSWORDx", "xCERTIFICATEx", "xKEYx", "xKEYPASSWORDx"
_CERTIFICATE_FILE, _KEY_FILE = "client-certificate.pem", "client-key.pem"
_QUOTE = (
    "quote() { printf '%s' \"$1\" | tr -d '\\r' | sed 's/[\\\\\"]/\\\\&/g' "
    '| awk \'{ printf "%s%s", (NR > 1 ? "\\\\n" : ""), $0 }\'; }'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCommand:
    """A command to copy; without ``text``, ``reason`` says why there is none."""

    key: str
    title: str
    text: str = ""
    needs: Sequence[str] = ()  # what to set before it is run
    reason: str = ""


def link_commands(values: DraftValues, *, base_url: str, path: str, registered_servers: str = "") -> list[LinkCommand]:
    """Return the commands. ``path`` is the REST path of the creation, ``registered_servers`` those of a registered source."""
    return [
        _curl(values, url=f"{base_url}{path}"),
        _linkctl(values, base_url=base_url),
        _terraform(values, base_url=base_url, registered_servers=registered_servers),
    ]


def _address(values: DraftValues) -> ClusterAddress | None:
    return address_from_properties(values.connection) if values.has_own_connection else None


def _marked(values: DraftValues) -> dict[str, str | None]:
    """Return the configs with placeholders instead of secrets."""
    address = _address(values)
    if address is None:
        return values.configs()
    hidden = replace(
        address,
        sasl_password=address.sasl_password and _PASSWORD,
        ssl_certificate_pem=address.ssl_certificate_pem and _CERTIFICATE,
        ssl_key_pem=address.ssl_key_pem and _KEY,
        ssl_key_password=address.ssl_key_password and _KEY_PASSWORD,
    )
    return {**values.configs(), **properties_of(hidden)}


def _variables(address: ClusterAddress | None) -> list[tuple[str, str]]:
    """Return the shell variables of the source's secrets, with what each has to be."""
    if address is None:
        return []
    found = []
    if address.sasl_password:
        is_oauth = address.uses_sasl and address.sasl_mechanism == OAUTH
        meaning = gettext("client secret of %(user)s") if is_oauth else gettext("password of %(user)s")
        found.append(("SASL_PASSWORD", meaning % {"user": address.sasl_username}))
    if address.ssl_key_password:
        found.append(("SSL_KEY_PASSWORD", gettext("password of the private key")))
    return found


def _needs(variables: Sequence[tuple[str, str]], address: ClusterAddress | None) -> list[str]:
    """Return sentences about what has to be set or be there."""
    found = [f"{name}: {meaning}" for name, meaning in variables]
    if address is not None and address.ssl_certificate_pem:
        text = gettext("files %(certificate)s and %(key)s in the current folder")
        found.append(text % {"certificate": _CERTIFICATE_FILE, "key": _KEY_FILE})
    return found


def _curl(values: DraftValues, *, url: str) -> LinkCommand:
    address = _address(values)
    variables = [
        ("API_KEY", gettext("an API key of this console")),
        ("API_SECRET", gettext("its secret")),
        *_variables(address),
    ]
    remote = {values.remote_field: values.remote_id} if values.remote_id else {}
    configs = [{"name": name, "value": value} for name, value in _marked(values).items()]
    document = _here(json.dumps({**remote, "configs": configs}, indent=2))
    quoted = {
        _PASSWORD: '$(quote "$(quote "$SASL_PASSWORD")")',
        _CERTIFICATE: f'$(quote "$(cat {_CERTIFICATE_FILE})")',
        _KEY: f'$(quote "$(cat {_KEY_FILE})")',
        _KEY_PASSWORD: '$(quote "$SSL_KEY_PASSWORD")',
    }
    lines = [
        _required(variables),
        *([_QUOTE] if _has_secrets(address) else []),
        f"curl {_CREDENTIALS} -X POST {shlex.quote(url)} \\",
        "  -H 'Content-Type: application/json' --data-binary @- <<JSON",
        _filled(document, quoted),
        "JSON",
    ]
    return LinkCommand(key="curl", title="curl", text="\n".join(lines), needs=_needs(variables, address))


def _linkctl(values: DraftValues, *, base_url: str) -> LinkCommand:
    address, configs = _address(values), _marked(values)
    variables = [
        ("LINKCTL_API_KEY", gettext("an API key of this console")),
        ("LINKCTL_API_SECRET", gettext("its secret")),
        *_variables(address),
    ]
    hidden = {name: value for name, value in configs.items() if value == _KEY_PASSWORD or _PASSWORD in (value or "")}
    files = {_CERTIFICATE: f"@{_CERTIFICATE_FILE}", _KEY: f"@{_KEY_FILE}"}
    options = {name: files.get(value or "", value) for name, value in configs.items() if name not in hidden}
    remote = f"--{values.remote_field.removesuffix('_id').replace('_', '-')}"
    words = [
        f"linkctl --url {shlex.quote(base_url)} --cluster {shlex.quote(values.own)} link create",
        *([f"{remote} {shlex.quote(values.remote_id)}"] if values.remote_id else []),
        *(f"--config {shlex.quote(f'{name}={value}')}" for name, value in options.items()),
        *(["--config-file /dev/stdin"] if hidden else []),
        f"-- {shlex.quote(values.name)}",
    ]
    command = " \\\n  ".join(words)
    lines = [_required(variables), *([_QUOTE] if hidden else []), f"{command} <<PROPERTIES" if hidden else command]
    if hidden:
        quoted = {_PASSWORD: '$(quote "$SASL_PASSWORD")', _KEY_PASSWORD: "$SSL_KEY_PASSWORD"}
        lines += [_filled(_here(f"{name}={value}"), quoted) for name, value in hidden.items()]
        lines.append("PROPERTIES")
    return LinkCommand(key="linkctl", title="linkctl", text="\n".join(lines), needs=_needs(variables, address))


def _terraform(values: DraftValues, *, base_url: str, registered_servers: str) -> LinkCommand:
    """Return a configuration for Confluent's provider, which supports SASL_SSL with PLAIN, or a registered source."""
    command = LinkCommand(key="terraform", title="Terraform")
    address = _address(values)
    if values.link_mode != "DESTINATION" or values.connection_mode != "OUTBOUND":
        reason = gettext("Only for a link on the destination cluster that opens the connections itself.")
        return replace(command, reason=reason)
    if not values.remote_id:
        reason = gettext("Confluent's provider needs the ID of the source cluster. Enter it in step 1.")
        return replace(command, reason=reason)
    if address is not None and not _is_supported(address):
        reason = gettext(
            "Confluent's provider supports SASL_SSL with PLAIN and public certificate authorities only. Register the source "
            "cluster and choose it in step 1: the link then uses its registered security."
        )
        return replace(command, reason=reason)
    connection = values.connection if values.has_own_connection else {}
    configs = {name: value or "" for name, value in values.configs().items() if name not in connection}
    servers = parse_servers(address.bootstrap_servers if address else registered_servers)
    text = _HCL.format(
        name=_hcl(values.name),
        source_id=_hcl(values.remote_id),
        bootstrap=_hcl(join_servers(servers)),
        source_key=_hcl(_escaped(address.sasl_username)) if address else "var.api_key",
        source_secret=_ESCAPED_SECRET if address else "var.api_secret",
        destination_id=_hcl(values.own),
        rest=_hcl(base_url),
        configs="".join(f"    {_hcl(name)} = {_hcl(value)}\n" for name, value in configs.items()),
        source_variable=f'variable "source_secret" {_SENSITIVE}\n' if address else "",
    )
    variables = [("TF_VAR_api_key", gettext("an API key of this console")), ("TF_VAR_api_secret", gettext("its secret"))]
    if address is not None:
        variables.append(("TF_VAR_source_secret", gettext("password of %(user)s") % {"user": address.sasl_username}))
    return replace(command, text=text, needs=_needs(variables, None))


_SENSITIVE = "{ sensitive = true }"
# The provider writes user and password between quotes into sasl.jaas.config without escaping them.
_ESCAPED_SECRET = r"""replace(replace(var.source_secret, "\\", "\\\\"), "\"", "\\\"")"""  # noqa: S105 - an expression
_HCL = """terraform {{
  required_providers {{
    confluent = {{ source = "confluentinc/confluent" }}
  }}
}}

provider "confluent" {{}}

variable "api_key" {{}}
variable "api_secret" {{ sensitive = true }}
{source_variable}
resource "confluent_cluster_link" "link" {{
  link_name = {name}
  source_kafka_cluster {{
    id                 = {source_id}
    bootstrap_endpoint = {bootstrap}
    credentials {{
      key    = {source_key}
      secret = {source_secret}
    }}
  }}
  destination_kafka_cluster {{
    id            = {destination_id}
    rest_endpoint = {rest}
    credentials {{
      key    = var.api_key
      secret = var.api_secret
    }}
  }}
  config = {{
{configs}  }}
}}
"""


def _is_supported(address: ClusterAddress) -> bool:
    plain = address.security_protocol == "SASL_SSL" and address.sasl_mechanism == "PLAIN"
    return plain and not (address.ssl_ca_pem or address.ssl_certificate_pem) and address.ssl_check_hostname


def _escaped(text: str) -> str:
    """Return a value as ``sasl.jaas.config`` has it between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _hcl(text: str) -> str:
    """Return a string of Terraform's language: JSON's escapes, and no template sequences."""
    return json.dumps(text, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def _has_secrets(address: ClusterAddress | None) -> bool:
    return address is not None and bool(address.sasl_password or address.ssl_key_pem)


def _required(variables: Sequence[tuple[str, str]]) -> str:
    """Return a line that ends a script, with the name of the variable, if a variable is not set."""
    return ": " + " ".join(f'"${{{name}:?}}"' for name, _ in variables)


def _here(text: str) -> str:
    """Return text for a here-document in which the shell still expands what is inserted afterwards."""
    return text.replace("\\", "\\\\").replace("$", "\\$").replace("`", "\\`")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
