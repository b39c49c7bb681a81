"""Chromium on the pages of an inspector: waits for what a user would see, and never for a time."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from rillet.inspector.serving import Inspector

WAIT = 60
SCREENSHOTS = os.environ.get("RILLET_SCREENSHOTS")
"""A folder: the tests write the screenshots of docs/inspector.md into it."""


def has_browser() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


@lru_cache
def axe_source(folder: str) -> str | None:
    """Return the script of axe-core, which npm downloads into a folder; None without npm or the network."""
    script = Path(folder) / "node_modules/axe-core/axe.min.js"
    if not script.exists():
        if shutil.which("npm") is None:
            return None
        done = subprocess.run(
            ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error",
             "axe-core@4"], capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            return None
    return script.read_text()


def _shrink(path: Path) -> None:
    """Store a screenshot with 128 colours, a third of its size, where Pillow is installed."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        return
    with Image.open(path) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


class Pages:
    """A browser window on an inspector."""

    def __init__(self, driver: Any, inspector: Inspector) -> None:
        self.driver = driver
        self.inspector = inspector
        driver.get(inspector.url)
        self.until(lambda: self.script("return document.querySelector('.head .place') !== null"))

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Return the first true result."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        try:
            return WebDriverWait(
                self.driver, WAIT, 0.05, ignored_exceptions=(StaleElementReferenceException,)
            ).until(lambda _: condition())  # fmt: skip
        except Exception as error:
            raise AssertionError(f"the page did not get there; it shows: {self.text()[:1500]}") from error

    def open(self, view: str, **values: str) -> None:
        """Open a view, and wait until it is shown."""
        from urllib.parse import urlencode

        self.script("location.hash = arguments[0]", f"/{view}?{urlencode(values)}")
        self.until(lambda: self.script(
            "const one = document.querySelector('nav a[aria-current]');"
            "return one && one.getAttribute('href').split('?')[0] === '#/' + arguments[0]"
            " && document.querySelector('main .grid, main .loading') !== null", view))  # fmt: skip

    def text(self, selector: str = "main") -> str:
        found: str = self.script(
            "const one = document.querySelector(arguments[0]); return one ? one.innerText : ''", selector
        )
        return found

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.script(
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)", selector
        )
        return found

    def see(self, *words: str) -> None:
        """Wait until the view shows the words."""
        self.until(lambda: all(word in self.text() for word in words))

    def click(self, text: str, selector: str = "button, a") -> None:
        """Click the element with that text."""
        self.until(lambda: self.script(
            "const all = [...document.querySelectorAll(arguments[0])].filter("
            "(one) => one.innerText.trim() === arguments[1] && !one.disabled);"
            "if (!all.length) return false; all[all.length - 1].click(); return true", selector, text))  # fmt: skip

    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field, as a user types it."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        field = self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, selector))
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)

    def problems(self) -> list[str]:
        """Return what the browser's console says: errors of scripts, and what the policy refused.

        Not of requests: an inspector that ended earlier, and statuses that a test provokes, are among those.
        """
        return [row["message"] for row in self.driver.get_log("browser")
                if row["level"] == "SEVERE" and "Failed to load resource" not in row["message"]]  # fmt: skip

    def faults(self, axe: str) -> list[str]:
        """Return the serious accessibility faults that axe-core finds."""
        # The policy forbids scripts in the page; the driver's script is outside of it.
        found = self.driver.execute_async_script(
            axe + "\nconst done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then((one) => done(one.violations));"
        )
        return [
            f"{one['id']} ({one['impact']}): {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found if one["impact"] in ("serious", "critical")
        ]  # fmt: skip

    def screenshot(self, name: str, width: int = 1360, height: int = 900) -> None:
        """Write a screenshot for the docs if a folder for them is named."""
        if SCREENSHOTS:
            self.driver.set_window_size(width, height + 143)
            # The name of a folder of a test is no help to a reader.
            self.script("window.scrollTo(0, 0); document.querySelector('.place').firstChild.data = 'flights.rillet'")
            self.until(lambda: self.script("return document.fonts.status === 'loaded'"))
            path = Path(SCREENSHOTS) / f"{name}.png"
            self.driver.save_screenshot(str(path))
            self.driver.set_window_size(1360, 1043)
            _shrink(path)
