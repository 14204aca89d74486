"""Unpack the console's third-party assets from the WebJars into `static/vendor/`, which git ignores.

Takes only the files that the pages load, without links to source maps (a static-file manifest would look for them), and
creates an SVG sprite of the icons named in `static/icons.txt`. Source: the profile `webjars` of `devcluster/pom.xml`.
"""

import re
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / "var" / "parts" / "webjars"
TARGET = ROOT / "static" / "vendor"
ICON_NAMES = ROOT / "static" / "icons.txt"

FILES = {
    "bootstrap": ("dist/css/bootstrap.min.css",),
    "tom-select": ("dist/css/tom-select.bootstrap5.min.css", "dist/js/tom-select.complete.min.js"),
    "uplot": ("dist/uPlot.min.css", "dist/uPlot.iife.min.js"),
}
SOURCE_MAP = re.compile(r"(/\*|//)# sourceMappingURL=.*?(\*/|$)", re.MULTILINE)
DRAWING = re.compile(r"<svg[^>]*viewBox=\"(?P<box>[^\"]+)\"[^>]*>(?P<shapes>.*)</svg>", re.DOTALL)


def main() -> int:
    """Write all assets; raise SystemExit if a file is missing."""
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, members in FILES.items():
        for member in members:
            text = SOURCE_MAP.sub("", read_member(name, member))
            (TARGET / Path(member).name).write_text(text)
    (TARGET / "icons.svg").write_text(sprite(ICON_NAMES.read_text().split()))
    return 0


def sprite(names: list[str]) -> str:
    """Return one SVG document with a symbol per icon, for `<use href="…/icons.svg#name">`."""
    symbols = "".join(symbol(name, read_member("bootstrap-icons", f"icons/{name}.svg")) for name in sorted(set(names)))
    return f'<svg xmlns="http://www.w3.org/2000/svg">{symbols}</svg>\n'


def symbol(name: str, drawing: str) -> str:
    """Return the symbol of an icon file."""
    found = DRAWING.search(drawing)
    if found is None:
        raise SystemExit(f"The icon {name} is not an SVG drawing with a viewBox.")
    shapes = " ".join(found["shapes"].split())
    return f'<symbol id="{name}" viewBox="{found["box"]}" fill="currentColor">{shapes}</symbol>'


def read_member(name: str, member: str) -> str:
    """Return a text file of the WebJar `name`."""
    jars = [jar for jar in JARS.glob(f"{name}-*.jar") if re.fullmatch(r"[\d.]+", jar.stem.removeprefix(f"{name}-"))]
    if len(jars) != 1:
        raise SystemExit(f"Expected one jar of {name} in {JARS}, found {len(jars)}. Run `make clean setup`.")
    version = jars[0].stem.removeprefix(f"{name}-")
    with ZipFile(jars[0]) as archive:
        try:
            return archive.read(f"META-INF/resources/webjars/{name}/{version}/{member}").decode()
        except KeyError:
            raise SystemExit(f"{jars[0].name} has no file {member}; correct its name here or in static/icons.txt.") from None


if __name__ == "__main__":
    sys.exit(main())
