"""A capture that does nothing, and imports nothing."""


class around:
    def __init__(self, setting):
        self.setting = setting

    def __enter__(self):
        self.setting.messages.send("here", pid=__import__("posix").getpid())

    def __exit__(self, *how):
        pass
