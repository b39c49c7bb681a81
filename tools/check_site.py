"""Open the built documentation site from its folder in headless Chromium and search it, as a reader does offline.

    python tools/check_site.py build/site [--screenshots FOLDER]

The check loads the first page from file://, writes words into the search box, and requires results that lead to
existing pages, guides first. The pages of classes must have public names only. It needs selenium and Debian's Chromium:
`apt-get install chromium chromium-driver`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import rillet
import rillet.aio
from rillet.store import internal_names

ROOT = Path(__file__).resolve().parents[1]
SEARCHES = {
    "consumer group": "store.html",
    "lpEncodeBacklen": "formats/listpack.html",
    "XREADGROUP": "reference/commands.html",
}
"""Words to search for, each with a page that must be among the results."""
GUIDES = {
    "retry": "workers.html",
    "delete a stream": "store.html",
    "rate limit": "types.html",
    "consumer group": "store.html",
    "dead letter": "workers.html",
    "backup": "backup.html",
    "spark": "spark.html",
    "transaction": "store.html",
    "memory": "operations.html",
    "delay": "workers.html",
    "encryption": "security.html",
    "upgrade": "deployment.html",
    "pagination": "web.html",
    "server-sent events": "web.html",
    "gunicorn": "web.html",
    "celery": "coming-from.html",
    "error message": "problems.html",
    "sizes": "sizes.html",
    "size of a stream": "sizes.html",
    "memory and disk": "sizes.html",
}
"""What users look for, each with the guide that must be among the first three results; the first result is a guide."""
FIRST = 3
PAGES = ("index.html", "five-minutes.html", "reference/api.html", "reference/commands.html", "glossary.html")
WAIT = 20


def browser() -> Any:
    """Return a headless Chromium that makes no background connections."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-sync",
                 "disable-component-update", "no-first-run", "window-size=1280,1000", "disable-quic"):  # fmt: skip
        options.add_argument(f"--{word}")
    options.binary_location = shutil.which("chromium") or "chromium"
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def guides() -> set[str]:
    """Return the pages of the guides, relative to the site: those in the navigation before the reference."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n", 1)[1].split("  - Reference:", 1)[0]
    return {f"{page}.html" for page in re.findall(r": ([\w-]+)\.md$", navigation, re.MULTILINE)}


def internal_names_shown(site: Path) -> list[str]:
    """Return the methods in the reference that are for rillet alone."""
    shown = []
    for page in sorted((site / "reference" / "api").glob("*.html")):
        kind = next((getattr(module, page.stem) for module in (rillet.aio, rillet) if hasattr(module, page.stem)), None)
        names = set(re.findall(r'id="rillet\.[\w.]+\.(\w+)"', page.read_text(encoding="utf-8")))
        shown += [f"{page.stem}.{name}" for name in internal_names(kind) & names] if isinstance(kind, type) else []
    return shown


def search(driver: Any, site: Path, word: str) -> list[str]:
    """Return the pages, relative to the site, that a search on the first page finds, the best one first."""
    from selenium.webdriver.common.by import By

    driver.get((site / "index.html").as_uri())
    box = driver.find_element(By.CSS_SELECTOR, "input.md-search__input")
    # The theme's own shortcut opens the search box; the box takes focus when its animation ends.
    driver.find_element(By.TAG_NAME, "body").send_keys("/")
    deadline = time.monotonic() + WAIT
    while driver.switch_to.active_element != box and time.monotonic() < deadline:
        time.sleep(0.1)
    # All letters at once: the results are those of the word, and not of its beginning.
    typed = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('keyup', { bubbles: true }))"
    driver.execute_script(typed, box, word)
    while time.monotonic() < deadline:
        links = driver.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
        if links:
            paths = (Path(unquote(urlparse(link.get_attribute("href")).path)) for link in links)
            return list(dict.fromkeys(path.relative_to(site).as_posix() for path in paths))
        time.sleep(0.1)
    return []


def main() -> int:
    """Check the site and return the exit status."""
    parser = argparse.ArgumentParser(description="Search the built site in headless Chromium, from its folder.")
    parser.add_argument("site", type=Path)
    parser.add_argument("--screenshots", type=Path, help="write a picture of some pages into this folder")
    arguments = parser.parse_args()
    site: Path = arguments.site.resolve()
    shown = internal_names_shown(site)
    failures = len(shown)
    print(f"the reference shows public names only{': NOT ' + ', '.join(shown) if shown else ''}")
    driver = browser()
    try:
        for word, wanted in SEARCHES.items():
            pages = search(driver, site, word)
            good = wanted in pages and all((site / page).is_file() for page in pages)
            failures += not good
            print(f"search {word!r}: {len(pages)} pages, {wanted} {'found' if good else 'NOT FOUND'}")
            if arguments.screenshots:
                driver.save_screenshot(str(arguments.screenshots / f"search-{word.replace(' ', '-')}.png"))
        for word, wanted in GUIDES.items():
            pages = search(driver, site, word)
            good = wanted in pages[:FIRST] and pages[0] in guides()
            failures += not good
            print(f"search {word!r}: {', '.join(pages[:FIRST])}{'' if good else f': NOT {wanted}, or no guide first'}")
        for page in PAGES if arguments.screenshots else ():
            driver.get((site / page).as_uri())
            driver.save_screenshot(str(arguments.screenshots / f"{page.replace('/', '-')}.png"))
    finally:
        driver.quit()
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
