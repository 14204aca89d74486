"""`make image-digests`: write the current digest of each base image into Dockerfile and docker-compose.yml.

A tag can be moved to another image, a digest cannot. Digests are resolved with `docker buildx imagetools`, which reads only the
manifest and pulls nothing. Standard library only.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("Dockerfile", "docker-compose.yml")
TIMEOUT_S = 120
# clusterlink: is built, not pulled
_IMAGE = re.compile(
    r"^(?P<before>(?:FROM|[ ]+image:) )(?P<name>(?!clusterlink:)[\w./-]+:[\w.-]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.MULTILINE,
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def without_digest(root: Path = ROOT) -> list[str]:
    """Return the images that are not pinned by a digest, with their file."""
    return [
        f"{file}: {image['name']}"
        for file in FILES
        for image in _IMAGE.finditer((root / file).read_text())
        if image["digest"] is None
    ]


def resolve(name: str) -> str:
    """Return the current digest of a tag; raise RuntimeError if docker cannot resolve it."""
    if shutil.which("docker") is None:
        raise RuntimeError("docker is not installed, so digests cannot be resolved.")
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    digest = done.stdout.strip()
    if done.returncode or not _DIGEST.fullmatch(digest):
        raise RuntimeError(f"docker cannot resolve {name}: {done.stderr.strip() or digest}")
    return digest


def main(root: Path = ROOT) -> int:
    """Resolve every tag, then write the files only if all of them could be resolved; return the exit code."""
    texts = {file: (root / file).read_text() for file in FILES}
    names = sorted({image["name"] for text in texts.values() for image in _IMAGE.finditer(text)})
    try:
        digests = {name: resolve(name) for name in names}
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error} Nothing was changed.\n")
        return 1
    for file, text in texts.items():
        (root / file).write_text(_IMAGE.sub(lambda image: f"{image['before']}{image['name']}@{digests[image['name']]}", text))
    sys.stdout.writelines(f"{name}@{digest}\n" for name, digest in digests.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
