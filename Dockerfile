# One image for every process of the product; docker-compose.yml says which command each container runs.
# The Java parts (Spark's Kafka source, front-end assets as WebJars) come from the pinned pom, the Python parts from the
# hashed requirements.

FROM maven:3.9.9-eclipse-temurin-17 AS parts
WORKDIR /parts
COPY devcluster/pom.xml ./
RUN mvn -q -B -P spark dependency:copy-dependencies -DoutputDirectory=/parts/spark \
 && mvn -q -B -P webjars dependency:copy-dependencies -DoutputDirectory=/parts/webjars

FROM python:3.11.11-slim-bookworm
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 clusterlink \
 && install -d -o clusterlink -g clusterlink -m 700 /exports
WORKDIR /srv/clusterlink
COPY requirements-run.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements-run.txt
COPY --from=parts /parts ./var/parts
COPY . .
ENV PYTHONPATH=/srv/clusterlink PYTHONUNBUFFERED=1 PYSPARK_PYTHON=python3
RUN python -m scripts.unpack_assets \
 && CLUSTERLINK_SECRET_KEY=build CLUSTERLINK_CREDENTIALS_KEY=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= \
    CLUSTERLINK_DATABASE_URL=sqlite:///:memory: CLUSTERLINK_REDIS_URL=redis://127.0.0.1:6379/0 \
    CLUSTERLINK_SPARK_URL=sc://127.0.0.1:15002 CLUSTERLINK_ALLOWED_HOSTS=localhost \
    python manage.py collectstatic --noinput
USER clusterlink
EXPOSE 8000
CMD ["uvicorn", "console.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--no-proxy-headers"]
