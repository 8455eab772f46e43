"""A real browser without a window, for pages: Debian's chromium, spoken to through its debugging pipe.

The pipe takes and gives JSON that ends with a zero byte (``--remote-debugging-pipe``: file descriptor 3 in, 4 out), so
that nothing but the standard library is needed, and no port is open.  `CSTC_BROWSER` names another program.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

PATIENCE = 30.0  # seconds that the browser may take for anything
SWITCHES = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container; they open files of their own only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--mute-audio",
    "--remote-debugging-pipe",
)


def program():
    """The path of the browser; None where there is none."""
    names = (os.environ.get("CSTC_BROWSER"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


class Browser:
    """One browser with one tab.

    `errors` are what the page complained of, `asked` the addresses that it asked for; both since the last `open`.
    """

    def __init__(self, folder):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser wants exactly 3 and 4, which may be anything here: a shell puts them there.
        put = f'exec 8<&{to_read} 9>&{to_write}; exec 3<&8 4>&9 8<&- 9>&-; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", put, "browser", program(), *SWITCHES, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._left, self._session = 0, b"", None
        self.errors, self.asked, self._loaded = [], [], False
        pages = [each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self._call("Emulation.setFocusEmulationEnabled", enabled=True)  # or nothing has the focus without a window
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path, *, width=1280, height=900, dark=False, media=""):
        """Show a file, in a window of some size and with a colour scheme; `media` may be "print"."""
        self.errors, self.asked, self._loaded = [], [], False
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        for address in ("about:blank", path.as_uri()):  # a page that is open already would not load again
            self._loaded = False
            self._call("Page.navigate", url=address)
            until = time.monotonic() + PATIENCE
            while not self._loaded:
                self._hear(until)

    def run(self, script):
        """The value of an expression in the page; a promise is waited for."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def press(self, key):
        """A key, such as "Tab", "Enter" or "ArrowRight"."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        code = code | {"ArrowDown": 40, "Home": 36, "End": 35}
        text = {"Enter": "\r", " ": " "}.get(key)
        options = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code[key]}
        self._call("Input.dispatchKeyEvent", type="keyDown", **options, **({"text": text} if text else {}))
        self._call("Input.dispatchKeyEvent", type="keyUp", **options)

    def click(self, selector):
        """The middle of an element, with the mouse."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        where = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, **where)

    def picture(self, *, whole=False):
        """What is seen, as PNG; the whole page if asked for."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def paper(self):
        """The printed page, as PDF."""
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])

    def close(self):
        self._send("Browser.close")
        os.close(self._write)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    # -- the pipe ----------------------------------------------------------------------------------------------

    def _send(self, method, **options):
        self._number += 1
        message = {"id": self._number, "method": method, "params": options}
        if self._session is not None and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._number

    def _call(self, method, **options):
        number, until = self._send(method, **options), time.monotonic() + PATIENCE
        while True:
            message = self._hear(until)
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]

    def _hear(self, until):
        """The next message; what the page complains of and asks for is kept."""
        while b"\0" not in self._left:
            if not select.select([self._read], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            heard = os.read(self._read, 1 << 20)
            if not heard:
                raise ConnectionError("the browser has gone")
            self._left += heard
        first, self._left = self._left.split(b"\0", 1)
        message = json.loads(first)
        method, told = message.get("method", ""), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(
                told["exceptionDetails"].get("text", "") + str(told["exceptionDetails"].get("exception"))
            )
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.errors.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent" and told["request"]["url"] != "about:blank":
            self.asked.append(told["request"]["url"])
        return message
