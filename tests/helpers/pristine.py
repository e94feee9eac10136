"""The README's commands on a fresh Debian or Ubuntu: `make test-pristine`, as root.

The system has the README's packages and no others. debootstrap makes it (in its minimal variant) in
the cache, once for each release. A run copies it, puts the sources into the copy, and calls `make
demo` and `make test` there. It runs in namespaces of its own, so that its mounts and its processes
end with it, however it ends. It uses this machine's settings for package indexes and archives:
pip's configuration, apt's, and the variables of proxies and certificates. Downloads are kept.

It needs root, debootstrap and unshare (Debian: apt-get install debootstrap util-linux). Variables,
of make or of the environment:

    RELEASE  bookworm (Debian 12, the default), trixie, sid (Debian unstable), jammy, noble
    TESTS    the tests to run, as for `make test`; `none` for `make demo` alone; default: all
    POCL     1 to install the release's pocl-opencl-icd, too: sid has PoCL 7.1, an ICD 2 driver
    MIRROR   the archive to install from, if not that of this machine's apt. Ubuntu on Debian
             needs it, and debootstrap checks Ubuntu's signatures only with Ubuntu's keyring
    CACHE    where systems and downloads are kept; remove pristine/RELEASE/base there to make a
             system anew
"""

from __future__ import annotations

import ast
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from helpers.sources import copy_sources

ROOT: Final = Path(__file__).resolve().parents[2]
#: Where the working tree lies in the fresh system.
TREE: Final = "/root/fairlead"
#: What the README names and no more.
INSTALL: Final = ("apt-get", "install", "-q", "-y", "--no-install-recommends")
#: Options of pip that say how packages are reached.
_PIP: Final = (
    "((extra_)?index_url|find_links|no_index|(client_)?cert|trusted_host|proxy"
    "|(default_)?timeout|retries)"
)
#: Variables that say how the world is reached, and pytest's options.
_VARIABLES: Final = re.compile(
    rf"(?i:(https?|ftp|all|no)_proxy|PIP_{_PIP})|SSL_CERT_(FILE|DIR)"
    "|(REQUESTS|CURL)_CA_BUNDLE|PYTEST_ADDOPTS"
)


class Distribution(NamedTuple):
    """What debootstrap has to know: its script, the components, and the archive's origin in apt."""

    script: str
    components: str
    origin: str


DEBIAN: Final = Distribution("sid", "main", "Debian")
UBUNTU: Final = Distribution("gutsy", "main,universe", "Ubuntu")  # one script for all releases
RELEASES: Final = {
    "bookworm": DEBIAN,
    "trixie": DEBIAN,
    "sid": DEBIAN,
    "jammy": UBUNTU,
    "noble": UBUNTU,
}


def main() -> int:
    """Make the system if it is missing, and run the commands.

    Returns the exit code, 0 for success.
    """
    release = os.environ.get("RELEASE") or "bookworm"
    require(release)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended first
    cache = (
        Path(os.environ.get("CACHE") or Path.home() / ".cache/fairlead/build").resolve()
        / "pristine"
    )
    home = cache / release
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return try_commands(Machine(home, *access()), release)


def require(release: str) -> None:
    """End with one line if something is missing."""
    missing = (
        "no root: mounts and chroot need it (sudo make test-pristine)"
        if os.geteuid()
        else f"RELEASE={release} is unknown; known are {', '.join(RELEASES)}"
        if release not in RELEASES
        else "no debootstrap: install it (Debian: apt-get install debootstrap)"
        if not shutil.which("debootstrap")
        else "no unshare: install it (Debian: apt-get install util-linux)"
        if not shutil.which("unshare")
        else ""
    )
    if missing:
        sys.exit(f"test-pristine: {missing}")


def access() -> tuple[dict[str, str], list[Path]]:
    """How this machine reaches the world: variables, and the files and folders that they name."""
    variables = dict(os.environ)
    # what pip's files say, then what its variables do
    for line in said(sys.executable, "-m", "pip", "config", "list"):
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2].upper().replace("-", "_")
        variables[f"PIP_{name}"] = " ".join(str(ast.literal_eval(value)).split())
    variables = {name: value for name, value in variables.items() if _VARIABLES.fullmatch(name)}
    paths = {path for value in variables.values() for path in local_paths(value)}
    return variables, sorted(path for path in paths if path.exists())


def local_paths(value: str) -> Iterator[Path]:
    """Return the files and folders that an option names.

    For an index it is the parent, because its files may lie beside it.
    """
    for word in value.split():
        if word.startswith("file://"):
            yield Path(unquote(urlsplit(word).path)).parent
        elif word.startswith("/"):
            yield Path(word)


#: What is mounted in a system before a command is run in it. The namespace takes it away again.
_MOUNTS: Final = """set -e
bind() {{
    if [ -d "$1" ]; then
        mkdir -p "$2"
    else
        mkdir -p "$(dirname "$2")"
        [ -e "$2" ] || touch "$2"
    fi
    mount --bind "$1" "$2"
    mount -o "remount,bind,$3" "$2"
}}
{binds}
mount -t proc proc {root}/proc
mount -t sysfs -o ro sysfs {root}/sys
mount --rbind /dev {root}/dev
mount -t tmpfs -o mode=1777 tmpfs {root}/dev/shm
exec chroot {root} "$@"
"""


