"""Django settings: values from the environment (``console.config.env``), fixed values, and the reasons for them.

Importing this module needs no Redis, Spark or Kafka. All variables are listed in ``.env.example``.
"""

from pathlib import Path

from csp.constants import NONCE, NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from kombu import Queue

from console.config.env import EnvironmentVariables, https_or_loopback, spark_address
from console.config.logging import configure_logging
from console.queue.scheduler import EVERY_S
from console.queue.transport import broker_settings
from linkctl import __version__
from linkengine.domain.addresses import DENIED_BY_DEFAULT, EVERYWHERE, restrict_connections

BASE_DIR = Path(__file__).resolve().parent.parent
_env = EnvironmentVariables()

# --- secrets and places -------------------------------------------------------------------------------------------
SECRET_KEY = _env.secret("CLUSTERLINK_SECRET_KEY")
CREDENTIALS_KEYS = _env.cipher_keys("CLUSTERLINK_CREDENTIALS_KEY")  # Fernet, newest first
DATABASES = {"default": _env.database("CLUSTERLINK_DATABASE_URL", "CLUSTERLINK_DATABASE_PASSWORD")}
REDIS_URL = _env.redis("CLUSTERLINK_REDIS_URL", "CLUSTERLINK_REDIS_PASSWORD")
SPARK_URL = spark_address(_env.secret("CLUSTERLINK_SPARK_URL"), _env.secret("CLUSTERLINK_SPARK_TOKEN", ""))
DEBUG = _env.flag("CLUSTERLINK_DEBUG")
ALLOWED_HOSTS = _env.words("CLUSTERLINK_ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = _env.words("CLUSTERLINK_CSRF_TRUSTED_ORIGINS", "")
TRUSTED_PROXIES = _env.networks("CLUSTERLINK_TRUSTED_PROXIES", "")  # X-Forwarded-For and -Proto are accepted from these only
BEHIND_TLS = _env.flag("CLUSTERLINK_BEHIND_TLS")  # a proxy terminates TLS: cookies become secure, HSTS is sent
if BEHIND_TLS and not TRUSTED_PROXIES:  # the CSRF check of all forms would fail: Django would take the requests for plain HTTP
    raise ImproperlyConfigured("CLUSTERLINK_BEHIND_TLS needs the proxy's address in CLUSTERLINK_TRUSTED_PROXIES.")
EXPORT_DIR = _env.text("CLUSTERLINK_EXPORT_DIR", str(BASE_DIR / "var" / "exports"))  # diverged records of restores
WORKER_THREADS = _env.number("CLUSTERLINK_WORKER_THREADS", 64)
COPY_WORKERS = _env.number("CLUSTERLINK_COPY_WORKERS", 0)  # long-lived Spark jobs that copy; 0: half of Spark's slots
API_RATE_PER_S = _env.number("CLUSTERLINK_API_RATE_PER_S", 50)  # requests per API key; 0: no limit
API_RATE_BURST = _env.number("CLUSTERLINK_API_RATE_BURST", 500)  # at once, after a pause
ATTEMPTS_AT_ONCE = _env.number("CLUSTERLINK_ATTEMPTS_AT_ONCE", 10)  # at a password or API key per address; 0: no limit
ATTEMPT_EVERY_S = _env.number("CLUSTERLINK_ATTEMPT_EVERY_S", 10)  # a further attempt per this time
API_TOKEN_LIFE_S = _env.number("CLUSTERLINK_API_TOKEN_LIFE_S", 3600)  # longest life of a bearer token
# Where links and clusters may connect to: an address has to be in an allowed network and not in a denied network
ALLOWED_NETWORKS = _env.networks("CLUSTERLINK_ALLOWED_NETWORKS", ",".join(EVERYWHERE))
DENIED_NETWORKS = _env.networks("CLUSTERLINK_DENIED_NETWORKS", ",".join(DENIED_BY_DEFAULT))
restrict_connections(allowed=ALLOWED_NETWORKS, denied=DENIED_NETWORKS)
PRODUCT_NAME = "Clusterlink"
VERSION = __version__  # of the whole distribution; pyproject.toml reads it from linkctl too
REVISION = _env.text("CLUSTERLINK_REVISION", "unknown")  # of the source; the image build sets it

# --- the project --------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "console.apps.ConsoleConfig",
    "console.apps.AdministrationConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "template_partials",
    "csp",
]
MIDDLEWARE = [
    "console.http.middleware.time_requests",  # first: it measures all the others
    "console.http.middleware.client_address",  # the others read the address and the scheme
    "console.http.middleware.request_id",
    "console.http.middleware.keep_path_encoded",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "console.http.middleware.no_store",  # inside WhiteNoise: static files may be stored
    "csp.middleware.CSPMiddleware",
    "console.http.errors.NoNulMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "console.http.middleware.PageLanguageMiddleware",  # reads the session
    "console.http.middleware.HostCheckMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "console.http.errors.DatabaseOutageMiddleware",
]
ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
APPEND_SLASH = False  # REST paths have no trailing slash and must never be redirected
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "console.http.middleware.template_context",
            ],
            "builtins": ["console.languages", "console.web.badges"],
        },
    }
]
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]  # static/vendor is filled at set-up, never committed
# collectstatic, which the image build runs, also writes compressed files. Without it files are found where they are written.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = not (STATIC_ROOT / "css").is_dir()
LANGUAGE_CODE = "en"  # of everything except pages: REST, stored texts, tasks, commands
LANGUAGES = [("en", "English"), ("ja", "日本語")]  # of pages, each name in its own language
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = True
TIME_ZONE = "UTC"
USE_TZ = True

