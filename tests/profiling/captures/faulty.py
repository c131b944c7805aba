"""A capture that goes wrong as it is told."""

import os
import time


class around:
    def __init__(self, setting):
        self.setting = setting
        self.how = setting.configuration["how"]

    def __enter__(self):
        pipe = self.setting.messages._path
        if self.how == "raises":
            raise ValueError("on purpose \udcff")
        if self.how == "exits":
            raise SystemExit(9)
        if self.how == "half a line":
            with open(pipe, "wb", buffering=0) as file:
                file.write(b'{"kind":"half')
        if self.how == "nonsense":
            with open(pipe, "wb", buffering=0) as file:
                file.write(b'[]\n{"kind":1,"serial":1}\n\xff\n' + b"[" * 4000 + b"\n" + b"x" * 9000 + b"\n")
        if self.how == "holds the pipe":
            file = os.open(pipe, os.O_WRONLY)
            if (pid := os.fork()) == 0:
                for standard in (0, 1, 2):
                    os.close(standard)
                time.sleep(60)
                os._exit(0)
            os.close(file)
            self.setting.messages.send("holder", pid=pid)
        if self.how == "talks":
            # As much as the pipe holds, and more.
            for number in range(3000):
                self.setting.messages.send("word", number=number, text="x" * 50)

    def __exit__(self, *how):
        if self.how == "raises at the end":
            raise ValueError("on purpose")
        if self.how == "exits at the end":
            os.kill(os.getpid(), 2)  # Ctrl-C
            time.sleep(60)
