import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.addresses import MECHANISMS, OAUTH, ClusterAddress
from linkengine.domain.client_properties import address_from_properties, properties_of
from linkengine.domain.errors import ErrorCode, LinkEngineError

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="us\\"er" password="p\\\\w;\'x";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p"'
CLIENT = 'OAuthBearerLoginModule required clientId="us" clientSecret="p\\\\w" scope="a b" extension_pool="x";'
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


def sasl(**more: str) -> dict[str, str | None]:
    return {"bootstrap.servers": "b1:9092,b2:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": JAAS, **more}


def test_an_address_is_parsed_from_java_client_properties() -> None:
    address = address_from_properties(sasl(**{"sasl.mechanism": "SCRAM-SHA-512"}))

    assert address.bootstrap_servers == "b1:9092,b2:9092"
    assert (address.security_protocol, address.sasl_mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert (address.sasl_username, address.sasl_password) == ('us"er', "p\\w;'x")
    assert address.uses_sasl
    assert not address.uses_tls


def test_the_default_protocol_is_plaintext() -> None:
    address = address_from_properties({"bootstrap.servers": " b1:9092 "})

    assert address == ClusterAddress(bootstrap_servers="b1:9092")


def test_the_protocol_may_precede_the_servers() -> None:
    address = address_from_properties({"bootstrap.servers": "SASL_SSL://b1:9092", "sasl.jaas.config": JAAS})

    assert (address.security_protocol, address.bootstrap_servers) == ("SASL_SSL", "b1:9092")


def test_pem_properties_are_kept_and_an_empty_algorithm_disables_the_host_name_check() -> None:
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
        (sasl(**{"sasl.jaas.config": 'PlainLoginModule required username="u";'}), "sasl.jaas.config"),
        (sasl(**{"sasl.mechanism": OAUTH}), "clientId"),
        (
            sasl(**{"sasl.jaas.config": f"{SCRAM};"}),
            "ScramLoginModule needs SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (sasl(**{"sasl.mechanism": OAUTH, "sasl.jaas.config": CLIENT}), "sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_invalid_properties_are_refused_by_name(properties: dict[str, str | None], named: str) -> None:
    with pytest.raises(LinkEngineError) as refused:
        address_from_properties(properties)

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert named in refused.value.message


PASSWORDS = [name for name in MECHANISMS if name != OAUTH]


@given(
    st.builds(
        ClusterAddress,
        bootstrap_servers=st.just("b1:1,b2:2"),
        security_protocol=st.just("SASL_SSL"),
        sasl_mechanism=st.sampled_from(PASSWORDS),
        sasl_username=st.text(st.characters(codec="ascii", exclude_characters="\0")),
        sasl_password=text,
        ssl_ca_pem=st.sampled_from(["", "CA"]),
        ssl_certificate_pem=st.sampled_from(["", "CERT"]),
        ssl_key_pem=st.sampled_from(["", "KEY"]),
        ssl_key_password=text,
        ssl_check_hostname=st.booleans(),
    )
)
def test_an_address_survives_conversion_to_properties(address: ClusterAddress) -> None:
    assert address_from_properties(properties_of(address)) == address


@given(text, text, text, st.dictionaries(st.from_regex(r"[a-z]{1,9}", fullmatch=True), text, max_size=2))
def test_an_oauth_address_survives_conversion_to_properties(
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


@pytest.mark.parametrize(
    ("servers", "security", "protocol"),
    [
        ("SASL_SSL://b1:1,SASL_SSL://b2:2", {}, "SASL_SSL"),
        ("sasl_ssl://b1:1 , Sasl_Ssl://b2:2,", {}, "SASL_SSL"),
        ("SASL_SSL://b1:1,b2:2", {}, "SASL_SSL"),
        ("SASL_SSL://b1:1,b2:2", {"security.protocol": "sasl_ssl"}, "SASL_SSL"),
        ("EXTERNAL://b1:1,EXTERNAL://b2:2", {"security.protocol": "SASL_SSL"}, "SASL_SSL"),
        ("b1:1,b2:2", {}, "PLAINTEXT"),
    ],
)
def test_every_server_may_have_a_protocol(servers: str, security: dict[str, str], protocol: str) -> None:
    address = address_from_properties({"bootstrap.servers": servers, "sasl.jaas.config": JAAS, **security})

    assert (address.bootstrap_servers, address.security_protocol) == ("b1:1,b2:2", protocol)


@pytest.mark.parametrize(
    ("servers", "security", "named"),
    [
        ("SASL_SSL://b1:1", {"security.protocol": "SSL"}, "SASL_SSL://b1:1, but security.protocol is SSL"),
        ("SSL://b1:1,PLAINTEXT://b2:2", {}, "PLAINTEXT://b2:2, but another server has SSL://"),
        ("PLAINTEXT://b1:1,X://b2:2", {}, "X://b2:2"),
        ("SASL_SLL://b1:1", {}, "SASL_SLL://b1:1"),
    ],
)
def test_contradicting_and_unknown_server_protocols_are_refused(servers: str, security: dict[str, str], named: str) -> None:
    with pytest.raises(LinkEngineError, match=named) as refused:
        address_from_properties({"bootstrap.servers": servers, "sasl.jaas.config": JAAS, **security})

    contradicts = ", but " in named
    assert ("Kafka's Java clients ignore the protocol before ://" in refused.value.message) is contradicts
    assert (
        "because the wrong one of two protocols may send a password without encryption" in refused.value.message
    ) is contradicts


TOKENS = {"sasl.mechanism": OAUTH, "sasl.jaas.config": CLIENT, "sasl.oauthbearer.token.endpoint.url": "http://tokens.test/"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            {"sasl.jaas.config": f'{SCRAM} tokenauth="true";', "sasl.mechanism": "SCRAM-SHA-256"},
            'tokenauth="true": delegation tokens',
        ),
        ({"sasl.jaas.config": f"{SCRAM} tokenauth=TRUE;", "sasl.mechanism": "SCRAM-SHA-256"}, "delegation tokens"),
        ({"sasl.jaas.config": f'{SCRAM} serviceName="kafka";', "sasl.mechanism": "SCRAM-SHA-256"}, "'serviceName'"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;"}, "Krb5LoginModule"),
        ({"sasl.jaas.config": f"{SCRAM}; {SCRAM};", "sasl.mechanism": "SCRAM-SHA-256"}, "one login module"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM"),
        ({"sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name.*Kerberos"),
        ({"sasl.login.callback.handler.class": "com.example.Handler"}, "sasl.login.callback.handler.class"),
        ({**TOKENS, "sasl.login.callback.handler.class": "com.example.Handler"}, "sasl.login.callback.handler.class"),
        ({**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": "https://x/"}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.client.callback.handler.class": "x"}, "sasl.client.callback.handler.class"),
        ({"sasl.login.class": "x"}, "sasl.login.class"),
        ({"ssl.keystore.location": "/etc/key.jks"}, "ssl.keystore.location.*PEM text"),
        ({"ssl.truststore.location": "/etc/trust.jks"}, "ssl.truststore.location.*PEM text"),
        ({"ssl.truststore.password": "secret"}, "ssl.truststore.password"),
        ({"ssl.truststore.type": "PKCS12"}, "ssl.truststore.type"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "ssl.cipher.suites"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "ssl.enabled.protocols"),
        ({"ssl.engine.factory.class": "x"}, "ssl.engine.factory.class"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "ssl.endpoint.identification.algorithm"),
        ({"security.providers": "x"}, "security.providers"),
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_SSL", "PLAINTEXT"])
def test_unsupported_security_properties_are_refused_by_name(given: dict[str, str], named: str, protocol: str) -> None:
    properties = {"bootstrap.servers": "b:1", "security.protocol": protocol, "sasl.jaas.config": JAAS, **given}

    with pytest.raises(LinkEngineError, match=named) as refused:
        address_from_properties(properties)

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(("mechanism", "fine"), [("PLAIN", True), ("SCRAM-SHA-256", False), ("SCRAM-SHA-512", False)])
def test_scram_accepts_only_ascii_user_names(mechanism: str, fine: bool) -> None:
    jaas = 'ScramLoginModule required username="jürgen" password="ü";'

    if fine:
        assert (
            address_from_properties(sasl(**{"sasl.mechanism": mechanism, "sasl.jaas.config": jaas})).sasl_username == "jürgen"
        )
        return
    with pytest.raises(LinkEngineError, match=r"beyond ASCII.*SCRAM"):
        address_from_properties(sasl(**{"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}))


def test_security_properties_with_default_values_and_other_properties_are_accepted() -> None:
    defaults = {
        "ssl.truststore.type": "JKS",
        "ssl.keystore.type": "PEM",
        "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
        "ssl.protocol": "TLSv1.3",
        "ssl.endpoint.identification.algorithm": "HTTPS",
        "ssl.keystore.location": "",
        "client.id": "x",
        "sasl.jaas.config": f'{SCRAM} tokenauth="false";',
        "sasl.mechanism": "scram-sha-256",
    }

    address = address_from_properties({"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", **defaults})

    assert (address.sasl_mechanism, address.sasl_username, address.ssl_check_hostname) == ("SCRAM-SHA-256", "u", True)


@pytest.mark.parametrize("handler", ["", "secured."])
def test_the_oauth_login_handler_is_accepted(handler: str) -> None:
    name = f"org.apache.kafka.common.security.oauthbearer.{handler}OAuthBearerLoginCallbackHandler"

    assert address_from_properties(sasl(**TOKENS, **{"sasl.login.callback.handler.class": name})).sasl_mechanism == OAUTH


@pytest.mark.parametrize("secret", ["pass\0word", "pass\ud800word"])
def test_a_password_that_no_client_can_send_is_refused_without_repeating_it(secret: str) -> None:
    address = ClusterAddress(bootstrap_servers="b:1", security_protocol="SASL_SSL", sasl_username="u", sasl_password=secret)

    with pytest.raises(LinkEngineError, match=r"password in sasl\.jaas\.config") as refused:
        address_from_properties(properties_of(address))

    assert "pass\\" not in refused.value.message
    assert "word" not in refused.value.message.replace("password", "")


def test_an_oauth_login_line_is_parsed() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": "http://tokens.test/"}
    address = address_from_properties(sasl(**{"sasl.mechanism": OAUTH, "sasl.jaas.config": CLIENT, **url}))

    assert (address.sasl_username, address.sasl_password) == ("us", "p\\w")
    assert (address.oauth_scope, address.oauth_extensions) == ("a b", (("pool", "x"),))


def test_repr_of_an_address_contains_no_secret() -> None:
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