# --- sign-in and sessions -----------------------------------------------------------------------------------------
LOGIN_URL = "pages:sign-in"
LOGIN_REDIRECT_URL = "pages:start"
LOGOUT_REDIRECT_URL = "pages:sign-in"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = BEHIND_TLS
SESSION_COOKIE_AGE = 12 * 3600
LANGUAGE_COOKIE_NAME = "language"  # of the pages before the sign-in
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600

# --- identity provider and second factor (django-allauth) ---------------------------------------------------------
# Only what is configured is installed: without these variables there are no tables, URLs and middleware of django-allauth.
SECOND_FACTOR = _env.flag("CLUSTERLINK_SECOND_FACTOR")  # users may protect their password with time-based codes (TOTP)
OIDC_ISSUER = https_or_loopback("CLUSTERLINK_OIDC_ISSUER", _env.text("CLUSTERLINK_OIDC_ISSUER", ""))
OIDC_NAME = _env.text("CLUSTERLINK_OIDC_NAME", "single sign-on")  # on the button of the sign-in page
OIDC_USER_CLAIM = _env.text("CLUSTERLINK_OIDC_USER_CLAIM", "preferred_username")  # name of a user at the first sign-in
OIDC_GROUPS_CLAIM = _env.text("CLUSTERLINK_OIDC_GROUPS_CLAIM", "groups")
OIDC_REQUIRED_GROUP = _env.text("CLUSTERLINK_OIDC_REQUIRED_GROUP", "")  # only its members may sign in; empty: all users
if SECOND_FACTOR or OIDC_ISSUER:
    INSTALLED_APPS += ["allauth", "allauth.account"]
    MIDDLEWARE.insert(-1, "allauth.account.middleware.AccountMiddleware")  # the last has to be sync only, and says why
    ACCOUNT_ADAPTER = "console.access.identity_provider.AccountAdapter"
    ACCOUNT_EMAIL_VERIFICATION = "none"
    ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]  # no e-mail addresses
if SECOND_FACTOR:
    INSTALLED_APPS.append("allauth.mfa")
    MFA_ADAPTER = "console.access.second_factor.secrets_adapter"
    MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
    MFA_TOTP_ISSUER = PRODUCT_NAME
    MFA_TOTP_TOLERANCE = 1  # accepts the code of the previous and of the next 30 s
if OIDC_ISSUER:
    INSTALLED_APPS += ["allauth.socialaccount", "allauth.socialaccount.providers.openid_connect"]
    SOCIALACCOUNT_ADAPTER = "console.access.identity_provider.ProviderAdapter"
    SOCIALACCOUNT_LOGIN_ON_GET = True  # a link: the CSP does not let forms lead to another host
    SOCIALACCOUNT_STORE_TOKENS = False
    SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {
            "OAUTH_PKCE_ENABLED": True,
            "SCOPE": _env.words("CLUSTERLINK_OIDC_SCOPES", "openid,profile"),
            "APPS": [
                {
                    "provider_id": "oidc",
                    "name": OIDC_NAME,
                    "client_id": _env.text("CLUSTERLINK_OIDC_CLIENT_ID"),
                    "secret": _env.secret("CLUSTERLINK_OIDC_CLIENT_SECRET"),
                    "settings": {"server_url": OIDC_ISSUER},
                }
            ],
        }
    }

# --- headers ------------------------------------------------------------------------------------------------------
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_TLS else None  # from TRUSTED_PROXIES only
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],  # Bootstrap's style sheet contains its arrows as data: images
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# --- REST ---------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": PRODUCT_NAME,
    "DESCRIPTION": "Cluster linking for stock Apache Kafka.",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# --- logs ---------------------------------------------------------------------------------------------------------
LOGGING_CONFIG = None  # structlog's own; see console.config.logging
LOG_JSON = _env.flag("CLUSTERLINK_LOG_JSON")
configure_logging(level=_env.text("CLUSTERLINK_LOG_LEVEL", "INFO"), as_json=LOG_JSON)

# --- Celery -------------------------------------------------------------------------------------------------------
CELERY_BROKER_URL, CELERY_BROKER_USE_SSL, _sentinel = broker_settings(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = (
    None  # an outage of Redis may last a night; by default the worker exits after 100 attempts
)
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 600,  # s; longer than any task that is acknowledged late, else it would be delivered twice
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "max_retries": 1,  # a page must not wait for Redis during an outage
    "interval_start": 0,
    "interval_max": 0.2,
    **_sentinel,
}

CELERY_TASK_QUEUES = (Queue("control"), Queue("spark"))  # a worker may consume a single queue: ``-Q``
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_ROUTES = {name: {"queue": "spark"} for name in ("run_copy_worker", "verify_mirror", "verify_next")}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True  # results go to waiting callers by ``queue.dispatch``, which survives an outage of Redis
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False  # the reconciler sends again what is still needed
CELERY_TASK_TRACK_STARTED = False

CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = WORKER_THREADS
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_ENABLE_UTC = True

CELERY_BEAT_SCHEDULER = "console.queue.scheduler:SteadyScheduler"
CELERY_BEAT_SCHEDULE = {
    "reconcile": {"task": "reconcile", "schedule": 1.0, "options": {"expires": 2}},
    "refresh-topics": {"task": "refresh_topics", "schedule": EVERY_S["refresh_topics"], "options": {"expires": 25}},
    "probe-clusters": {"task": "probe_clusters", "schedule": EVERY_S["probe_clusters"], "options": {"expires": 50}},
    "probe-spark": {"task": "probe_spark", "schedule": EVERY_S["probe_spark"], "options": {"expires": 8}},
    "forget-old-rows": {"task": "forget_old_rows", "schedule": EVERY_S["forget_old_rows"], "options": {"expires": 3000}},
}
CELERY_BEAT_SCHEDULE_FILENAME = str(BASE_DIR / "var" / "beat-schedule")
