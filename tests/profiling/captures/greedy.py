"""A capture that uses much of the standard library, as real ones do, also at its end."""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import random
import re
import signal
import socket
import string
import struct
import threading
import types
import typing
import warnings


@dataclasses.dataclass
class Seen:
    names: list[str]
    kind: "typing.Literal['greedy']" = "greedy"


@contextlib.contextmanager
def around(setting):
    assert all((functools, logging, random, re, signal, socket, string, struct, types, warnings))
    lock = threading.Lock()
    setting.messages.send("here", pid=os.getpid())
    yield
    import json as json_at_the_end
    import uuid  # not loaded before

    assert json_at_the_end is json
    with lock, open(os.path.join(setting.folder, f"captured-{uuid.uuid4()}"), "w") as file:
        json.dump(dataclasses.asdict(Seen(sorted(setting.configuration))), file)
