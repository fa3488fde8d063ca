# SPDX-License-Identifier: GPL-2.0-only
"""setup/fio-source: which source is taken, that it must pass the load guard,
and what happens where there is none.

Runs in copies of the checkout, with package archives made of local files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import BUILD, FIO, ROOT

# What the build reads: the folders with a CMakeLists.txt, and these.
ROOMS = sorted(path.parent.name for path in ROOT.glob("*/CMakeLists.txt"))
PARTS = ["CMakeLists.txt", "setup", "scripts/durabenchlib/__init__.py", *ROOMS]
# A stand-in for a git that reaches no server.
NO_GIT = "#!/bin/sh\nexit 128\n"


@dataclass
class Checkout:
    """A copy of what the build needs, to run setup/fio-source in."""

    path: Path

    def find(self, *arguments: str, **environment: str | Path) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name not in ("FIO", "FIO_SOURCE_DIR")}
        return subprocess.run(
            ["setup/fio-source", *arguments],
            cwd=self.path,
            capture_output=True,
            text=True,
            env={
                **clean,
                "PATH": f"{self.path / 'bin'}:{clean['PATH']}",
                **{name: str(value) for name, value in environment.items()},
            },
        )

    @property
    def record(self) -> dict[str, str]:
        lines = (self.path / "build/fio/record").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def fio(self) -> Path:
        return (self.path / "build/bin/fio").resolve()


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    path = tmp_path / "checkout"
    for part in PARTS:
        (path / part).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, path / part)
    (path / "bin").mkdir()
    (path / "bin/git").write_text(NO_GIT)
    (path / "bin/git").chmod(0o755)
    return Checkout(path)


@pytest.fixture
def fio() -> Path:
    return FIO.resolve()


def copy_source(source: Path, copy: Path) -> Path:
    """The files of a source tree, without what was built in it."""
    built = shutil.ignore_patterns("*.o", "*.a", "*.d", "fio", ".git", "config-host.*", "FIO-VERSION-FILE")
    return shutil.copytree(source, copy, ignore=built)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the fio that this build is for. Its configure, which takes
    longer than all else here, finds what it has found for this build."""
    if not (BUILD / "fio/source").exists():
        pytest.skip("not built by make")
    tree = copy_source((BUILD / "fio/source").resolve(), tmp_path_factory.mktemp("source") / "fio")
    (tree / "configure").write_text(f"#!/bin/sh\nexec cp '{BUILD}'/fio-config/config-host.* .\n")
    return tree


def change_version(tree: Path) -> Path:
    generator = tree / "FIO-VERSION-GEN"
    text = generator.read_text()
    generator.write_text(text.replace("DEF_VER=fio-", "DEF_VER=fio-9"))
    assert generator.read_text() != text
    return tree


def test_given_source_stands_until_the_fio_changes(checkout, fio, source, tmp_path):
    done = checkout.find(FIO=fio, FIO_SOURCE_DIR=source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkout.fio == fio
    assert checkout.record["source"] == str(source)
    assert checkout.record["why"] == "given"

    def times() -> dict[Path, int]:
        return {path: path.lstat().st_mtime_ns for path in (checkout.path / "build").rglob("*")}

    before = times()
    for environment in ({"FIO": fio, "FIO_SOURCE_DIR": source}, {"FIO": fio}):
        done = checkout.find(**environment)
        assert done.returncode == 0 and not done.stdout + done.stderr
        assert times() == before

    other = tmp_path / "other-fio"
    shutil.copy2(fio, other)
    done = checkout.find(FIO=other, FIO_SOURCE_DIR=source)
    assert done.returncode == 0 and "headers from" in done.stdout
    assert checkout.fio == other
    assert checkout.record["fio"] == str(other)
    os.utime(other, (1, 1))
    assert "headers from" in checkout.find(FIO=other, FIO_SOURCE_DIR=source).stdout


def test_given_source_of_another_fio_is_refused(checkout, fio, source, tmp_path):
    tree = change_version(copy_source(source, tmp_path / "tree"))
    done = checkout.find(FIO=fio, FIO_SOURCE_DIR=tree)
    assert done.returncode == 69
    assert "not built for this fio" in done.stdout
    assert f"FIO_SOURCE_DIR={tree} is not the source of {fio}" in done.stderr
    assert not (checkout.path / "build/fio/record").exists()


def test_fio_that_lies_in_its_source(checkout, fio, source, tmp_path):
    tree = copy_source(source, tmp_path / "tree")
    shutil.copy2(fio, tree / "fio")
    done = checkout.find(FIO=tree / "fio")
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkout.record["source"] == str(tree)


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"FIO": "/no/such/fio"}, "there is no /no/such/fio"),
        ({"FIO": "/bin/true"}, "is not a fio"),
        ({"FIO_SOURCE_DIR": "/usr"}, "FIO_SOURCE_DIR=/usr is not a fio source tree"),
    ],
)
def test_wrong_input(checkout, environment, message):
    done = checkout.find(**{"FIO": FIO, **environment})
    assert done.returncode == 69
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


# -- package archives


