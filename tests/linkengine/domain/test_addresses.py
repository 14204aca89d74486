import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.addresses import (
    MECHANISMS,
    OAUTH,
    ClusterAddress,
    address_from_properties,
    credentials_from_jaas,
    jaas_config,
    properties_of,
)
from linkengine.domain.errors import ErrorCode, LinkEngineError

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="us\\"er" password="p\\\\w;\'x";'
CLIENT = 'OAuthBearerLoginModule required clientId="us" clientSecret="p\\\\w" scope="a b" extension_pool="x";'
text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)


def sasl(**more: str) -> dict[str, str | None]:
    return {"bootstrap.servers": "b1:9092,b2:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": JAAS, **more}


def test_an_address_is_read_from_the_properties_of_java_clients() -> None:
    address = address_from_properties(sasl(**{"sasl.mechanism": "SCRAM-SHA-512"}))

    assert address.bootstrap_servers == "b1:9092,b2:9092"
    assert (address.security_protocol, address.sasl_mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert (address.sasl_username, address.sasl_password) == ('us"er', "p\\w;'x")
    assert address.uses_sasl
    assert not address.uses_tls


def test_without_a_protocol_an_address_is_plain_text() -> None:
    address = address_from_properties({"bootstrap.servers": " b1:9092 "})

    assert address == ClusterAddress(bootstrap_servers="b1:9092")


def test_the_protocol_may_stand_before_the_servers() -> None:
    address = address_from_properties({"bootstrap.servers": "SASL_SSL://b1:9092", "sasl.jaas.config": JAAS})

    assert (address.security_protocol, address.bootstrap_servers) == ("SASL_SSL", "b1:9092")


def test_an_explicit_protocol_wins_over_the_one_before_the_servers() -> None:
    address = address_from_properties({"bootstrap.servers": "SASL_SSL://b1:9092", "security.protocol": "ssl"})

    assert address.security_protocol == "SSL"


def test_pem_properties_are_kept_and_an_empty_algorithm_switches_the_host_name_check_off() -> None:
    properties: dict[str, str | None] = {
        "bootstrap.servers": "b1:9093",
        "security.protocol": "SSL",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }

    address = address_from_properties(properties)

    assert (address.ssl_ca_pem, address.ssl_certificate_pem, address.ssl_key_pem) == ("CA", "CERT", "KEY")
    assert not address.ssl_check_hostname
    assert properties.items() <= properties_of(address).items()


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.servers": "  "}, "bootstrap.servers"),
        ({"bootstrap.servers": None}, "bootstrap.servers"),
        ({"bootstrap.servers": "b:1", "security.protocol": "TLS"}, "security.protocol"),
        (sasl(**{"sasl.mechanism": "GSSAPI"}), "sasl.mechanism"),
        ({**sasl(), "sasl.jaas.config": None}, "sasl.jaas.config"),
        (sasl(**{"sasl.jaas.config": 'Module required username="u";'}), "sasl.jaas.config"),
        (sasl(**{"sasl.mechanism": OAUTH}), "clientId"),
        (sasl(**{"sasl.mechanism": OAUTH, "sasl.jaas.config": CLIENT}), "sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_properties_that_cannot_work_are_refused_by_name(properties: dict[str, str | None], named: str) -> None:
    with pytest.raises(LinkEngineError) as refused:
        address_from_properties(properties)

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert named in refused.value.message


def test_a_refused_login_line_is_never_repeated() -> None:
    with pytest.raises(LinkEngineError) as refused:
        credentials_from_jaas('Module required password="hunter2";')

    assert "hunter2" not in refused.value.message


PASSWORDS = [name for name in MECHANISMS if name != OAUTH]


@given(text, text, st.sampled_from(PASSWORDS))
def test_credentials_survive_the_login_line_whatever_they_contain(user: str, password: str, mechanism: str) -> None:
    address = ClusterAddress(
        bootstrap_servers="b:1",
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=password,
    )

    assert credentials_from_jaas(jaas_config(address)) == (user, password)


@given(
    st.builds(
        ClusterAddress,
        bootstrap_servers=st.just("b1:1,b2:2"),
        security_protocol=st.just("SASL_SSL"),
        sasl_mechanism=st.sampled_from(PASSWORDS),
        sasl_username=text,
        sasl_password=text,
        ssl_ca_pem=st.sampled_from(["", "CA"]),
        ssl_certificate_pem=st.sampled_from(["", "CERT"]),
        ssl_key_pem=st.sampled_from(["", "KEY"]),
        ssl_key_password=text,
        ssl_check_hostname=st.booleans(),
    )
)
def test_an_address_written_as_properties_is_read_back_unchanged(address: ClusterAddress) -> None:
    assert address_from_properties(properties_of(address)) == address


@given(text, text, text, st.dictionaries(st.from_regex(r"[a-z]{1,9}", fullmatch=True), text, max_size=2))
def test_a_client_of_a_token_endpoint_is_read_back_unchanged(
    client: str, secret: str, scope: str, extensions: dict[str, str]
) -> None:
    address = ClusterAddress(
        bootstrap_servers="b:1",
        security_protocol="SASL_SSL",
        sasl_mechanism=OAUTH,
        sasl_username=client,
        sasl_password=secret,
        oauth_token_url="https://tokens.test/token",
        oauth_scope=scope,
        oauth_extensions=tuple(sorted(extensions.items())),
    )

    assert address_from_properties(properties_of(address)) == address


def test_an_oauth_login_line_is_read() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": "http://tokens.test/"}
    address = address_from_properties(sasl(**{"sasl.mechanism": OAUTH, "sasl.jaas.config": CLIENT, **url}))

    assert (address.sasl_username, address.sasl_password) == ("us", "p\\w")
    assert (address.oauth_scope, address.oauth_extensions) == ("a b", (("pool", "x"),))


def test_printing_an_address_shows_no_secret() -> None:
    address = ClusterAddress(
        bootstrap_servers="b:1",
        sasl_username="visible",
        sasl_password="secret-1",
        ssl_ca_pem="secret-2",
        ssl_certificate_pem="secret-3",
        ssl_key_pem="secret-4",
        ssl_key_password="secret-5",
    )

    assert "visible" in repr(address)
    assert "secret" not in f"{address!r} {address}"
