"""Hostile manifests and variables: the library hangs on none, crashes on none, and goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from helpers.support import FakeDriver

from fairlead.icd import libopencl

from .conftest import Client, run_client

SYSTEM = Path("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1")
#: What is in the manifest: {} is the driver's path, {name} its base name.
READ = {
    "no line end": b"{}",
    "CRLF": b"{}\r\n",
    "blanks": b" \t{} \t\n",
    "a byte-order mark": b"\xef\xbb\xbf{}\n",
    "a comment": b"# my driver\n\n{}\n",
    "two line ends": b"{}\n\n",
    "beside the manifest": b"{name}\n",
    "a relative path": b"./{name}\n",
}
NOT_READ = {
    "empty": b"",
    "blank": b" \n\n",
    "itself": libopencl.find_library().encode(),
    "its soname": b"libOpenCL.so.1\n",
    "a missing file": b"/nowhere/libnone.so\n",
    "a missing soname": b"libnone-of-this-name.so\n",
    "a directory": b"/tmp\n",
    "zeros": bytes(100),
    "a large file": b"x" * 100_000,
    "an endless name": b"/" + b"x" * 60_000,
}


@pytest.fixture
def vendors(tmp_path: Path, fake_driver: FakeDriver) -> Path:
    """A directory with a good driver, `zz.icd`, which hostile manifests come before."""
    folder = tmp_path / "vendors.d"
    folder.mkdir()
    good = fake_driver(name='"Good"', icd=2)
    (folder / "zz.icd").write_text(f"{good}\n", encoding="utf-8")
    return folder


def names(client: Client, vendors: Path | str, by: str = "plain", **env: str) -> str:
    return client("names", by=by, env={"OCL_ICD_VENDORS": str(vendors), **env}).out.strip()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["plain", "verdict"])
@pytest.mark.parametrize("case", READ)
def test_manifests_that_are_understood(
    client: Client, vendors: Path, fake_driver: FakeDriver, case: str, by: str
) -> None:
    driver = Path(shutil.copy(fake_driver(), vendors / "driver.so"))
    text = READ[case].replace(b"{}", os.fsencode(driver)).replace(b"{name}", b"driver.so")
    (vendors / "a.icd").write_bytes(text)
    assert names(client, vendors, by) == "Fake 0, Good 0"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["plain", "verdict"])
@pytest.mark.parametrize("case", NOT_READ)
def test_manifests_that_are_left_out(client: Client, vendors: Path, case: str, by: str) -> None:
    (vendors / "a.icd").write_bytes(NOT_READ[case])
    assert names(client, vendors, by) == "Good 0"


@pytest.mark.parametrize("by", ["plain", "verdict"])
def test_what_is_no_file(client: Client, vendors: Path, by: str) -> None:
    """A named pipe that nobody writes to would be waited for without end."""
    os.mkfifo(vendors / "a.icd")
    (vendors / "b.icd").mkdir()
    (vendors / "c.icd").symlink_to("/nowhere")
    (vendors / "d.icd").symlink_to("/dev/zero")
    (vendors / "e.ICD").write_text("libnone.so\n", encoding="utf-8")
    assert names(client, vendors, by) == "Good 0"


@pytest.mark.skipif(not SYSTEM.exists(), reason="the system has no libOpenCL.so.1")
@pytest.mark.parametrize("by", ["plain", "verdict"])
def test_another_loader_is_no_driver(client: Client, vendors: Path, by: str) -> None:
    (vendors / "a.icd").write_text(f"{SYSTEM}\n", encoding="utf-8")
    (vendors / "b.icd").write_text(f"{vendors}/driver.so\n", encoding="utf-8")
    (vendors / "driver.so").symlink_to(SYSTEM)
    assert names(client, vendors, by) == "Good 0"


@pytest.mark.parametrize("by", ["plain", "verdict"])
def test_the_order_is_that_of_the_names(
    client: Client, vendors: Path, fake_driver: FakeDriver, by: str
) -> None:
    for name in ("c", "a", "b"):
        driver = Path(shutil.copy(fake_driver(name=f'"{name}"'), vendors / f"{name}.so"))
        (vendors / f"{name}.icd").write_text(f"{driver}\n", encoding="utf-8")
    assert names(client, vendors, by) == "a 0, b 0, c 0, Good 0"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["plain", "verdict"])
def test_the_variables(
    client: Client, vendors: Path, fake_driver: FakeDriver, tmp_path: Path, by: str
) -> None:
    one = Path(shutil.copy(fake_driver(name='"One"'), tmp_path / "one.so"))
    two = Path(shutil.copy(fake_driver(name='"Two"'), tmp_path / "two.so"))
    manifest = tmp_path / "two.icd"
    manifest.write_text(f"{two}\n", encoding="utf-8")
    assert names(client, f"{vendors}:{one}", by) == "Good 0, One 0"
    assert names(client, f":{manifest}::{vendors}:", by) == "Two 0, Good 0"
    assert names(client, vendors, by, OCL_ICD_FILENAMES=f":{one}:") == "One 0, Good 0"
    assert names(client, vendors, by, OCL_ICD_FILENAMES=f"/nowhere/x.so:{two}") == "Two 0, Good 0"
    by_path = {"OCL_ICD_VENDORS": "", "OPENCL_VENDOR_PATH": str(vendors)}
    assert "Good 0" in client("names", by=by, env=by_path).out
    by_name = {"OPENCL_VENDOR_PATH": str(tmp_path), "OCL_ICD_VENDORS": "two.icd"}
    assert client("names", by=by, env=by_name).out == "Two 0\n"


def test_relative_paths_are_relative_to_the_program_s_folder(
    client_path: Path, vendors: Path, tmp_path: Path
) -> None:
    """Each folder has a verdict of its own."""
    (tmp_path / "other").mkdir()
    env = {"OCL_ICD_VENDORS": "vendors.d", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for folder, found in ((tmp_path, "Good 0"), (tmp_path / "other", "clGetPlatformIDs -1001")):
        for python in ("0", None):
            command = ["env", "-C", folder, client_path, "names"]
            out = run_client(command, {**env, "FAIRLEAD_PYTHON": python}).out
            assert out.startswith(found)


def test_what_was_left_out_is_said_on_request(client: Client, vendors: Path) -> None:
    (vendors / "a.icd").write_text("/nowhere/libnone.so\n", encoding="utf-8")
    env = {"OCL_ICD_VENDORS": str(vendors), "OCL_ICD_ENABLE_TRACE": "True"}
    for by in ("plain", "verdict"):
        assert "fairlead: " in (err := client("names", by=by, env=env).err)
        assert "/nowhere/libnone.so" in err
    assert not client("names", env={"OCL_ICD_VENDORS": str(vendors)}).err


@pytest.mark.slow
def test_a_thousand_manifests(client: Client, vendors: Path) -> None:
    for number in range(1000):
        shutil.copy(vendors / "zz.icd", vendors / f"{number:04}.icd")
    for by in ("plain", "verdict", "verdict"):
        assert names(client, vendors, by) == "Good 0"


@pytest.mark.parametrize("by", ["plain", "verdict"])
def test_a_driver_that_exits_when_asked_for_extensions_is_not_asked(
    client: Client, fake_driver: FakeDriver, by: str
) -> None:
    """Intel's driver did under optirun. The variable is ocl-icd's."""
    driver = fake_driver(extensions='(_exit(3), "")')
    env = {"OCL_ICD_ASSUME_ICD_EXTENSION": "1"}
    assert client("names", drivers=[driver], by=by, env=env).out == "Fake 0\n"
    if by == "plain":
        assert client("names", drivers=[driver], check=False).code == 3


def test_platforms_with_equally_many_devices_stay_in_the_order_of_the_search(
    client: Client, fake_driver: FakeDriver
) -> None:
    drivers = [fake_driver(name=f'"{name}"') for name in ("b", "a", "c")]
    env = {"OCL_ICD_PLATFORM_SORT": "devices"}
    assert client("names", drivers=drivers, by="verdict", env=env).out == "b 0, a 0, c 0\n"
