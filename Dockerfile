# One image for every process of the product; docker-compose.yml says which command each container runs.
# The Java parts (Spark's Kafka source, front-end assets as WebJars) come from the pinned pom and are compared with recorded hashes, the
# Python parts come from the hashed requirements, and the base images are named by digest (`make image-digests` writes new ones).

FROM maven:3.9.9-eclipse-temurin-17@sha256:f58d59b6273e785ac0a4477f6e9b5ba1d7731c75b906c0f7b34076f1851318cc AS parts
WORKDIR /parts
COPY devcluster/pom.xml devcluster/parts.sha256 ./
RUN mvn -q -B -P spark dependency:copy-dependencies -DoutputDirectory=/parts/spark \
 && mvn -q -B -P webjars dependency:copy-dependencies -DoutputDirectory=/parts/webjars \
 && grep -E ' (spark|webjars)/' parts.sha256 >wanted.sha256 \
 && sha256sum --check --strict --quiet wanted.sha256 \
 && test "$(ls spark webjars | grep -c '[.]jar$')" = "$(wc -l <wanted.sha256)"

FROM python:3.11.11-slim-bookworm@sha256:081075da77b2b55c23c088251026fb69a7b2bf92471e491ff5fd75c192fd38e5
RUN apt-get update \
 && apt-get install -y --no-install-recommends gettext openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 clusterlink \
 && install -d -o clusterlink -g clusterlink -m 700 /exports \
 && install -d -o clusterlink -g clusterlink -m 700 /recovery \
 && install -d -o clusterlink -g clusterlink -m 700 /spark-secrets
WORKDIR /srv/clusterlink
COPY requirements-run.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements-run.txt
COPY --from=parts /parts/spark ./var/parts/spark
COPY --from=parts /parts/webjars ./var/parts/webjars
COPY . .
ENV PYTHONPATH=/srv/clusterlink PYTHONUNBUFFERED=1 PYSPARK_PYTHON=python3
RUN msgfmt --check-format -o locale/ja/LC_MESSAGES/django.mo locale/ja/LC_MESSAGES/django.po \
 && python -m scripts.unpack_assets \
 && CLUSTERLINK_SECRET_KEY=build CLUSTERLINK_CREDENTIALS_KEY=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= \
    CLUSTERLINK_DATABASE_URL=sqlite:///:memory: CLUSTERLINK_REDIS_URL=redis://127.0.0.1:6379/0 \
    CLUSTERLINK_SPARK_URL=sc://127.0.0.1:15002 CLUSTERLINK_ALLOWED_HOSTS=localhost \
    python manage.py collectstatic --noinput
USER clusterlink
EXPOSE 8000
CMD ["uvicorn", "console.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--no-proxy-headers"]
