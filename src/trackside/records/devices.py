"""How a device is named: cpu, cuda or cuda:N."""

from trackside.records.errors import TracksideError

__all__ = ["gpu_index"]


def gpu_index(device: str) -> int | None:
    """The number of the GPU that a device's name stands for; None for the CPU.

    Raises:
        TracksideError: kind `usage`, for any other name.
    """
    kind, colon, number = device.partition(":")
    if device == "cpu":
        return None
    # isdecimal alone lets through digits of other scripts, isdigit superscripts too, which int() refuses.
    if kind == "cuda" and (not colon or (number.isascii() and number.isdecimal())):
        return int(number or 0)
    raise TracksideError("usage", f"found --device {device}", "needed: cpu, cuda or cuda:N")