@dataclass
class Archive:
    """A Debian archive of one source package, in a folder, and an apt that
    knows no other."""

    path: Path

    def add(self, version: str, tree: Path, lost: str = "nothing") -> None:
        """Source package `version` of a tree, whose files that match `lost`
        the archive no longer has."""
        work = self.path / "work"
        pool = self.path / "pool"
        pool.mkdir(parents=True)
        upstream, revision = version.rsplit("-", 1)
        shutil.copytree(tree, work / "tree", ignore=shutil.ignore_patterns("debian", ".pc"))
        orig = f"fio_{upstream}.orig.tar.gz"
        subprocess.run(["tar", "-C", work, "-czf", pool / orig, "tree"], check=True)
        debian = work / "tree/debian"
        (debian / "source").mkdir(parents=True)
        (debian / "source/format").write_text("3.0 (quilt)\n")
        (debian / "changelog").write_text(
            f"fio ({version}) unstable; urgency=low\n\n  * Test.\n\n"
            " -- Nobody <nobody@example.org>  Thu, 01 Jan 2026 00:00:00 +0000\n"
        )
        fields = "Source: fio\nMaintainer: Nobody <nobody@example.org>\n\nPackage: fio\nArchitecture: any\n"
        (debian / "control").write_text(fields + "Description: test\n")
        (debian / "packaged").write_text("whole\n")
        command = ["dpkg-source", "-b", work / "tree"]
        subprocess.run(command, check=True, cwd=pool, capture_output=True)

        entries = ["Package: fio", "Format: 3.0 (quilt)", f"Version: {version}", "Directory: pool"]
        entries.append("Binary: fio\nArchitecture: any\nChecksums-Sha256:")
        for path in sorted(pool.iterdir()):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            entries.append(f" {digest} {path.stat().st_size} {path.name}")
        (self.path / "Sources").write_text("\n".join(entries) + "\n")
        for path in pool.glob(lost):
            path.unlink()

    def configure(self, deb822: bool) -> Path:
        """The apt configuration that stands for the machine's."""
        parts = self.path / "apt/sources.list.d"
        parts.mkdir(parents=True)
        if deb822:
            text = f"# test\nTypes: deb\nURIs: file:{self.path}\nSuites: ./\nTrusted: yes\n"
            (parts / "test.sources").write_text(text)
        else:
            (parts / "test.list").write_text(f"# test\ndeb [trusted=yes] file:{self.path} ./\n")
        config = self.path / "apt.conf"
        config.write_text(
            f'Dir::Etc::SourceList "{self.path}/none";\nDir::Etc::SourceParts "{parts}";\n'
        )
        return config


@pytest.fixture
def archive(tmp_path) -> Archive:
    if not shutil.which("apt-get") or not shutil.which("dpkg-source"):
        pytest.skip("no apt-get and dpkg-source here")
    return Archive(tmp_path / "archive")


@pytest.fixture
def package(fio) -> str:
    """Source version of the package that the fio came from."""
    owner = subprocess.run(["dpkg-query", "-S", fio], capture_output=True, text=True)
    if owner.returncode:
        pytest.skip(f"{fio} did not come from a package")
    command = ["dpkg-query", "-W", "-f", "${source:Version}", owner.stdout.split(":")[0]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_source_package_of_the_installed_fio(checkout, fio, source, archive, package):
    archive.add(package, source)
    done = checkout.find(FIO=fio, APT_CONFIG=archive.configure(deb822=True))
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkout.fio == fio
    tree = checkout.path / "build/fio" / package
    assert checkout.record["source"] == str(tree)
    assert (tree / "debian/packaged").exists()


def test_upstream_tarball_where_the_rest_is_lost(checkout, fio, source, archive, package):
    archive.add(package, source, lost="*.debian.*")
    done = checkout.find(FIO=fio, APT_CONFIG=archive.configure(deb822=False))
    assert done.returncode == 0, done.stdout + done.stderr
    tree = Path(checkout.record["source"])
    assert tree == checkout.path / "build/fio" / package
    assert not (tree / "debian").exists()


def test_newest_fio_is_built_where_the_source_is_lost(checkout, fio, source, archive, tmp_path):
    """The fio is one whose version nobody has the source of. The build of the
    other one is short: its Makefile copies the fio that its source belongs to."""
    version = subprocess.run([fio, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    old = tmp_path / "fio"
    old.write_text(f'#!/bin/sh\n[ "$1" != --version ] || {{ echo fio-1.0; exit; }}\nexec {fio} "$@"\n')
    old.chmod(0o755)
    tree = copy_source(source, tmp_path / "tree")
    (tree / "Makefile").write_text(f"fio: config-host.mak\n\tcp {fio} $@\n")
    archive.add(f"{version.removeprefix('fio-')}-99", tree)
    environment = {"FIO": old, "APT_CONFIG": archive.configure(deb822=True)}
    done = checkout.find(**environment)
    assert done.returncode == 0, done.stdout + done.stderr
    tree = Path(checkout.record["source"])
    assert checkout.fio == tree / "fio"
    assert checkout.record["version"] == version
    assert str(old) in checkout.record["why"]
    again = checkout.find(**environment)
    assert again.returncode == 0 and f"not {old}" in again.stdout


def test_releases_for_the_matrix(checkout, source, archive):
    """The newest can be had here; for each of the others there is a reason."""
    archive.add("9.9-1", source)
    done = checkout.find("releases", APT_CONFIG=archive.configure(deb822=True))
    assert done.returncode == 0, done.stdout + done.stderr
    found = [checkout.path / path for path in done.stdout.splitlines()]
    assert [path.name for path in found] == ["3.33", "3.37", "3.39", "3.41", "9.9"]
    assert (found[-1] / "ioengines.h").exists()
    assert all("gave its source" in path.read_text() for path in found[:-1])


def test_nothing_to_be_had(checkout, archive, tmp_path):
    lone = tmp_path / "fio"
    lone.write_text("#!/bin/sh\necho fio-1.0\n")
    lone.chmod(0o755)
    archive.path.mkdir()
    (archive.path / "Sources").write_text("")
    done = checkout.find(FIO=lone, APT_CONFIG=archive.configure(deb822=True))
    assert done.returncode == 69
    assert "FIO_SOURCE_DIR=" in done.stderr
