"""What the process may do: nothing. It has no more rights than any client's program."""

import ctypes

# Loaded by its name at the first connection over TLS, when root's Python may be out of reach.
import encodings.idna  # noqa: F401
import os

from orchestrator.ground.config_error import ConfigError

# The nobody of the container images' users, who owns nothing.
UID = 65532
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
_HOW = f"run it as user {UID}, as `docker run --user {UID} --cap-drop ALL` or `User=` of systemd do"


def give_up() -> None:
    """Becomes uid 65532 if it is root, and gives up all capabilities for good.

    Raises: ConfigError if it is root and may not change that.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 or os.getuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(UID, UID, UID)
            os.setresuid(UID, UID, UID)
            # Libraries look there for files of the user's, and root's home is closed to this one.
            os.environ["HOME"] = "/"
        except OSError as error:
            raise ConfigError(
                f"a gateway does not run as root, and can't become another user here "
                f"({error.strerror}): {_HOW}"
            ) from None
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if libc.capset(ctypes.byref(header), ctypes.byref(nothing)) != 0:
        raise ConfigError(f"the capabilities can't be given up: {_HOW}")
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise ConfigError("no_new_privs can't be set: this kernel is too old")