class Machine:
    """A fresh system: `base` is kept, `run` is the copy in which commands run."""

    def __init__(self, home: Path, variables: Mapping[str, str], shared: Sequence[Path]) -> None:
        self.base, self.run = home / "base", home / "run"
        self.downloads, self.packages, self.shared = home / "downloads", home / "packages", shared
        self.variables = {
            **variables,
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "DEBIAN_FRONTEND": "noninteractive",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        }

    def call(self, root: Path, *command: str, shared: Sequence[Path] = ()) -> int:
        """Run a command in a system that sees some of this machine's files. Returns its exit code.

        Its mounts and processes are its own.
        """
        # downloads of pip and make go to ~/.cache, those of apt to its own folder: both are kept
        for path in (self.downloads, self.packages):
            path.mkdir(exist_ok=True)
        binds = [
            *((path, str(path), "ro") for path in shared),
            (self.downloads, "/root/.cache", "rw"),
            (self.packages, "/var/cache/apt/archives", "rw"),
        ]
        lines = [shlex.join(["bind", str(at), f"{root}{to}", mode]) for at, to, mode in binds]
        script = _MOUNTS.format(root=shlex.quote(str(root)), binds="\n".join(lines))
        return self.isolated("sh", "-c", script, "sh", *command)

    def isolated(self, *command: str) -> int:
        """Run a command of this machine in namespaces that end with it. Returns its exit code."""
        return subprocess.call(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--", *command],
            env=self.variables,
            stdin=subprocess.DEVNULL,
        )

    def make(self, release: str, install: str) -> None:
        """The system with its packages, made anew if it was made with others."""
        stamp = self.base / "etc/fairlead-packages"
        if stamp.exists() and stamp.read_text() == install:
            return
        shutil.rmtree(self.base, ignore_errors=True)
        self.packages.mkdir(exist_ok=True)
        given = RELEASES[release]
        mirror = os.environ.get("MIRROR") or archive(given.origin)
        options = [
            "--variant=minbase",
            f"--cache-dir={self.packages}",
            f"--components={given.components}",
        ]
        if self.isolated("debootstrap", *options, release, str(self.base), mirror, given.script):
            place = mirror or "its usual archive"
            sys.exit(
                f"test-pristine: debootstrap made no {release} from {place}; MIRROR=… names "
                "another archive"
            )
        acquire = [
            line for line in said("apt-config", "dump", "Acquire") if "IndexTargets" not in line
        ]
        (self.base / "etc/apt/apt.conf.d/99host").write_text("\n".join([*acquire, ""]))
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", self.base / "etc" / name)
        if self.call(self.base, "sh", "-ec", f"apt-get -q update && {install}"):
            sys.exit(f"test-pristine: not all that the README names can be installed: {install}")
        stamp.write_text(install)


def said(*command: str) -> list[str]:
    """The lines that a command prints; none if there is no such command, or it fails."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def archive(origin: str) -> str:
    """Return the archive of a distribution that this machine's apt uses.

    "" means that it uses none; then debootstrap chooses.
    """
    for line in said("apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"):
        found, label, address = line.split("|")
        if found == label == origin:
            return address
    return ""


def packages() -> str:
    """Return the README's command that installs what its two commands need, and nothing else."""
    found = re.search(
        r"^apt-get install (.+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    if not found:
        sys.exit("test-pristine: README.md has no line `apt-get install …`")
    return shlex.join([*INSTALL, *found[1].split()])


def try_commands(machine: Machine, release: str) -> int:
    """Copy the system, run the commands in the copy and say how they ended."""
    machine.make(release, packages())
    shutil.rmtree(machine.run, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(machine.base), str(machine.run)], check=True)
    copy_sources(ROOT, machine.run / TREE.lstrip("/"))
    pocl, tests = os.environ.get("POCL"), os.environ.get("TESTS", "")
    if pocl and machine.call(machine.run, *INSTALL, "pocl-opencl-icd"):
        sys.exit(f"test-pristine: pocl-opencl-icd of {release} cannot be installed")
    commands = [["make", "demo"]]
    if tests != "none":
        commands.append(["make", "test", *([f"TESTS={tests}"] if tests else [])])
    codes = [
        machine.call(machine.run, "env", "-C", TREE, *command, shared=machine.shared)
        for command in commands
    ]
    ends = [
        f"{shlex.join(command)} {'failed' if code else 'passed'}"
        for command, code in zip(commands, codes, strict=True)
    ]
    print(f"test-pristine: {release}{' with its PoCL' if pocl else ''}: {', '.join(ends)}")
    if any(codes):
        print(f"test-pristine: the system can be looked at in {machine.run}")
        return 1
    shutil.rmtree(machine.run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
