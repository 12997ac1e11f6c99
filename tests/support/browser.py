"""A real Chromium, and pages in it that must behave: no error, nothing from elsewhere, nothing that the CSP refuses."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, sync_playwright

from tests.support.waiting import HANGS_S

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_ADVICE = (
    "the tests of the page need Chromium on PATH: run scripts/setup dev, or install it "
    "(Debian: sudo apt-get install chromium; elsewhere: python -m playwright install chromium)"
)
# Chromium will not start as root in its own sandbox, which matters little: it sees nothing but our page.
_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
TIMEOUT_MS = HANGS_S * 1000


def find_chromium(playwright: Playwright) -> str:
    """Return the path of Chromium: that of the system, else the one that Playwright has fetched."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    fetched = playwright.chromium.executable_path
    assert Path(fetched).exists(), _ADVICE
    return fetched


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(playwright), args=_ARGUMENTS)
        yield browser
        browser.close()


class Watched:
    """What must not happen in a page."""

    def __init__(self, page: Page, origin: str) -> None:
        self.origin = origin
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.is_losing_its_scheduler = False
        """Connections break on purpose: the browser writes an error for each."""
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(f"{error.name}: {error.message}\n{error.stack}"))
        page.on("request", self._on_request)
        page.add_init_script(
            "addEventListener('securitypolicyviolation',"
            " e => console.error('CSP: ' + e.violatedDirective + ' ' + e.blockedURI))"
        )

    def check(self) -> None:
        assert not self.errors, "\n".join(self.errors)
        assert not self.elsewhere

    def forget(self) -> None:
        """Begin anew, for the next test."""
        self.errors.clear()
        self.elsewhere.clear()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        if self.is_losing_its_scheduler and "Failed to load resource" in message.text:
            return
        self.errors.append(f"{message.type}: {message.text} ({message.location})")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https") and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.elsewhere.append(request.url)


@contextmanager
def watched_page(
    browser: Browser, origin: str, *, scheme: str = "light", wide: int = 1280
) -> Iterator[tuple[Page, Watched]]:
    """Yield a page of *origin*, and what must not happen in it; when the block ends, nothing of that has."""
    context = browser.new_context(
        base_url=origin, color_scheme=scheme, viewport={"width": wide, "height": 900}, reduced_motion="reduce"
    )
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    watched = Watched(page, origin)
    try:
        yield page, watched
        watched.check()
    finally:
        context.close()


def _main() -> None:
    """Print where Chromium is; `scripts/setup` asks. It must start, since a name on PATH may be no more than a hint."""
    with sync_playwright() as playwright:
        path = find_chromium(playwright)
    subprocess.run([path, "--version"], check=True, timeout=HANGS_S, capture_output=True)
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    _main()
